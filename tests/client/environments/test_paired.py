"""Names that `exec-server pair` has made known."""

from __future__ import annotations

import os

import pytest

from exec_server.client.environments import paired
from exec_server.client.environments.manager import load_environments
from exec_server.errors import ConfigurationError
from tests.requirements import requirement

KEPT = paired.Paired(registry="https://r.example", environment="big.1", token="secret")


def manager(home, **variables):
    return load_environments(home, {"XDG_STATE_HOME": str(home), **variables})


@pytest.fixture
def folder(tmp_path):
    return paired.folder({"XDG_STATE_HOME": str(tmp_path)})


@requirement("pair:named")
def test_what_was_paired_has_a_name(tmp_path, folder):
    path = paired.save(folder, "big-1", KEPT)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(folder).st_mode & 0o777 == 0o700
    found = manager(tmp_path)
    assert found.names == ("local", "big-1") and found.default == "local"
    environment = found.resolve("big-1")
    assert environment.kind == "rendezvous"
    assert environment.where == "https://r.example (big.1)"
    assert environment.token() == "secret"
    assert "secret" not in repr(environment) + repr(KEPT) + repr(found.describe())


@requirement("pair:named")
def test_the_configured_names_come_first(tmp_path, folder):
    paired.save(folder, "box", KEPT)
    text = '[[environments]]\nid = "box"\nurl = "ws://h"\n'
    (tmp_path / "environments.toml").write_text(text)
    found = manager(tmp_path)
    assert found.names == ("local", "box")
    assert found.resolve("box").kind == "websocket"


@requirement("pair:private")
def test_what_others_can_read_or_is_something_else_is_no_environment(tmp_path, folder):
    path = paired.save(folder, "open", KEPT)
    path.chmod(0o640)
    (folder / "link.json").symlink_to(paired.save(folder, "good", KEPT))
    for name, data in (("broken", b"{"), ("empty", b""), ("wrong", b'{"registry":1}')):
        (folder / f"{name}.json").write_bytes(data)
        (folder / f"{name}.json").chmod(0o600)
    os.mkfifo(folder / "fifo.json", 0o600)
    paired.save(folder, "x", KEPT).rename(folder / "no name.json")
    assert manager(tmp_path).names == ("local", "good")
    with pytest.raises(ConfigurationError, match="not private"):
        paired.load(path)


def test_it_is_replaced_and_forgotten(tmp_path, folder):
    paired.save(folder, "box", KEPT)
    paired.save(folder, "box", paired.Paired(registry="https://s", environment="e", token="t"))
    assert manager(tmp_path).resolve("box").where == "https://s (e)"
    paired.forget(folder, "box")
    assert list(folder.iterdir()) == []
    for name in ("box", "../box", "local"):
        with pytest.raises(ConfigurationError):
            paired.forget(folder, name)
    for name in ("local", "a/b", ".."):
        with pytest.raises(ConfigurationError):
            paired.save(folder, name, KEPT)


def test_without_a_folder_there_is_nothing(tmp_path):
    assert manager(tmp_path).names == ("local",)
    assert paired.folder({"XDG_STATE_HOME": "relative", "HOME": "/h"}).as_posix() == (
        "/h/.local/state/exec-server/paired"
    )
