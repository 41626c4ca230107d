"""What an operator sees on stderr although only errors are logged."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pty
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from exec_server.cli.log_setup import NoticeFilter
from tests.requirements import requirement
from tests.support.leaks import eventually
from tests.support.servers import OURS
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.one_loop


@contextlib.asynccontextmanager
async def serving(*words: str, stderr: Any, **options: Any) -> AsyncIterator[str]:
    """A server with this stderr, and its URL."""
    process = await asyncio.create_subprocess_exec(
        *OURS, *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, **options
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            yield (await process.stdout.readline()).decode().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()


def _token_file(tmp_path: Path, mode: int) -> list[str]:
    token = tmp_path / "token"
    token.write_text("secret-token-of-the-server")
    token.chmod(mode)
    return ["--ws-auth", "capability-token", "--ws-token-file", str(token)]


def _shows(fd: int, text: bytes) -> bool:
    with contextlib.suppress(BlockingIOError):
        return text in os.read(fd, 65536)
    return False


async def _knock(url: str) -> bytes:
    """The answer to a login with a wrong token."""
    host, port = url.removeprefix("ws://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        b"Authorization: Bearer wrong\r\n\r\n"
    )
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@requirement("logs:notices")
async def test_a_log_file_shows_what_an_operator_must_know(tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        async with serving(*_token_file(tmp_path, 0o644), stderr=stderr) as url:
            for _ in range(3):
                assert b" 401 " in await _knock(url)
    lines = log.read_text().splitlines()
    assert [line for line in lines if "other users can read it" in line]
    refused = [line for line in lines if "invalid websocket bearer token" in line]
    assert len(refused) == 1 and "WARNING" in refused[0] and "127.0.0.1" in refused[0]
    assert len([line for line in lines if "serving as root" in line]) == (os.geteuid() == 0)
    assert "secret-token" not in log.read_text()


@requirement("logs:notices")
async def test_a_terminal_and_the_journal_show_them_too(tmp_path):
    near, far = pty.openpty()
    one, other = socket.socketpair()
    try:
        words = _token_file(tmp_path, 0o640)
        status = os.fstat(other.fileno())
        env = {**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        async with serving(*words, stderr=far), serving(*words, stderr=other, env=env):
            for fd in (near, one.fileno()):
                os.set_blocking(fd, False)
                await eventually(partial(_shows, fd, b"other users can read it"))
    finally:
        os.close(near)
        os.close(far)
        one.close()
        other.close()


@requirement("logs:notices")
@pytest.mark.parametrize("words", [(), ("--log-level", "error")])
async def test_a_program_with_a_pipe_sees_errors_only(tmp_path, words):
    process = await asyncio.create_subprocess_exec(
        *(*OURS, *words, *_token_file(tmp_path, 0o644)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        url = (await process.stdout.readline()).decode().strip()
        await _knock(url)
        process.terminate()
        _, told = await process.communicate()
    assert told == b""


@requirement("logs:notices")
@pytest.mark.parametrize("chosen", [{"RUST_LOG": "error"}, {"RUST_LOG": "off"}])
async def test_the_level_error_can_be_chosen(tmp_path, chosen):
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        words = _token_file(tmp_path, 0o644)
        async with serving(*words, stderr=stderr, env={**os.environ, **chosen}):
            pass
    assert log.read_text() == ""


@requirement("logs:notices")
def test_a_kind_is_shown_once_a_minute_with_the_number_of_the_others():
    now = 0.0
    passes = NoticeFilter(logging.ERROR, lambda: now)

    def record(level: int = logging.WARNING, **more: str) -> logging.LogRecord:
        return logging.makeLogRecord({"levelno": level, "msg": "no %s", "args": ("way",), **more})

    assert passes.filter(record(logging.ERROR))
    assert not passes.filter(record())
    assert passes.filter(record(notice="login"))
    assert passes.filter(record(notice="root"))
    assert not passes.filter(record(notice="login"))
    assert not passes.filter(record(notice="login"))
    now = 61.0
    shown = record(notice="login")
    assert passes.filter(shown) and shown.getMessage() == "no way (2 more since the last line)"
