"""SERVER:/PATH, relative paths and names, as commands for files read them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exec_server.cli.files.targets import Target, parse_remote, parse_target
from tests.requirements import requirement
from tests.support.cli import finished

TOML = '[[environments]]\nid = "box"\nurl = "{url}"\n'


@pytest.fixture
def box(home: Path) -> Path:
    (home / "codex" / "environments.toml").write_text(TOML.format(url="ws://127.0.0.1:1"))
    return home


@requirement("cli/targets:forms")
@pytest.mark.parametrize(
    ("text", "url", "path"),
    [
        ("ws://127.0.0.1:43555:/tmp/x", "ws://127.0.0.1:43555", "/tmp/x"),
        ("ws://127.0.0.1:43555:rel.md", "ws://127.0.0.1:43555", "rel.md"),
        ("ws://127.0.0.1:43555:a/b:c", "ws://127.0.0.1:43555", "a/b:c"),
        ("ws://127.0.0.1:43555:~/x", "ws://127.0.0.1:43555", "~/x"),
        ("ws://127.0.0.1:43555:7", "ws://127.0.0.1:43555", "7"),
        ("ws://127.0.0.1:43555", "ws://127.0.0.1:43555", ""),
        ("ws://127.0.0.1:43555:", "ws://127.0.0.1:43555", ""),
        ("ws://[::1]:80:rel", "ws://[::1]:80", "rel"),
        ("ws://[::1]:80", "ws://[::1]:80", ""),
        ("wss://host:rel", "wss://host", "rel"),
        ("wss://host:80rel", "wss://host", "80rel"),
        ("wss://host/ws?a=b:rel", "wss://host/ws?a=b", "rel"),
        ("noise+https://registry/name:rel", "noise+https://registry/name", "rel"),
        ("unix:///run/s.sock:rel", "unix:///run/s.sock", "rel"),
        ("unix:///run/s.sock", "unix:///run/s.sock", ""),
        ("box:/x", "box", "/x"),
        ("box:rel", "box", "rel"),
        ("box:~/x", "box", "~/x"),
        ("box:", "box", ""),
        ("box", None, "box"),
        ("./box:rel", None, "./box:rel"),
        ("other:rel", None, "other:rel"),
    ],
)
def test_targets_are_read(box, text, url, path):
    assert parse_target(text) == Target(url, path)


@requirement("cli/targets:forms")
def test_a_name_alone_is_a_server_where_nothing_else_can_be_meant(box):
    assert parse_remote("box") == Target("box", "")
    assert parse_remote("other") is None


@requirement("cli/targets:forms")
def test_a_socket_whose_name_has_a_colon_is_found(tmp_path):
    path = tmp_path / "a:b"
    path.touch()
    assert parse_target(f"unix://{path}") == Target(f"unix://{path}", "")


@requirement("cli/targets:relative")
@pytest.mark.one_loop
async def test_relative_paths_begin_where_the_server_runs(server, home, tmp_path, monkeypatch):
    (home / "codex" / "environments.toml").write_text(TOML.format(url=server.url))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("text")
    # The server of this test runs in this process, and its directory was asked for before.
    name = os.path.relpath(tmp_path, server.core.environment_info.cwd.removeprefix("file://"))
    for where in (f"{server.url}:{name}", f"box:{name}"):
        done = await finished("cp", "-q", "file", f"{where}/copy")
        assert (done.status, done.stderr) == (0, "")
        assert (tmp_path / "copy").read_text() == "text"
        (tmp_path / "copy").unlink()
    done = await finished("ls", "box")
    assert done.status == 0


@requirement("cli/targets:relative")
@pytest.mark.one_loop
async def test_the_home_directory_of_the_server_can_be_named(server):
    whole = await finished("stat", f"{server.url}:~")
    assert whole.status == 0
    assert f"path: {os.environ['HOME']}\n" in whole.stdout.decode()
    refused = await finished("stat", f"{server.url}:~nobody/x")
    assert refused.status == 1
    assert "does not tell what ~nobody is: use an absolute path" in refused.stderr


@requirement("cli/targets:forms")
@pytest.mark.one_loop
async def test_a_name_that_is_not_configured_is_told(box):
    for words in (["ls", "nosuch:/tmp"], ["cp", "file", "nosuch:rel"]):
        done = await finished(*words)
        assert done.status == 2
        assert "there is no environment `nosuch`; `exec-server env` lists the names" in done.stderr
