"""`exec-server cp`, `ls` and the other commands for files, from the outside."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from exec_server.cli import main
from exec_server.cli.files import progress_bar
from exec_server.cli.files.file_command import readable
from exec_server.cli.files.progress_bar import duration, render, size
from exec_server.cli.files.targets import Target, parse_target
from exec_server.client.files.transfer.progress import Progress
from exec_server.server.authentication import CapabilityToken
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.fake_server import Talk, fake_server
from tests.support.servers import OURS
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop

MIB = 1024 * 1024
COMMANDS = ["cat", "cp", "find", "ls", "mkdir", "rm", "stat", "tree"]


class Finished:
    def __init__(self, status: int, stdout: bytes, stderr: bytes) -> None:
        self.status = status
        self.stdout = os.fsdecode(stdout)
        self.stderr = stderr.decode()


async def run(*words: Any, **options: Any) -> Finished:
    process = await asyncio.create_subprocess_exec(
        *OURS,
        *map(os.fspath, words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            stdout, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Finished(process.returncode, stdout, stderr)


async def done(*words: Any, **options: Any) -> str:
    """The output of a command that must succeed and print no error."""
    finished = await run(*words, **options)
    assert (finished.status, finished.stderr) == (0, "")
    return finished.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A few files of all kinds."""
    root = tmp_path / "tree"
    (root / "sub" / "empty").mkdir(parents=True)
    (root / "file").write_bytes(b"content\n")
    (root / "file").chmod(0o640)
    (root / ".hidden").write_bytes(b"")
    (root / "sub" / "inner.py").write_bytes(b"print()\n")
    os.symlink("file", root / "link")
    os.utime(root / "file", (1_600_000_000, 1_600_000_000.5))
    return root


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


# Looking.


@requirement("cli/files:ls")
async def test_ls(server, tree):
    assert (await done("ls", f"{server.url}:{tree}")).splitlines() == ["file", "link", "sub"]
    assert (await done("ls", "-a", f"{server.url}:{tree}")).splitlines()[0] == ".hidden"
    lines = (await done("ls", "-l", f"{server.url}:{tree}")).splitlines()
    assert lines[0].startswith("-rw-r-----           8 2020-09-1")
    assert lines[1].startswith("lrwxrwxrwx ") and lines[1].endswith(" link -> file")
    assert await done("ls", f"{server.url}:{tree}/file") == "file\n"
    found = json.loads(
        await done("ls", "-o", "json", f"{server.url}:{tree}", f"{server.url}:{tree}/sub")
    )
    assert found[0] == {
        "path": f"{tree}/file",
        "type": "file",
        "size": 8,
        "mode": "0640",
        "modifiedAtMs": 1_600_000_000_500,
    }
    assert [entry["type"] for entry in found] == [
        *("file", "symlink", "directory"),
        *("directory", "file"),
    ]
    assert found[1]["target"] == "file"


@requirement("cli/files:ls")
async def test_ls_of_the_servers_own_directory(server):
    names = sorted(name for name in os.listdir() if not name.startswith("."))
    assert (await done("ls", server.url)).splitlines() == names


@requirement("cli/files:ls")
async def test_tree(server, tree):
    assert (await done("tree", f"{server.url}:{tree}")).splitlines() == [
        str(tree),
        "├── file",
        "├── link -> file",
        "└── sub",
        "    ├── empty",
        "    └── inner.py",
        "",
        "2 directories, 3 files",
    ]
    found = json.loads(await done("tree", "-L", "1", "-o", "json", f"{server.url}:{tree}"))
    assert (found["path"], found["type"]) == (str(tree), "directory")
    assert [entry["path"] for entry in found["entries"]] == [
        f"{tree}/{name}" for name in ("file", "link", "sub")
    ]
    assert found["entries"][2]["entries"] == []


@requirement("cli/files:ls")
async def test_find(server, tree):
    async def find(*words: str) -> list[str]:
        found = await done("find", *words, f"{server.url}:{tree}")
        return [os.path.relpath(path, tree) for path in found.splitlines()]

    assert sorted(await find()) == sorted(
        [".", ".hidden", "file", "link", "sub", "sub/empty", "sub/inner.py"]
    )
    assert await find("--name", "*.py") == ["sub/inner.py"]
    assert await find("--type", "l") == ["link"]
    assert sorted(await find("-t", "d", "-t", "l", "--max-depth", "1")) == [".", "link", "sub"]
    (found,) = json.loads(await done("find", "-o", "json", "-n", "inn*", f"{server.url}:{tree}"))
    assert found["path"] == f"{tree}/sub/inner.py"
    assert await done("find", "-0", "-n", "file", f"{server.url}:{tree}") == f"{tree}/file\0"


