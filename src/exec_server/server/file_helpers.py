"""Starts the helpers of sandboxed file requests, confined like commands and by the keeper."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Hashable, Mapping
from functools import partial
from typing import NamedTuple

from exec_server.errors import InternalError
from exec_server.files.confined.helper_pool import Started, Starter
from exec_server.files.confined.interpreter import HIDDEN, PASSED_ON, arguments
from exec_server.process.spawn import Launch, Spawner, SpawnFailed
from exec_server.process.start_terms import UserAccount
from exec_server.sandbox.launch import ConfinedCommand, RequestedCommand, confine
from exec_server.sandbox.model import Plan, Unenforceable
from exec_server.sandbox.placeholders import Folder
from exec_server.sandbox.user_reach import for_user

# The size of a failed helper's last words that a client is told.
_LAST_WORDS_BYTES = 4096
_READ_BYTES = 65536


class FilesOwner(NamedTuple):
    """Whose file calls a helper does."""

    principal: str
    # The user that they are done as; None for the server's own.
    account: UserAccount | None


class FileHelpers:
    """Starts helpers with the few variables of *env* that they need."""

    def __init__(self, spawner: Spawner, env: Mapping[str, str]) -> None:
        self._spawner = spawner
        self._env = {os.fsencode(k): os.fsencode(env[k]) for k in PASSED_ON if k in env}

    def starter_of(self, owner: Hashable) -> Starter:
        """Starts helpers for *owner*, which is a FilesOwner."""
        assert isinstance(owner, FilesOwner)
        return partial(self.start, account=owner.account)

    async def start(self, plan: Plan, account: UserAccount | None = None) -> Started:
        """Start a helper that is confined by *plan*, as *account*. Raises RpcError."""
        loop = asyncio.get_running_loop()
        if account is not None:
            plan = for_user(plan, account.uid, account.groups)
        argv = arguments(plan)
        env = dict(self._env)
        if account is not None:
            # Its answers must not be those of another process of the same user.
            env[os.fsencode(HIDDEN)] = b"1"
        command = RequestedCommand(argv[0], argv, env, b"/", is_tty=False)
        try:
            # This reads the file system, and may have to try out the backends.
            confining = partial(confine, folder=Folder(is_shared=account is not None))
            confined = await loop.run_in_executor(None, confining, command, plan)
        except (OSError, Unenforceable) as exc:
            raise InternalError(f"fs sandbox helper failed: {exc}") from exc
        running = Running(self._spawner)
        launch = _launch(confined)
        if account is not None:
            launch = launch._replace(fence=account.around(launch.fence))
        try:
            spawned = await self._spawner.spawn(launch, running.on_exit)
        except SpawnFailed as exc:
            raise not_started(exc, argv[0], account) from exc
        stdout, stderr, stdin = spawned.fds
        os.close(stdout)
        running.take(spawned.pid, stderr)
        return Started(socket.socket(fileno=stdin), running)


def not_started(exc: SpawnFailed, program: bytes, account: UserAccount | None) -> InternalError:
    """The error of a helper or an agent that could not be started, as *account*."""
    if account is None:
        return exc
    return InternalError(
        f"fs sandbox helper failed: the user `{account.name}` cannot run {os.fsdecode(program)}, "
        f"which has to be readable by all users: {exc.message}"
    )


class Running:
    """The process of a helper; *ended* gets its exit status and its last words."""

    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner
        self._pid: int | None = None
        self._stderr: int | None = None
        self._status: int | None = None
        self._reason: str | None = None
        self._has_ended = False
        self._said = b""
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = self._loop.create_future()

    @property
    def exit_code(self) -> int | None:
        """Its exit status, or the signal that ended it as a negative number; None if unknown."""
        return None if self._status is None else os.waitstatus_to_exitcode(self._status)

    @property
    def last_words(self) -> str:
        """The first part of what it wrote to stderr, or why it was killed."""
        return self._reason or self._said.decode("utf-8", "replace").strip()

    def take(self, pid: int, stderr: int, *, is_talkative: bool = False) -> None:
        """A program that *is_talkative* may write more to stderr than a pipe takes."""
        os.set_blocking(stderr, False)
        self._pid, self._stderr = pid, stderr
        if self._has_ended:
            self._tell()
        elif is_talkative:
            self._loop.add_reader(stderr, self._listen)

    def kill(self) -> None:
        if self._pid is not None and not self._has_ended:
            self._spawner.signal_group(self._pid, signal.SIGKILL)

    def discard(self) -> None:
        self.kill()
        if self._stderr is not None:
            self._loop.remove_reader(self._stderr)
            os.close(self._stderr)
            self._stderr = None

    def on_exit(self, status: int | None, reason: str | None = None, *facts: object) -> None:
        self._status, self._has_ended = status, True
        self._reason = reason
        # The process may end before its descriptors have arrived.
        if self._stderr is not None:
            self._tell()

    def _tell(self) -> None:
        self._listen()
        text = f"fs sandbox helper failed with status {self._how()}: {self.last_words}"
        self.ended.set_result(text)

    def _listen(self) -> None:
        assert self._stderr is not None
        try:
            said = os.read(self._stderr, _READ_BYTES)
        except BlockingIOError:
            return
        if not said:
            self._loop.remove_reader(self._stderr)
        self._said += said[: max(_LAST_WORDS_BYTES - len(self._said), 0)]

    def _how(self) -> str:
        code = self.exit_code
        if code is None:
            return "unknown"
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
