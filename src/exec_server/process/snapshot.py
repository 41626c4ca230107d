"""Shell snapshots: startup files run once, and later starts restore what they did."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol

from exec_server.errors import InternalError, RpcError
from exec_server.limits import Limits
from exec_server.process import shell_state
from exec_server.process.pump import OnData, OutputGate, Pump
from exec_server.process.shell_state import WantedSnapshot
from exec_server.process.snapshot_files import Shelf
from exec_server.process.spawn import Launch, OnExit, ProgramStarter, Spawned
from exec_server.sandbox.bubblewrap import SCRIPT_FD, SCRIPT_PATH
from exec_server.sandbox.model import Backend

logger = logging.getLogger(__name__)

_READ_BYTES = 64 * 1024


class Start(Protocol):
    """A start that can be made; `backend` tells what confines it, once it was made."""

    backend: Backend

    def begin(self) -> asyncio.Future[Spawned]: ...


class Starter(Protocol):
    """The place in which a process is to run: makes its start, and the capture before it."""

    def capture(self, launch: Launch, on_exit: OnExit, is_wanted: Callable[[], bool]) -> Start:
        """A start of *launch* in the same place; other processes may wait for it as well."""

    def restored(self, launch: Launch, script: str | None) -> Start:
        """The start of the process itself as *launch*.

        *script* is a file that it reads at `SCRIPT_PATH`, because the file's name is hidden from
        it.
        """


class UnconfinedStart:
    """Starts programs without a sandbox; *on_exit* is the process's own."""

    backend: Backend = "none"

    def __init__(
        self, spawner: ProgramStarter, on_exit: OnExit, launch: Launch | None = None
    ) -> None:
        self._spawner = spawner
        self._on_exit = on_exit
        self._launch = launch

    def capture(self, launch: Launch, on_exit: OnExit, is_wanted: Callable[[], bool]) -> Start:
        return UnconfinedStart(self._spawner, on_exit, launch)

    def restored(self, launch: Launch, script: str | None) -> Start:
        self._launch = launch
        return self

    def begin(self) -> asyncio.Future[Spawned]:
        assert self._launch is not None
        return self._spawner.spawn(self._launch, self._on_exit)


class _TakenSnapshot(NamedTuple):
    path: str
    exports: dict[bytes, bytes]
    backend: Backend


class Snapshots:
    """The snapshots of one session; only the most recently used are kept."""

    def __init__(self, spawner: ProgramStarter, *, limits: Limits) -> None:
        self._spawner = spawner
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        # A capture that failed stays as None: its starts run the startup files.
        self._captures: OrderedDict[Hashable, asyncio.Task[_TakenSnapshot | None]] = OrderedDict()
        self._shelf = Shelf()
        self._is_closed = False

    def spawn(
        self, wanted: WantedSnapshot, launch: Launch, starter: Starter
    ) -> asyncio.Future[Spawned]:
        """Start *launch* with its shell's state restored, or as it is when there is no snapshot."""
        started: asyncio.Future[Spawned] = self._loop.create_future()
        capture = self._captured(wanted, launch, starter)

        def go_on(done: asyncio.Future[_TakenSnapshot | None]) -> None:
            if self._is_closed:
                started.set_exception(InternalError("the session has ended"))
                return
            try:
                inner = _restored(wanted, launch, starter, done.result()).begin()
            except InternalError as exc:
                started.set_exception(exc)
            else:
                inner.add_done_callback(lambda future: _copy(future, started))

        capture.add_done_callback(go_on)
        return started

    def close(self) -> None:
        """Forget everything; a start that waits for a capture is given up."""
        self._is_closed = True
        for capture in self._captures.values():
            capture.cancel()
        self._captures.clear()
        self._shelf.close()

    def _captured(
        self, wanted: WantedSnapshot, launch: Launch, starter: Starter
    ) -> asyncio.Task[_TakenSnapshot | None]:
        """The capture for *wanted*; it is made now if there is none."""
        capture = self._captures.pop(wanted.key, None)
        if capture is None or (capture.done() and _is_lost(capture)):
            taking = self._take(wanted.shell, launch, starter)
            capture = self._loop.create_task(taking, name="take a shell snapshot")
        self._captures[wanted.key] = capture
        if len(self._captures) > self._limits.shell_snapshots:
            _, oldest = self._captures.popitem(last=False)
            oldest.add_done_callback(_forget)
        return capture

    async def _take(self, shell: str, launch: Launch, starter: Starter) -> _TakenSnapshot | None:
        try:
            async with asyncio.timeout(self._limits.shell_snapshot_seconds):
                return await self._capture(shell, launch, starter)
        except (TimeoutError, RpcError, OSError) as exc:
            logger.info("no shell snapshot, startup files run each time: %s", exc)
            return None

    async def _capture(self, shell: str, launch: Launch, starter: Starter) -> _TakenSnapshot | None:
        mark = secrets.token_hex(16)
        script = shell_state.capture_script(shell, mark).encode()
        argv = [launch.program, b"-lc", script]
        run = _Run(self._spawner, mark, self._limits.shell_snapshot_bytes)
        start = starter.capture(
            launch._replace(
                argv=argv, size=None, wants_stdin=False, limits=None, asked_settings=None
            ),
            run.over,
            lambda: not self._is_closed,
        )
        state = shell_state.parse_capture(shell, await run.output(start), mark, launch.env)
        if state is None:
            return None
        return _TakenSnapshot(self._shelf.put(state.script), state.exports, start.backend)


