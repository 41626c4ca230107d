"""What a server says to a person who has just started it."""

from __future__ import annotations

import asyncio
import gc
import os
import pty
import sys
import sysconfig
from pathlib import Path

import pytest

from exec_server.cli.serve import serve_command
from exec_server.cli.serve.serve_options import parse_serve
from tests.requirements import requirement

pytestmark = pytest.mark.one_loop

PROGRAM = Path(sysconfig.get_path("scripts"), "exec-server")
ELSEWHERE = {"PATH": "/usr/bin:/bin"}


async def read_line_with(text: str, fd: int) -> str:
    """The first line of a terminal's output that holds *text*."""
    loop, seen = asyncio.get_running_loop(), b""
    while text.encode() not in seen or not seen.endswith(b"\n"):
        readable = loop.create_future()
        loop.add_reader(fd, readable.set_result, None)
        try:
            await readable
        finally:
            loop.remove_reader(fd)
        seen += os.read(fd, 4096)
    return next(line for line in seen.decode().splitlines() if text in line)


@requirement("cli:hint")
@pytest.mark.parametrize("command", [[str(PROGRAM)], [sys.executable, "-m", "exec_server"]])
async def test_the_command_in_the_hint_runs_where_the_program_is_not_on_the_path(command):
    ours, its = pty.openpty()
    server = await asyncio.create_subprocess_exec(*command, stdout=its, stderr=its, env=ELSEWHERE)
    os.close(its)
    try:
        async with asyncio.timeout(60):
            hint = (await read_line_with("try it:", ours)).partition("try it:")[2]
            tried = await asyncio.create_subprocess_shell(
                hint, stdout=asyncio.subprocess.PIPE, env=ELSEWHERE
            )
            output, _ = await tried.communicate()
    finally:
        server.terminate()
        await server.wait()
        os.close(ours)
    assert (tried.returncode, output.decode().split()[0]) == (0, os.uname().sysname)


@requirement("cli:hint")
def test_a_program_on_the_path_is_called_by_its_name(monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(PROGRAM)])
    monkeypatch.setenv("PATH", str(PROGRAM.parent))
    assert serve_command._program() == "exec-server"


@requirement("cli:hint")
@pytest.mark.parametrize(
    ("words", "url", "hint"),
    [
        ([], "ws://h", "run ws://h -- uname"),
        (["--principals", "default"], "ws://h", "run --token-file PATH ws://h -- uname"),
        (["--principals", "default"], "unix:///s", "run unix:///s -- uname"),
        (
            ["--ws-auth", "capability-token", "--ws-token-file", "/t"],
            "ws://h",
            "stop --token-file PATH ws://h",
        ),
    ],
)
def test_the_hint_names_the_token_that_a_server_asks_for(monkeypatch, capsys, words, url, hint):
    options = parse_serve(words)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    # The tests that follow in this process need the collector.
    monkeypatch.setattr(gc, "freeze", lambda: None)
    needs_token = serve_command._needs_token(options, url)
    serve_command._announce(url, state=None, needs_token=needs_token)
    assert hint in capsys.readouterr().err
