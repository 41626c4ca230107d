"""The server's side of the keeper: start programs there, get their descriptors, hear of exits.

The module is long because every message to a keeper, and every answer, is made and read here.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast

import msgspec

from exec_server.errors import InternalError, InvalidRequest, RpcError
from exec_server.process.keeper_command import keeper_command
from exec_server.process.keeper_socket import KeeperSocket
from exec_server.process.keeping.kept_descriptors import close_all
from exec_server.process.keeping.process_trees import (
    below,
    parents_first,
    processes,
    signal_each,
)
from exec_server.process.keeping.tree_marks import mark_of
from exec_server.sandbox.placeholders import Folder

if TYPE_CHECKING:
    from exec_server.errors import StartPart

logger = logging.getLogger(__name__)


# What a keeper knows of an end, and what it has granted: plain values by their names.
Facts = dict[str, Any]
Granted = dict[str, tuple[float, str, str, str]]


class OnExit(Protocol):
    """Told of the exit of a program, of the reason if the keeper has killed it for one, and of what
    else the keeper knows of the end.
    """

    def __call__(
        self, status: int | None, reason: str | None = None, facts: Facts | None = None, /
    ) -> None: ...


# A mark is the server's number, then the session's, then the start's.
_BASE = (1 << 62) | ((1 << 14) - 1) << 48
_SESSION_SHIFT = 24
_SESSIONS = _STARTS = (1 << 24) - 1
_WHOLE = (1 << 63) - 1
# Without a keeper, a tree that keeps forking is killed so many times.
_ROUNDS = 20


class Launch(NamedTuple):
    """A program to start, ready for the operating system."""

    program: bytes
    argv: list[bytes]
    env: dict[bytes, bytes]
    cwd: bytes
    # The rows and columns of its terminal; None starts it on pipes.
    size: tuple[int, int] | None
    # True for a pipe, "socket" for a socket on which both sides send packets.
    wants_stdin: bool | Literal["socket"]
    # How the program is confined, as the keeper's message says it, and the descriptors that this
    # takes; the spawner closes them.
    fence: tuple[Any, ...] | None = None
    fds: tuple[int, ...] = ()
    # What the program may use, as the keeper's message says it.
    limits: Facts | None = None
    # What else the keeper is asked for; see its message.
    asked_settings: Facts | None = None

    @property
    def settings(self) -> Facts | None:
        """Everything that the keeper is asked for besides the start itself."""
        if self.limits is None:
            return self.asked_settings
        return (self.asked_settings or {}) | {"limits": self.limits}

    @property
    def words(self) -> tuple[Any, ...]:
        """The fields that the keeper's message begins with; descriptors are attached to it."""
        return self[:7]


class SpawnFailed(InternalError):
    """The operating system refused to start a program, for the reason *number*.

    *part* is what it refused, if that is known: the program, or its directory.
    """

    def __init__(self, number: int, text: str, part: StartPart | None = None) -> None:
        super().__init__(f"{text} (os error {number})" if number else text)
        self.number = number
        self.errno = number or None
        self.kind = part


def start_error(number: int, text: str, part: str | None) -> RpcError:
    """The error of a start that a keeper could not make."""
    if part == "limits":
        return InvalidRequest(text)
    return SpawnFailed(number, text, cast("StartPart | None", part or None))


class Spawned(msgspec.Struct, frozen=True):
    """A program that runs."""

    pid: int
    # stdout, stderr[, stdin]; or the terminal's master twice, to read from and to write to.
    fds: list[int]
    # The mark of all processes of this start, see the keeper.
    mark: int = 0
    # What became of each limit; None if there are none.
    granted: Granted | None = None


class ProgramStarter(Protocol):
    """Starts programs, and ends what they have started."""

    def spawn(self, launch: Launch, on_exit: OnExit) -> asyncio.Future[Spawned]: ...

    def signal_group(self, pid: int, signum: int) -> None: ...

    def after_signals(self, then: Callable[[], None]) -> bool: ...

    def end_tree(self, mark: int) -> None: ...

    def reach_limit(self, pid: int, name: str) -> None: ...


