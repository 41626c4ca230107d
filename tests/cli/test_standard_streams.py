"""Commands and servers whose standard streams are closed, full or without a reader."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.requirements import requirement
from tests.support.cli import Finished, finished
from tests.support.leaks import eventually
from tests.support.servers import OURS
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop

FULL = "Error: standard output: No space left on device\n"
CLOSED = "Error: standard output: Bad file descriptor\n"


async def shell(words: list[str], redirections: str) -> Finished:
    """`exec-server WORDS...` with the redirections of a shell."""
    process = await asyncio.create_subprocess_exec(
        "sh",
        "-c",
        f"exec {shlex.join([*OURS, *words])} {redirections}",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        stdout, stderr = await process.communicate()
    assert process.returncode is not None
    return Finished(process.returncode, stdout, stderr)


@requirement("cli/streams:closed")
@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
async def test_a_closed_input_or_error_stream_is_no_obstacle(server, tmp_path: Path, closed: str):
    (tmp_path / "file").touch()
    done = await shell(["run", server.url, "--", "sh", "-c", "cat; echo hi"], closed)
    assert (done.status, done.stdout, done.stderr) == (0, b"hi\n", "")
    done = await shell(["ls", f"{server.url}:{tmp_path}"], closed)
    assert (done.status, done.stdout, done.stderr) == (0, b"file\n", "")


@requirement("cli/streams:closed")
@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "<&- >&- 2>&-"])
async def test_a_closed_output_fails_only_what_writes(server, closed: str):
    done = await shell(["run", server.url, "--", "echo", "hi"], closed)
    assert (done.status, done.stderr) == (1, "" if "2>" in closed else CLOSED)
    done = await shell(["run", server.url, "--", "true"], closed)
    assert (done.status, done.stderr) == (0, "")
    done = await shell(["--version"], closed)
    assert (done.status, done.stderr) == (1, "" if "2>" in closed else CLOSED)


@requirement("cli/streams:closed")
@pytest.mark.parametrize("redirections", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full"])
async def test_a_server_serves_whatever_its_streams_are(tmp_path: Path, redirections: str):
    path = tmp_path / "socket"
    words = shlex.join([*OURS, "--listen", f"unix://{path}"])
    serving = subprocess.Popen(
        ["sh", "-c", f"exec {words} {redirections}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await eventually(path.exists)
        done = await shell(["run", f"unix://{path}", "--", "sh", "-c", "cat; echo hi"], "")
        assert (done.status, done.stdout) == (0, b"hi\n")
    finally:
        serving.terminate()
        assert serving.wait(PATIENCE) == 0


@requirement("cli/streams:full")
@pytest.mark.parametrize(
    "words",
    [
        ["run", "URL", "--", "echo", "hi"],
        ["run", "URL", "--", "seq", "100000"],
        ["run", "-o", "json", "URL", "--", "echo", "hi"],
        ["ls", "URL:/"],
        ["ls", "-o", "json", "URL:/"],
        ["cat", "URL:/etc/passwd"],
        ["env"],
        ["ps", "-o", "json"],
        ["--help"],
        ["run", "--help"],
        ["--version"],
        ["completion", "bash"],
    ],
)
async def test_a_full_disk_is_an_error(server, home: Path, words: list[str]):
    words = [word.replace("URL", server.url) for word in words]
    done = await shell(words, ">/dev/full")
    assert (done.status, done.stderr) == (1, FULL)


@requirement("cli/streams:full")
async def test_messages_that_cannot_be_written_are_dropped(server):
    done = await shell(["ls", f"{server.url}:/no/such/file"], "2>/dev/full")
    assert done.status == 1
    done = await shell(["no-such-command"], "2>/dev/full")
    assert done.status == 2
    # Output of the command on stderr is not a message of this program.
    done = await shell(["run", server.url, "--", "sh", "-c", "echo hi >&2"], "2>/dev/full")
    assert done.status == 1


@requirement("cli/streams:pipe")
@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["ls", "URL:/"]])
async def test_a_reader_that_leaves_ends_the_program_quietly(server, words: list[str]):
    words = [word.replace("URL", server.url) for word in words]
    reader, writer = os.pipe()
    os.close(reader)
    process = await asyncio.create_subprocess_exec(
        *OURS, *words, stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE):
        assert await process.stderr.read() == b""
        assert await process.wait() == 141


@requirement("cli/streams:interrupted")
async def test_an_interrupt_while_modules_are_imported_shows_no_traceback(tmp_path):
    # A module that is imported early says so, and waits.
    (tmp_path / "sitecustomize.py").write_text(
        "import builtins, os, signal\n"
        "real = builtins.__import__\n"
        "def slow(name, *rest, **more):\n"
        "    if name == 'exec_server.cli.main':\n"
        "        import exec_server.cli\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(name, *rest, **more)\n"
        "builtins.__import__ = slow\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = await finished("ps", env=env)
    assert (done.status, done.stdout, done.stderr) == (-signal.SIGINT, b"", "")