@requirement("cli/files:ls")
async def test_stat(server, tree):
    lines = (await done("stat", f"{server.url}:{tree}/file")).splitlines()
    assert [line.split(": ")[0].strip() for line in lines] == [
        *("path", "type", "size", "mode", "modified"),
    ]
    assert lines[3] == "    mode: 0640 (-rw-r-----)"
    (found,) = json.loads(await done("stat", "-o", "json", f"{server.url}:{tree}/link"))
    assert (found["type"], found["target"]) == ("symlink", "file")
    missing = await run("stat", f"{server.url}:{tree}/missing", f"{server.url}:{tree}/sub")
    assert missing.status == 1 and f"path: {tree}/sub" in missing.stdout
    assert missing.stderr == f"Error: {server.url}:{tree}/missing: No such file or directory\n"


@requirement("cli/files:ls")
async def test_names_that_are_not_text_are_listed(server, tmp_path):
    (tmp_path / "odd\udcff").write_bytes(b"")
    assert await done("ls", f"{server.url}:{tmp_path}") == "odd\udcff\n"
    (found,) = json.loads(await done("ls", "-o", "json", f"{server.url}:{tmp_path}"))
    assert "path" not in found and found["pathBase64"]


@requirement("cli/files:cat")
async def test_cat(server, tmp_path, tree):
    data = os.urandom(3 * MIB)
    (tmp_path / "big").write_bytes(data)
    finished = await run("cat", f"{server.url}:{tmp_path}/big", f"{server.url}:{tree}/file")
    assert os.fsencode(finished.stdout) == data + b"content\n"
    cat = f"{' '.join(OURS)} cat {server.url}:{tmp_path}/big"
    script = f"{cat} | head -c 5 | wc -c; echo ${{PIPESTATUS[0]}}"
    process = await asyncio.create_subprocess_exec("bash", "-c", script, stdout=subprocess.PIPE)
    async with asyncio.timeout(PATIENCE):
        stdout, _ = await process.communicate()
    assert stdout == b"5\n141\n"


# Changing.


@requirement("cli/files:rm", "cli/files:dry-run")
async def test_rm_and_mkdir(server, tmp_path, tree):
    await done("mkdir", f"{server.url}:{tmp_path}/new")
    refused = await run("mkdir", f"{server.url}:{tmp_path}/new")
    assert (refused.status, refused.stderr) == (
        1,
        f"Error: {server.url}:{tmp_path}/new: File exists\n",
    )
    await done("mkdir", "-p", f"{server.url}:{tmp_path}/new", f"{server.url}:{tmp_path}/new/er/est")
    assert (tmp_path / "new" / "er" / "est").is_dir()

    os.symlink("nowhere", tree / "dangling")
    await done("rm", f"{server.url}:{tree}/file", f"{server.url}:{tree}/dangling")
    assert not (tree / "file").exists() and not os.path.lexists(tree / "dangling")
    refused = await run(
        "rm", f"{server.url}:{tree}", f"{server.url}:{tree}/file", f"{server.url}:/"
    )
    assert refused.status == 1
    assert refused.stderr.splitlines() == [
        f"Error: {server.url}:{tree}: is a directory; use -r to remove it with everything in it",
        f"Error: {server.url}:{tree}/file: No such file or directory",
        f"Error: {server.url}:/: the root directory is not removed",
    ]
    await done("rm", "-f", f"{server.url}:{tree}/file")
    listed = await done("rm", "-r", "--dry-run", f"{server.url}:{tree}")
    assert sorted(listed.splitlines()) == sorted(
        f"{tree}{name}" for name in ("", "/.hidden", "/link", "/sub", "/sub/empty", "/sub/inner.py")
    )
    assert tree.exists()
    await done("rm", "-r", f"{server.url}:{tree}")
    assert not tree.exists()


# Being refused.