class Spawner:
    """Starts programs through one keeper, which it starts itself and replaces when it dies.

    *child_descriptors* is the soft limit of open files that programs get; with None they get the
    limit of this process.
    """

    def __init__(self, *, orphan_grace: float, child_descriptors: int | None = None) -> None:
        self._arguments = [str(orphan_grace), str(child_descriptors or 0)]
        self._process: subprocess.Popen[bytes] | None = None
        self._link: KeeperSocket | None = None
        self._is_stopping = False
        # Set when the keeper that was told to stop has closed its end of the socket.
        self._has_stopped = asyncio.Event()
        self._tokens = 0
        # True once a program was confined.
        self.has_confined = False
        # True once a keeper has died. What survived it is no longer below this process.
        self.has_lost_keeper = False
        self._sessions = 0
        # The upper bits of all our marks. Another server on this machine has others.
        self._base = 1 << 62 | (int.from_bytes(os.urandom(2), "big") & 0x3FFF) << 48
        self._pending: dict[int, tuple[asyncio.Future[Spawned], OnExit, int]] = {}
        # What is called when the keeper has done what was sent before.
        self._echoes: deque[Callable[[], None]] = deque()
        self._live: dict[int, OnExit] = {}

    @property
    def live_count(self) -> int:
        """The number of programs that run."""
        return len(self._live)

    @property
    def keeper_pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start the keeper ahead of the first program; does nothing when it runs.

        Raises InternalError when the operating system refuses.
        """
        if self._is_stopping:
            raise SpawnFailed(0, "the server is stopping")
        if self._link is not None:
            return
        self._loop = asyncio.get_running_loop()
        try:
            Folder().sweep()
            self._process, sock = _start_keeper(self._arguments)
        except OSError as exc:
            raise SpawnFailed(exc.errno or 0, os.strerror(exc.errno or 0)) from exc
        self._link = KeeperSocket(
            sock, on_message=self._handle, on_lost=self._on_lost, on_refused=self._on_refused
        )

    def for_session(self) -> SessionSpawner:
        """A spawner for one session, which can end everything that was started through it."""
        self._sessions += 1
        return SessionSpawner(self, self._base | (self._sessions & _SESSIONS) << _SESSION_SHIFT)

    def spawn(
        self, launch: Launch, on_exit: OnExit, *, session: int | None = None
    ) -> asyncio.Future[Spawned]:
        """Start *launch*; *on_exit* is called once, with the wait status, or None if that is lost.

        The future fails with InternalError and the operating system's text. *on_exit* may be called
        before the code that awaits the future has run.
        """
        try:
            self.start()
        except InternalError:
            close_all(launch.fds)
            raise
        self._tokens += 1
        self.has_confined = self.has_confined or launch.fence is not None
        future: asyncio.Future[Spawned] = self._loop.create_future()
        mark = (self._base if session is None else session) | self._tokens & _STARTS
        self._pending[self._tokens] = (future, on_exit, mark)
        self._send(("spawn", self._tokens, *launch.words, mark, launch.settings), launch.fds)
        return future

    def end_tree(self, mark: int, mask: int = _WHOLE) -> None:
        """Kill all processes that a start with *mark* has left, daemons included."""
        self._send(("end", mark & mask, mask))

    def reach_limit(self, pid: int, name: str) -> None:
        """The program *pid* has reached the limit *name*: kill its tree."""
        self._send(("limit", pid, name))

    def signal_group(self, pid: int, signum: int) -> None:
        """Signal the group that *pid* leads, unless it has ended."""
        if pid in self._live:
            self._send(("signal", pid, int(signum)))

    def after_signals(self, then: Callable[[], None]) -> bool:
        """Call *then* once all signals before were sent; False if that cannot be known."""
        self._echoes.append(then)
        self._send(("echo",))
        return True

    async def stop(self, *, within: float, grace: float = 0.0) -> None:
        """End every process tree, and wait until the keeper reports that none is left.

        Processes have *grace* seconds after SIGTERM, then they are killed; if this is cancelled,
        they are killed at once. Nothing can be started meanwhile.
        """
        if self._process is None:
            return
        self._live.clear()
        self._is_stopping = True
        self._has_stopped.clear()
        self._send(("stop", grace))
        try:
            await self._wait_ended(grace + within)
        except asyncio.CancelledError:
            self._send(("stop", 0.0))
            await self._wait_ended(within)
            raise
        finally:
            self._close()
            self._is_stopping = False

    async def _wait_ended(self, within: float) -> None:
        try:
            async with asyncio.timeout(within):
                await self._has_stopped.wait()
        except TimeoutError:
            logger.error("the process keeper still waits for processes that do not end")
            # The keeper continues by itself and ends when they do; it is not waited for.
            if self._process is not None:
                self._process.returncode = 0

    # Messages.

    def _send(self, message: tuple[Any, ...], fds: tuple[int, ...] = ()) -> None:
        if self._link is not None:
            self._link.send(message, fds)

    def _on_refused(self, message: tuple[Any, ...], number: int) -> None:
        # Only starts bring descriptors along.
        self._fail(message[1], number)

    def _handle(self, message: tuple[Any, ...]) -> None:
        if self._is_stopping:
            return
        if message[0] == "exited":
            _, pid, *ended = message
            on_exit = self._live.pop(pid, None)
            if on_exit is not None:
                on_exit(*ended)
        elif message[0] == "spawned":
            self._on_spawned(*message[1:])
        elif message[0] == "echo":
            self._echoes.popleft()()
        else:
            _, token, number, text, part = message
            self._fail(token, number, text, part or None)

    def _fail(self, token: int, number: int, text: str = "", part: str | None = None) -> None:
        future, *_ = self._pending.pop(token)
        if not future.cancelled():
            future.set_exception(start_error(number, text or os.strerror(number), part))

    def _on_spawned(self, token: int, pid: int, count: int, granted: Granted | None = None) -> None:
        assert self._link is not None
        future, on_exit, mark = self._pending.pop(token)
        fds = self._link.take_fds()
        is_whole = len(fds) == count
        self._live[pid] = on_exit if is_whole else _ignore
        if is_whole and not future.cancelled():
            future.set_result(Spawned(pid, fds, mark, granted))
            return
        # The program is not wanted any more, or its descriptors did not fit.
        close_all(fds)
        self.end_tree(mark)
        if not future.cancelled():
            future.set_exception(SpawnFailed(errno.EMFILE, os.strerror(errno.EMFILE)))

    def _on_lost(self) -> None:
        """The keeper is gone. If it died, kill its processes, and report the exit of each."""
        if self._is_stopping:
            self._has_stopped.set()
            return
        self.has_lost_keeper = True
        logger.error("the process keeper died; ending its %d processes", len(self._live))
        self._close()
        live, self._live = self._live, {}
        pending, self._pending = self._pending, {}
        self._echoes.clear()
        _kill_all(set(live), self._base)
        for on_exit in live.values():
            on_exit(None)
        for future, *_ in pending.values():
            if not future.done():
                future.set_exception(InternalError("the process keeper died"))

    def _close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._process is not None:
            # The keeper closes its end of the socket as the last thing it does.
            self._process.wait()
            self._process = None


class SessionSpawner:
    """Starts programs for one session."""

    def __init__(self, spawner: Spawner, mark: int) -> None:
        self._spawner = spawner
        self._mark = mark

    def spawn(self, launch: Launch, on_exit: OnExit) -> asyncio.Future[Spawned]:
        """As `Spawner.spawn`."""
        return self._spawner.spawn(launch, on_exit, session=self._mark)

    def signal_group(self, pid: int, signum: int) -> None:
        """As `Spawner.signal_group`."""
        self._spawner.signal_group(pid, signum)

    def after_signals(self, then: Callable[[], None]) -> bool:
        """As `Spawner.after_signals`."""
        return self._spawner.after_signals(then)

    def end_tree(self, mark: int) -> None:
        """As `Spawner.end_tree`."""
        self._spawner.end_tree(mark)

    def reach_limit(self, pid: int, name: str) -> None:
        """As `Spawner.reach_limit`."""
        self._spawner.reach_limit(pid, name)

    def end_all(self) -> None:
        """Kill everything that the session has started and that still runs."""
        self._spawner.end_tree(self._mark, _WHOLE & ~_STARTS)


def _start_keeper(arguments: list[str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                keeper_command("process.keeper", *arguments),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                env={},
                # Ctrl-C in our terminal is for this process alone.
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
    return process, ours


def _kill_all(leaders: set[int], base: int) -> None:
    """Kill what *leaders* started, and all that has a mark with *base*, without their keeper."""
    for _ in range(_ROUNDS):
        table = processes()
        members = {pid for pid, (_, session) in table.items() if session in leaders}
        marked = {pid for pid in table if mark_of(pid) & _BASE == base}
        found = (leaders | members | marked | below(leaders | marked, table)) & table.keys()
        signal_each(parents_first(found - {os.getpid()}, table), signal.SIGKILL)
        if not marked:
            return
        leaders = set()


def _ignore(status: int | None, reason: str | None = None, facts: Facts | None = None, /) -> None:
    """The exit handler of a program that is not wanted."""
