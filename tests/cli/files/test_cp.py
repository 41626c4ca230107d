"""`exec-server cp`, and how files on servers are written."""

from __future__ import annotations

import asyncio
import os
import pty

import pytest

from exec_server.cli.files import progress_bar
from exec_server.cli.files.progress_bar import duration, render, size
from exec_server.cli.files.targets import Target, parse_target
from exec_server.client.files.transfer.progress import Progress
from exec_server.server.serving import serve
from tests.cli.files.conftest import done, run
from tests.requirements import requirement
from tests.support.servers import OURS
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop

MIB = 1024 * 1024
COMMANDS = ["cat", "cp", "find", "ls", "mkdir", "rm", "stat", "tree"]


# Where.


@requirement("cli/files:target")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ws://127.0.0.1:41181:/tmp/x", ("ws://127.0.0.1:41181", "/tmp/x")),
        ("wss://[::1]:80:/", ("wss://[::1]:80", "/")),
        ("wss://host/prefix:/a:/b", ("wss://host/prefix", "/a:/b")),
        ("ws://host:/a b", ("ws://host", "/a b")),
        ("unix:///run/x.sock:/tmp/x", ("unix:///run/x.sock", "/tmp/x")),
        (
            "stdio:ssh h exec-server --listen stdio:/t",
            ("stdio:ssh h exec-server --listen stdio", "/t"),
        ),
        ("ws://127.0.0.1:41181", ("ws://127.0.0.1:41181", "")),
        ("ws://127.0.0.1:41181:", ("ws://127.0.0.1:41181", "")),
        ("/tmp/x", (None, "/tmp/x")),
        ("a:/b", (None, "a:/b")),
        ("http://host:/x", (None, "http://host:/x")),
    ],
)
def test_targets(text, expected):
    assert parse_target(text) == Target(*expected)


# Copying.


@requirement("cli/files:cp", "cli/files:progress")
async def test_a_file_goes_there_and_back_quietly(server, tmp_path):
    (tmp_path / "a b").write_bytes(os.urandom(3 * MIB))
    assert await done("cp", tmp_path / "a b", f"{server.url}:{tmp_path}/there") == ""
    assert await done("cp", f"{server.url}:{tmp_path}/there", tmp_path / "back") == ""
    assert (tmp_path / "back").read_bytes() == (tmp_path / "a b").read_bytes()
    assert (tmp_path / "back").stat().st_mtime == (tmp_path / "a b").stat().st_mtime // 0.001 / 1000


@requirement("cli/files:cp", "cli/files:cp-into")
async def test_a_tree_goes_into_a_directory_or_gets_a_name(server, tmp_path, tree):
    (tmp_path / "there").mkdir()
    await done("cp", "-r", tree, f"{server.url}:{tmp_path}/there")
    await done("cp", tree, f"{server.url}:{tmp_path}/named", "--recursive")
    await done(
        "cp", "-r", "--verify", "hash", f"{server.url}:{tmp_path}/there/tree", tmp_path / "back"
    )
    names = sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))
    for copy in (tmp_path / "there" / "tree", tmp_path / "named", tmp_path / "back"):
        assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*")) == names
        assert (copy / "file").read_bytes() == b"content\n"
        assert (copy / "file").stat().st_mode & 0o777 == 0o640
        assert os.readlink(copy / "link") == "file"


@requirement("cli/files:cp", "cli/files:cp-into")
async def test_several_files_go_into_a_directory(server, tmp_path, tree):
    (tmp_path / "there").mkdir()
    sources = [tree / "file", tree / "sub" / "inner.py"]
    await done("cp", *sources, f"{server.url}:{tmp_path}/there/")
    assert sorted(os.listdir(tmp_path / "there")) == ["file", "inner.py"]
    refused = await run("cp", *sources, f"{server.url}:{tmp_path}/missing")
    assert refused.status == 1 and "is not a directory" in refused.stderr


@requirement("cli/files:cp")
async def test_a_tree_is_copied_within_a_server(server, tmp_path, tree):
    await done("cp", "-r", f"{server.url}:{tree}", f"{server.url}:{tmp_path}/copy")
    assert (tmp_path / "copy" / "sub" / "inner.py").read_bytes() == b"print()\n"


@pytest.mark.parametrize("end", ["", "/"])
@requirement("cli/files:cp")
async def test_a_link_that_is_named_is_followed_within_a_server(server, tmp_path, tree, end):
    (tmp_path / "to tree").symlink_to(tree.name)
    (tmp_path / "to file").symlink_to(f"{tree.name}/sub/inner.py")
    (tmp_path / "copies").mkdir()
    there = f"{server.url}:{tmp_path}"
    await done("cp", "-r", f"{there}/to tree{end}", f"{there}/copies/tree")
    await done("cp", f"{there}/to file", f"{there}/copies/file")
    for name in ("tree/sub/inner.py", "file"):
        copy = tmp_path / "copies" / name
        assert not copy.is_symlink() and copy.read_bytes() == b"print()\n"


