"""Starts the helpers of sandboxed file requests, confined like commands and by the keeper."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Mapping

from exec_server.errors import InternalError
from exec_server.files.confined.helper_pool import Started
from exec_server.files.confined.interpreter import PASSED_ON, arguments
from exec_server.process.spawn import Launch, Spawner
from exec_server.sandbox.launch import ConfinedCommand, RequestedCommand, confine
from exec_server.sandbox.model import Plan, Unenforceable

# The size of a failed helper's last words that a client is told.
_LAST_WORDS_BYTES = 4096


class FileHelpers:
    """Starts helpers with the few variables of *env* that they need."""

    def __init__(self, spawner: Spawner, env: Mapping[str, str]) -> None:
        self._spawner = spawner
        self._env = {os.fsencode(k): os.fsencode(env[k]) for k in PASSED_ON if k in env}

    async def start(self, plan: Plan) -> Started:
        """Start a helper that is confined by *plan*. Raises RpcError."""
        loop = asyncio.get_running_loop()
        argv = arguments(plan)
        command = RequestedCommand(argv[0], argv, dict(self._env), b"/", is_tty=False)
        try:
            # This reads the file system, and may have to try out the backends.
            confined = await loop.run_in_executor(None, confine, command, plan)
        except (OSError, Unenforceable) as exc:
            raise InternalError(f"fs sandbox helper failed: {exc}") from exc
        running = Running(self._spawner)
        spawned = await self._spawner.spawn(_launch(confined), running.on_exit)
        stdout, stderr, stdin = spawned.fds
        os.close(stdout)
        running.take(spawned.pid, stderr)
        return Started(socket.socket(fileno=stdin), running)


class Running:
    """The process of a helper; *ended* gets its exit status and its last words."""

    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner
        self._pid: int | None = None
        self._stderr: int | None = None
        self._status: int | None = None
        self._reason: str | None = None
        self._has_ended = False
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def take(self, pid: int, stderr: int) -> None:
        os.set_blocking(stderr, False)
        self._pid, self._stderr = pid, stderr
        if self._has_ended:
            self._tell()

    def kill(self) -> None:
        if self._pid is not None and not self._has_ended:
            self._spawner.signal_group(self._pid, signal.SIGKILL)

    def discard(self) -> None:
        self.kill()
        if self._stderr is not None:
            os.close(self._stderr)
            self._stderr = None

    def on_exit(self, status: int | None, reason: str | None = None, *facts: object) -> None:
        self._status, self._has_ended = status, True
        self._reason = reason
        # The process may end before its descriptors have arrived.
        if self._stderr is not None:
            self._tell()

    def _tell(self) -> None:
        assert self._stderr is not None
        try:
            said = os.read(self._stderr, _LAST_WORDS_BYTES)
        except BlockingIOError:
            said = b""
        text = self._reason or said.decode("utf-8", "replace").strip()
        self.ended.set_result(f"fs sandbox helper failed with status {self._how()}: {text}")

    def _how(self) -> str:
        if self._status is None:
            return "unknown"
        code = os.waitstatus_to_exitcode(self._status)
        return f"exit status: {code}" if code >= 0 else f"signal: {-code}"


def _launch(confined: ConfinedCommand) -> Launch:
    return Launch(
        confined.program,
        confined.argv,
        confined.env,
        b"/",
        size=None,
        wants_stdin="socket",
        fence=confined.fence,
        fds=confined.fds,
    )
