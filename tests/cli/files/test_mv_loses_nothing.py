"""`mv` and `cp` of several files: nothing is lost that was not copied."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from exec_server.cli.files.mv import mv_command
from exec_server.client.files.remote_files import RemoteFiles
from exec_server.errors import MethodNotFound
from tests.cli.files.conftest import done, run
from tests.client.files.transfer.test_transfer import described, make_files
from tests.requirements import requirement
from tests.support.leaks import eventually
from tests.support.servers import OURS
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop

MIB = 1024 * 1024


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    make_files(root, 30, 1000)
    (root / "keep.log").write_text("log")
    (root / "link").symlink_to("keep.log")
    return root


@requirement("cli/files:mv-loses-nothing")
async def test_what_was_not_copied_is_not_removed(server, tmp_path, source):
    os.mkfifo(source / "pipe")
    wanted = described(source)
    moved = await run("mv", f"{server.url}:{source}", tmp_path / "here")
    assert moved.status == 1 and "not removed: a part of it was skipped" in moved.stderr
    moved = await run("mv", source, f"{server.url}:{tmp_path}/there")
    assert moved.status == 1 and "not removed: a part of it was skipped" in moved.stderr
    assert described(source) == wanted
    assert sorted(os.listdir(tmp_path)) == ["here", "source", "there"]


@requirement("cli/files:mv-loses-nothing")
@pytest.mark.parametrize("way", ["up", "down"])
async def test_a_file_that_appears_during_a_move_is_not_removed(server, tmp_path, source, way):
    """A log is written on while its directory is moved."""
    (source / "huge").write_bytes(os.urandom(40 * MIB))
    there = tmp_path / "there"
    words = (source, f"{server.url}:{there}") if way == "up" else (f"{server.url}:{source}", there)
    moving = await asyncio.create_subprocess_exec(*OURS, "mv", *words, stderr=subprocess.PIPE)
    await eventually(lambda: there.exists() and any(there.glob("huge.*.part")))
    (source / "new").write_text("new")
    with open(source / "keep.log", "a") as log:
        log.write("more")
    async with asyncio.timeout(PATIENCE):
        _, told = await moving.communicate()
    assert moving.returncode == 1 and b"not removed: it has changed meanwhile" in told
    assert (source / "new").read_text() == "new" and (source / "keep.log").read_text() == "logmore"


@requirement("cli/files:mv-loses-nothing")
async def test_files_of_one_name_do_not_replace_one_another(server, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log").write_text(f"of {name}")
    for place in ("far", "near"):
        (tmp_path / place).mkdir()
    far = f"{server.url}:{tmp_path}/far"
    copied = await run("cp", f"{server.url}:{tmp_path}/[ab]/log", tmp_path / "near")
    assert (
        copied.status == 1 and f"has just come from {server.url}:{tmp_path}/a/log" in copied.stderr
    )
    assert (tmp_path / "near/log").read_text() == "of a"
    moved = await run("mv", f"{server.url}:{tmp_path}/[ab]/log", far)
    assert moved.status == 1 and "has just come from" in moved.stderr
    assert (tmp_path / "far/log").read_text() == "of a"
    assert (tmp_path / "b/log").read_text() == "of b"


@requirement("cli/files:mv-loses-nothing")
async def test_a_file_is_not_moved_over_one_that_is_written_as_a_directory(server, tmp_path):
    (tmp_path / "new").write_text("new")
    (tmp_path / "old").write_text("old")
    for word in (tmp_path / "new", f"{server.url}:{tmp_path}/new"):
        moved = await run("mv", word, f"{server.url}:{tmp_path}/old/")
        assert moved.status == 1 and "is not a directory" in moved.stderr
    copied = await run("cp", "-r", tmp_path / "new", f"{server.url}:{tmp_path}/old/")
    assert copied.status == 1 and (tmp_path / "old").read_text() == "old"


@requirement("cli/files:mv-loses-nothing")
async def test_a_directory_is_not_moved_into_itself_through_a_server(server, tmp_path, source):
    wanted = described(source)
    for name in ("inner", "source"):
        moved = await run("mv", source, f"{server.url}:{source}/d0/{name}")
        assert moved.status == 1 and "or around it" in moved.stderr
        shutil.rmtree(source / "d0" / name)
        assert described(source).keys() == wanted.keys()


@requirement("cli/files:mv-loses-nothing")
async def test_a_file_that_only_looks_alike_is_replaced_before_its_source_is_removed(
    server, tmp_path
):
    for name in ("here", "there"):
        (tmp_path / name).write_text(f"{name:6}")
        os.utime(tmp_path / name, (1_600_000_000, 1_600_000_000))
    await done("mv", tmp_path / "here", f"{server.url}:{tmp_path}/there")
    assert (tmp_path / "there").read_text() == "here  "


@requirement("cli/files:mv-loses-nothing")
async def test_a_move_to_another_file_system_keeps_everything(server, tmp_path, source):
    (source / "d0").chmod(0o700)
    os.mkfifo(source / "pipe")
    wanted = described(source)
    elsewhere = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        if elsewhere.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is one file system alone")
        await done("mv", f"{server.url}:{source}", f"{server.url}:{elsewhere}")
        assert described(elsewhere / "source") == wanted and not source.exists()
        # A directory that has something in it is not mixed with another one.
        (tmp_path / "source").mkdir()
        (tmp_path / "source" / "mine").write_text("mine")
        moved = await run("mv", f"{server.url}:{elsewhere}/source", f"{server.url}:{tmp_path}")
        assert moved.status == 1 and "Directory not empty" in moved.stderr
        assert described(elsewhere / "source") == wanted
    finally:
        shutil.rmtree(elsewhere)


@requirement("cli/files:mv-loses-nothing")
@pytest.mark.parametrize("size", [1, 9 * MIB], ids=["small", "large"])
@pytest.mark.parametrize("way", ["up", "down"])
async def test_nothing_is_moved_over_a_link_that_leads_to_it(server, tmp_path, way, size):
    (tmp_path / "file").write_bytes(bytes(size))
    (tmp_path / "to-file").symlink_to("file")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("kept")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "tree").symlink_to("../tree")
    far = f"{server.url}:{tmp_path}"
    source, destination = (tmp_path, far) if way == "up" else (far, tmp_path)
    for what, where in (("file", "to-file"), ("tree", "in")):
        moved = await run("mv", f"{source}/{what}", f"{destination}/{where}")
        assert moved.status == 1 and "is the same file as" in moved.stderr
    assert (tmp_path / "file").read_bytes() == bytes(size)
    assert (tmp_path / "tree" / "file").read_text() == "kept"


@requirement("cli/files:mv-loses-nothing")
async def test_what_a_server_without_rename_has_is_not_moved_onto_itself(
    server, tmp_path, monkeypatch, capsys
):
    """It cannot put the source aside, and may be on this machine."""

    async def missing(*_: object, **__: object) -> None:
        raise MethodNotFound("no fs/rename")

    monkeypatch.setattr(RemoteFiles, "rename", missing)
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("kept")
    for what, where in (("file", "file"), ("file", "link"), ("tree", "."), ("tree", "tree/in")):
        words = [f"{server.url}:{tmp_path}/{what}", f"{tmp_path}/{where}"]
        assert await asyncio.to_thread(mv_command, words) == 1
        assert "not removed" in (said := capsys.readouterr().err) or "is the same file as" in said
    assert (tmp_path / "file").read_text() == (tmp_path / "tree" / "file").read_text() == "kept"
    assert await asyncio.to_thread(mv_command, [words[0], f"{tmp_path}/elsewhere"]) == 0
    assert (tmp_path / "elsewhere" / "file").read_text() == "kept"
    assert not (tmp_path / "tree").exists()