@requirement("cli/files:cp")
async def test_a_tree_is_copied_from_one_server_to_another(server, tmp_path, tree):
    (tree / "big").write_bytes(os.urandom(MIB))
    async with serve() as other:
        words = ("cp", "-r", f"{server.url}:{tree}", f"{other.url}:{tmp_path}/copy")
        assert "sub/inner.py" in await done(*words, "--dry-run")
        assert not (tmp_path / "copy").exists()
        assert await done(*words) == ""
    for path in tree.rglob("*"):
        copied = tmp_path / "copy" / path.relative_to(tree)
        assert copied.is_symlink() == path.is_symlink()
        assert copied.lstat().st_mode == path.lstat().st_mode
        if path.is_file():
            assert copied.read_bytes() == path.read_bytes()


@requirement("cli/files:cp")
async def test_what_is_left_out_is_said(server, tmp_path, tree):
    os.mkfifo(tree / "fifo")
    finished = await run("cp", "-r", tree, f"{server.url}:{tmp_path}/there")
    assert finished.status == 0
    assert finished.stderr == (
        "Warning: fifo: skipped, because it is neither a file, a directory nor a link\n"
    )


@requirement("cli/files:errors")
async def test_what_cannot_be_copied_is_said_and_the_rest_copied(server, tmp_path, tree):
    (tmp_path / "there" / "tree" / "file").mkdir(parents=True)
    finished = await run("cp", "-r", tree, f"{server.url}:{tmp_path}/there")
    assert finished.status == 1
    assert finished.stderr.splitlines() == [
        f"Error: {tree}/file: is a directory where it should go",
        f"Error: {tree}: not everything was copied (1 problem)",
    ]
    assert (tmp_path / "there" / "tree" / "sub" / "inner.py").exists()


@requirement("cli/files:dry-run")
async def test_a_dry_run_copies_nothing(server, tmp_path, tree):
    target = f"{server.url}:{tmp_path}/new/there"
    expected = ["./", ".hidden", "file", "link", "sub/", "sub/empty/", "sub/inner.py"]
    assert (await done("cp", "-r", "--dry-run", tree, target)).splitlines() == expected
    back = await done("cp", "-r", "--dry-run", f"{server.url}:{tree}", tmp_path / "back")
    assert back.splitlines() == expected
    assert os.listdir(tmp_path) == ["tree"]


@requirement("cli/files:progress")
async def test_a_terminal_sees_how_far_it_is(server, tmp_path):
    with open(tmp_path / "big", "wb") as file:
        file.truncate(300 * MIB)
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *OURS, "cp", tmp_path / "big", f"{server.url}:{tmp_path}/there", stderr=theirs
    )
    os.close(theirs)
    seen = bytearray()

    def read() -> None:
        try:
            while data := os.read(ours, 65536):
                seen.extend(data)
        except OSError:
            # No program has the terminal open any more.
            return

    async with asyncio.timeout(PATIENCE):
        await asyncio.to_thread(read)
        assert await process.wait() == 0
    os.close(ours)
    lines = seen.decode().split("\r")
    assert "copied 1 file: 300.0 MiB in " in lines[-2]
    assert any("% [" in line and " of 300.0 MiB" in line and "/s" in line for line in lines)


@requirement("cli/files:progress")
def test_how_progress_looks():
    at = Progress(files=1, bytes=3 * MIB, total_files=4, total_bytes=12 * MIB, kept_bytes=MIB)
    assert render(at, 2.0, width=100) == (
        " 25% [###.........] 3.0 MiB of 12.0 MiB  1/4 files  1.0 MiB/s  0:09 left"
    )
    assert render(at, 2.0, width=70) == (
        " 25% 3.0 MiB of 12.0 MiB  1/4 files  1.0 MiB/s  0:09 left"
    )
    assert render(at, 2.0, width=10) == " 25% 3.0 "
    assert render(Progress(), 0.0, width=80).startswith("  0% [")
    assert [size(n) for n in (0, 1023, 1024, 1536 * MIB)] == ["0 B", "1023 B", "1.0 KiB", "1.5 GiB"]
    assert [duration(n) for n in (0.4, 61, 3723)] == ["0:00", "1:01", "1:02:03"]


@requirement("cli/files:progress")
def test_the_line_is_drawn_now_and_then_and_goes_away():
    import io

    now = [0.0]
    stream = io.StringIO()
    stream.fileno = lambda: -1  # type: ignore[method-assign]
    line = progress_bar.ProgressLine(stream, lambda: now[0])
    for _ in range(100):
        now[0] += 0.01
        line.update(Progress(total_bytes=1))
    assert 9 <= stream.getvalue().count("\r") <= 11
    line.clear()
    assert stream.getvalue().endswith("\r\x1b[K")