@requirement("cli/files:errors")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["cp", "a"], "<DST>"),
        (["cp", "a", "b"], "one side must be on a server"),
        (["cp", "--verify", "luck", "a", "ws://b:/x"], "invalid choice"),
        (["ls", "/etc"], "'/etc' is not on a server: expected SERVER:/PATH"),
        (["rm"], "required"),
        (["find", "--type", "x", "ws://b:/x"], "invalid choice"),
        (["cat", "--token", "a", "--token-file", "b", "ws://b:/x"], "cannot be used with"),
        (["tree", "ws://a:/x", "ws://a:/x"], "unrecognized arguments"),
    ],
)
def test_wrong_command_lines_are_told(capsys, words, text):
    with pytest.raises(SystemExit) as ended:
        main.main(words)
    captured = capsys.readouterr()
    assert ended.value.code == 2 and captured.out == ""
    assert captured.err.startswith("error: ") and text in captured.err
    assert f"Usage: exec-server {words[0]} " in captured.err


@requirement("cli/files:errors")
async def test_errors_are_told(server, tmp_path):
    for words, text in [
        (("ls", "ws://127.0.0.1:1:/"), "failed to connect"),
        (("cp", tmp_path / "missing", f"{server.url}:/tmp/"), "missing: No such file or directory"),
        (("cp", tmp_path, f"{server.url}:{tmp_path}/x"), "is a directory; use -r"),
        (("cat", f"{server.url}:{tmp_path}"), "is not a file"),
        (("ls", "--token-file", tmp_path / "none", server.url), "cannot read"),
    ]:
        finished = await run(*words)
        assert finished.status == 1 and finished.stdout == ""
        assert finished.stderr.startswith("Error: ") and text in finished.stderr
        assert finished.stderr.count("\n") == 1


@requirement("cli/files:token")
async def test_tokens(tmp_path):
    (tmp_path / "token").write_text("a-long-and-secret-token\n")
    authenticator = CapabilityToken(hashlib.sha256(b"a-long-and-secret-token").digest())
    async with serve(authenticator=authenticator) as server:
        target = f"{server.url}:{tmp_path}"
        assert await done("ls", "--token", "a-long-and-secret-token", target) == "token\n"
        assert await done("ls", "--token-file", tmp_path / "token", target) == "token\n"
        env = {**os.environ, "EXEC_SERVER_TOKEN": "a-long-and-secret-token"}
        assert await done("ls", target, env=env) == "token\n"
        refused = await run("ls", target)
        assert refused.status == 1 and "401" in refused.stderr


@requirement("cli/files:interrupt")
async def test_an_interrupt_ends_it(tmp_path):
    asked = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.receive()
        asked.set()
        await talk.gone()

    async with fake_server(script) as url:
        process = await asyncio.create_subprocess_exec(
            *OURS, "cat", f"{url}:/x", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        async with asyncio.timeout(PATIENCE):
            await asked.wait()
            process.send_signal(signal.SIGINT)
            assert await process.communicate() == (b"", b"")
        assert process.returncode == 130


@requirement("cli/files:interrupt", "client/transfer:interrupted")
@pytest.mark.parametrize("direction", ["up", "down"])
async def test_an_interrupted_copy_is_not_taken_for_a_complete_one(server, tmp_path, direction):
    with open(tmp_path / "big", "wb") as file:
        file.truncate(8 * 1024 * MIB)
    there = tmp_path / "there"
    there.mkdir()
    names = (f"{tmp_path}/big", f"{there}/big")
    remote = [f"{server.url}:{name}" for name in names]
    words = (names[0], remote[1]) if direction == "up" else (remote[0], names[1])
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(*OURS, "cp", *words, stderr=theirs)
    os.close(theirs)
    seen = bytearray()

    def read() -> None:
        """Until some of it is there, which the line tells."""
        while b"MiB of 8.0 GiB" not in seen:
            seen.extend(os.read(ours, 65536))

    async with asyncio.timeout(PATIENCE):
        await asyncio.to_thread(read)
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
    os.close(ours)
    (left,) = os.listdir(there)
    assert left.startswith("big.") and left.endswith(".part")


@requirement("cli/files:help")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches(capsys, command):
    with pytest.raises(SystemExit) as ended:
        main.main([command, "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert text.startswith(f"Usage: exec-server {command} ")
    assert "examples:" in text and f"exec-server {command} " in text.split("examples:")[1]
    assert "EXEC_SERVER_TOKEN" in text and "SERVER:/PATH" in text


@requirement("cli/files:help")
def test_the_servers_help_names_them(capsys):
    with pytest.raises(SystemExit):
        main.main(["--help"])
    text = capsys.readouterr().out
    assert "cp SRC... DST" in text and all(command in text for command in COMMANDS)


@requirement("cli/files:terminal-safe")
def test_names_cannot_act_on_a_terminal():
    assert readable("a\x1b[2Jb\r\n\x9bc\udcffé") == "a?[2Jb???c?é"