class _Run:
    """One login shell that prints its state."""

    def __init__(self, spawner: ProgramStarter, mark: str, limit: int) -> None:
        self._spawner = spawner
        self._mark = mark
        self._limit = limit
        self._output = bytearray()
        self._is_told = asyncio.Event()
        self._is_over = asyncio.Event()

    def over(self, status: int | None, *why: object) -> None:
        """The shell has ended."""
        self._is_over.set()

    async def output(self, start: Start) -> bytes:
        """What the shell printed up to the last mark; its tree is killed if it goes on."""
        spawned = await start.begin()
        pumps = [
            self._pump(spawned.fds[0], self._told),
            self._pump(spawned.fds[1], lambda data: None),
        ]
        try:
            await self._is_told.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._is_over.wait()
        finally:
            for pump in pumps:
                pump.close()
            if not self._is_over.is_set():
                self._spawner.signal_group(spawned.pid, signal.SIGKILL)
        if len(self._output) > self._limit:
            raise InternalError(f"startup files leave more than {self._limit} bytes behind")
        return bytes(self._output)

    def _pump(self, fd: int, on_data: OnData) -> Pump:
        pump = Pump(
            fd,
            loop=asyncio.get_running_loop(),
            gate=OutputGate(),
            chunk_bytes=_READ_BYTES,
            is_terminal=False,
            on_data=on_data,
            on_end=self._is_told.set,
        )
        pump.resume()
        return pump

    def _told(self, data: bytes) -> None:
        self._output += data
        if len(self._output) > self._limit or shell_state.is_complete(self._output, self._mark):
            self._is_told.set()


def _restored(
    wanted: WantedSnapshot, launch: Launch, starter: Starter, taken: _TakenSnapshot | None
) -> Start:
    if taken is None:
        return starter.restored(launch, None)
    changed = {k: v for k, v in taken.exports.items() if k not in wanted.own_names}
    shell, argv, script = wanted.shell, launch.argv, None
    if taken.backend == "bubblewrap":
        # Snapshots are stored where no namespace shows them.
        script = taken.path
        argv = shell_state.replaying_argv(shell, argv, SCRIPT_PATH, closing=SCRIPT_FD)
    else:
        argv = shell_state.replaying_argv(shell, argv, taken.path)
    return starter.restored(launch._replace(argv=argv, env={**launch.env, **changed}), script)


def _is_lost(capture: asyncio.Task[_TakenSnapshot | None]) -> bool:
    """True if the file is gone, for example because temporary files were cleaned up."""
    taken = capture.result()
    return taken is not None and not os.path.exists(taken.path)


def _forget(capture: asyncio.Future[_TakenSnapshot | None]) -> None:
    taken = None if capture.cancelled() else capture.result()
    if taken is not None:
        with contextlib.suppress(OSError):
            os.unlink(taken.path)


def _copy(source: asyncio.Future[Spawned], target: asyncio.Future[Spawned]) -> None:
    if source.cancelled():
        target.cancel()
    elif (error := source.exception()) is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())
