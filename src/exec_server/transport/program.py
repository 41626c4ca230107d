"""A server that is a child process of ours; messages are lines on its stdin and stdout."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, cast

from exec_server.errors import ConfigurationError
from exec_server.limits import Limits
from exec_server.transport.connection import Connection, Identity, Receiver
from exec_server.transport.lines import LineBuffer, LineTooLong


async def dial_program(
    argv: Sequence[str],
    *,
    limits: Limits,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> Connection:
    """Start *argv* in a process group of its own; its stderr is ours.

    *env* is added to our own environment. Raises ConfigurationError if the program does not start.
    When the connection ends, the group gets SIGTERM, and SIGKILL after *limits.program_kill_delay*.
    """
    loop = asyncio.get_running_loop()
    try:
        _, connection = await loop.subprocess_exec(
            lambda: ProgramConnection(limits=limits),
            *argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None,
            env=None if env is None else {**os.environ, **env},
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as exc:
        raise ConfigurationError(f"cannot run `{argv[0]}`: {exc.strerror}") from exc
    return connection


class ProgramConnection(asyncio.SubprocessProtocol):
    """A Connection to a program of ours, one message a line."""

    malformed_prefix = "failed to parse JSON-RPC message from exec-server stdio: "
    transport_name = "stdio"
    principal: str | None = None
    identity: Identity | None = None
    peer_name = "stdio"

    def __init__(self, *, limits: Limits) -> None:
        self._limits = limits
        self._lines = LineBuffer(max_bytes=limits.message_bytes)
        self._receiver: Receiver | None = None
        self._is_closing = False
        self._is_reading_paused = False
        self._is_lost = False
        self._timer: asyncio.TimerHandle | None = None

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._loop = asyncio.get_running_loop()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self._is_closing:
            return
        try:
            for line in self._lines.feed(data):
                if not line.isascii():
                    line.decode()
                if self._receiver is not None and not self._is_closing:
                    self._receiver.message_received(line)
        except (LineTooLong, UnicodeDecodeError):
            self.close()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        # Without stdout the program cannot answer, and without stdin it gets no requests.
        self.close()

    def process_exited(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport.close()
        self._lose()

    def pause_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.writing_paused()

    def resume_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.writing_resumed()

    # The contract.

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver
        if self._is_lost:
            self._loop.call_soon(self._tell_lost)

    @property
    def unsent_bytes(self) -> int:
        return int(self._pipe(0).get_write_buffer_size()) if self._is_open(0) else 0

    def send(self, *parts: bytes) -> None:
        if self._is_open(0):
            self._pipe(0).write(b"".join((*parts, b"\n")))

    def close(self, reason: str = "", *, is_violation: bool = False) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        with contextlib.suppress(OSError):
            self._pipe(0).close()
        self._signal(signal.SIGTERM)
        self._timer = self._loop.call_later(self._limits.program_kill_delay, self._kill)

    def abort(self) -> None:
        self._is_closing = True
        self._kill()

    def pause_reading(self) -> None:
        if self._is_open(1) and not self._is_reading_paused:
            self._is_reading_paused = True
            self._pipe(1).pause_reading()

    def resume_reading(self) -> None:
        if self._is_open(1) and self._is_reading_paused:
            self._is_reading_paused = False
            self._pipe(1).resume_reading()

    def _is_open(self, fd: int) -> bool:
        # A program that has just ended closes its pipes before the event loop says so.
        return not self._is_closing and not self._pipe(fd).is_closing()

    def _pipe(self, fd: int) -> Any:
        return self._transport.get_pipe_transport(fd)

    # The end.

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, signum: int) -> None:
        # After the program is reaped, its process id may belong to another one.
        if self._transport.get_returncode() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._transport.get_pid(), signum)

    def _lose(self) -> None:
        self._is_closing = True
        self._is_lost = True
        self._tell_lost()

    def _tell_lost(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.connection_lost()
