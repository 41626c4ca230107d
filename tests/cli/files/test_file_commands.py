"""`exec-server ls`, `tree`, `find`, `stat`, `cat`, `mkdir` and `rm`, from the outside."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pty
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from exec_server.cli import main
from exec_server.cli.files.file_command import readable
from exec_server.server.authentication import CapabilityToken
from exec_server.server.serving import serve
from tests.cli.files.conftest import done, run
from tests.requirements import requirement
from tests.support.cli import running
from tests.support.fake_server import Talk, fake_server
from tests.support.servers import OURS
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop

MIB = 1024 * 1024
COMMANDS = ["cat", "cp", "find", "ls", "mkdir", "rm", "stat", "tree"]


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


@requirement("cli/find:names")
async def test_find_has_the_names_of_its_model(server, tree):
    where = f"{server.url}:{tree}"
    assert await done("find", where, "-name", "*.py") == f"{tree}/sub/inner.py\n"
    assert await done("find", where, "-type", "l", "-print") == f"{tree}/link\n"
    assert await done("find", "-maxdepth", "0", where, "-print0") == f"{tree}\0"


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
async def test_a_file_of_a_far_time_is_listed(server):
    far = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        (far / "far").write_text("x")
        os.utime(far / "far", (1, 99_999_999_999_999_999))
        if (far / "far").stat().st_mtime < 1e16:
            pytest.skip("the file system has no such time")
        assert "@99999999999999999 far" in await done("ls", "-l", f"{server.url}:{far}")
        assert "modified: @99999999999999999" in await done("stat", f"{server.url}:{far}/far")
    finally:
        shutil.rmtree(far)


@requirement("cli/files:ls")
@pytest.mark.parametrize("output", ["text", "json"])
async def test_a_very_deep_tree_is_told_with_what_to_do(server, tmp_path, output):
    deep = tmp_path
    for _ in range(4):
        deep = deep / "/".join("d" * 60)
        deep.mkdir(parents=True)
    told = await run("tree", "-o", output, f"{server.url}:{tmp_path}")
    assert told.status == 1 and "more than 200 levels" in told.stderr
    assert "Traceback" not in told.stderr
    told = await run("tree", "-o", output, "-L", "150", f"{server.url}:{tmp_path}")
    assert (told.status, told.stderr) == (0, "")


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
        (["cp", "a", "local"], "`local` is the name of a server: write `local:PATH`"),
        (["sync", "a", "local"], "`local` is the name of a server: write `local:PATH`"),
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
        async with running("cat", f"{url}:/x") as process, asyncio.timeout(PATIENCE):
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


# SRC and DST of copies that fail; U is on the server, and both sides have a file and a tree.
BAD_COPIES = [
    ("file", "U:file/x"),
    ("tree", "U:file/x"),
    ("tree", "U:file"),
    ("file", "U:none/x"),
    ("file", "U:none/"),
    ("U:file", "file/x"),
    ("U:tree", "file/x"),
    ("U:tree", "file"),
    ("U:file", "none/x"),
    ("U:file", "U:file/x"),
    ("U:file", "U:none/x"),
    ("U:tree", "U:file/x"),
    ("U:tree", "U:file"),
    ("file", "U:/etc/passwd/x"),
]


@requirement("cli/files:errors")
@pytest.mark.parametrize(("source", "destination"), BAD_COPIES)
async def test_a_copy_that_fails_names_both_sides(server, tmp_path, source, destination):
    (tmp_path / "file").write_text("x")
    (tmp_path / "tree").mkdir()
    words = [word.replace("U:", f"{server.url}:{tmp_path}/") for word in (source, destination)]
    options = ["-r"] if source.endswith("tree") else []
    failed = await run("cp", *options, *words, cwd=tmp_path)
    assert failed.status == 1
    first = failed.stderr.splitlines()[0]
    shown = words[1].rstrip("/")
    assert first.startswith(f"Error: {words[0]}: cannot be copied to {shown}"), first


# Commands for one file that fail, each with the path that is wrong.
BAD_PATHS = [
    *(
        (command, bad)
        for command in ("ls", "cat", "tree", "find", "stat")
        for bad in ("none", "file/x")
    ),
    *((command, bad) for command in ("rm", "rm -r") for bad in ("none", "file/x")),
    *(("mkdir", bad) for bad in ("file", "none/x", "file/x")),
    ("cat", "tree"),
    ("rm", "tree"),
    ("cp", "none"),
    ("cp", "file/x"),
    ("cp", "tree"),
    ("mkdir -p", "file/x"),
]


@requirement("cli/files:errors")
@pytest.mark.parametrize(("command", "bad"), BAD_PATHS)
async def test_a_command_that_fails_names_the_path(server, tmp_path, command, bad):
    (tmp_path / "file").write_text("x")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "inner").write_text("x")
    target = f"{server.url}:{tmp_path}/{bad}"
    rest = [str(tmp_path / "new")] if command == "cp" else []
    failed = await run(*command.split(), target, *rest)
    assert failed.status == 1
    assert failed.stderr.startswith(f"Error: {target}: ") and failed.stderr.count("\n") == 1
    assert "os error" not in failed.stderr
