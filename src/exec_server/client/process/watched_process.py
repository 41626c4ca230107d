"""WatchedProcess: a process of another session, or of this one, that is looked on at."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from exec_server.client.arguments import BytesLike, as_bytes, as_signal
from exec_server.client.process.control import ControlView
from exec_server.client.process.output_buffer import OutputChunk
from exec_server.errors import ExecServerError, InvalidRequest, ProcessLost, StdinClosed
from exec_server.protocol.denials import DenialsResult
from exec_server.protocol.ends import EndReport, Usage
from exec_server.protocol.sharing import (
    ControlChangedEvent,
    ControlState,
    Participant,
    ScreenPicture,
    WatchedEvent,
    WatchParams,
    WatchResult,
)

if TYPE_CHECKING:
    from exec_server.client.process.processes import Processes
    from exec_server.client.process.watched_processes import WatchedProcesses

# Input is written in pieces of this size, each of which arrives whole.
_WRITE_BYTES = 64 * 1024


class TerminalSize(NamedTuple):
    """The driver has given the terminal another size."""

    rows: int
    cols: int


class MissedOutput(NamedTuple):
    """So many bytes of output are missing here: the server could not retain them."""

    dropped_bytes: int


# What a watcher sees. A ScreenPicture replaces all that was shown before.
Seen = OutputChunk | ScreenPicture | TerminalSize | MissedOutput


class WatchedProcess:
    """A process that is looked on at; any number of clients can do that at the same time.

    Iterate over it to see its terminal or its output: a `ScreenPicture` paints the whole screen, an
    `OutputChunk` continues it. A watcher that reads too slowly gets a new picture instead of
    everything that it has missed, and holds up neither the process nor others.

    Only one participant drives: its input and its sizes reach the program. `take` takes the input,
    `give_back` returns it. A lost connection is replaced, and the watch goes on with a new picture.
    With `async with` the end of the block ends the watch and leaves the process alone.
    """

    def __init__(
        self, client: Processes, watches: WatchedProcesses, params: WatchParams, view: ControlView
    ) -> None:
        """Use `client.watch`."""
        self._client = client
        self._watches = watches
        self._params = params
        self._view = view
        self._seen: deque[tuple[int, Seen]] = deque()
        self._news = asyncio.Event()
        self._taken = 0
        self._argv: list[str] = []
        self._is_terminal = False
        self._shows_pictures = False
        self._size: tuple[int, int] | None = None
        self._returncode: int | None = None
        self._signal: int | None = None
        self._lost: str | None = None
        self._end: EndReport | None = None
        self._usage: Usage | None = None
        self._sandbox_denied = False
        self._exit = asyncio.Event()
        self._is_closed = False
        self._error: ExecServerError | None = None
        self._writing = asyncio.Lock()
        self._last_write_id = 0
        self._write_prefix = uuid.uuid4().hex

    def __repr__(self) -> str:
        return f"<WatchedProcess {self.process_id}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the watch; the process is left alone."""
        await self.close()

    async def close(self) -> None:
        """End the watch. The input goes back to the participant that had it before."""
        await self._watches.end(self)

    # Facts.

    @property
    def process_id(self) -> str:
        """The id of the process in its session."""
        return self._params.process_id

    @property
    def watch_id(self) -> str:
        """The id of the watch in this session."""
        return self._params.watch_id

    @property
    def argv(self) -> list[str]:
        """The command line of the process."""
        return self._argv

    @property
    def is_terminal(self) -> bool:
        """True if the process runs on a terminal."""
        return self._is_terminal

    @property
    def shows_pictures(self) -> bool:
        """True if the watch has begun with a picture of a terminal."""
        return self._shows_pictures

    @property
    def size(self) -> tuple[int, int] | None:
        """The rows and columns of its terminal; None if it has none, or has ended."""
        return self._size

    @property
    def returncode(self) -> int | None:
        """The exit status; None until the process has exited, and if it is lost."""
        return self._returncode

    @property
    def signal(self) -> int | None:
        """The signal that has ended the process, if the server says so."""
        return self._signal

    @property
    def lost(self) -> str | None:
        """Why the exit status is unknown and stays so; None if it is not."""
        return self._lost

    @property
    def end(self) -> EndReport | None:
        """Why the process ended; None while it runs, and if the server does not say."""
        return self._end

    @property
    def usage(self) -> Usage | None:
        """What it has used; None while it runs, and if the server does not say."""
        return self._usage

    @property
    def sandbox_denied(self) -> bool:
        """True if the process has exited and the sandbox has probably refused it something."""
        return self._sandbox_denied

    @property
    def last_seq(self) -> int:
        """The number of the last event that was taken by a reader."""
        return self._taken

    # What happens.

    def __aiter__(self) -> WatchedProcess:
        return self

    async def __anext__(self) -> Seen:
        while not self._seen:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self._is_closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        seq, seen = self._seen.popleft()
        self._taken = max(self._taken, seq)
        if not self._is_closed:
            # What was shown counts, not what has arrived.
            self._watches.acknowledge(self.watch_id, self._taken)
        return seen

    async def refresh(self) -> None:
        """Begin again with a new picture of the screen."""
        await self._watches.refresh(self)

    async def wait(self) -> int:
        """Wait for the exit status. Raises ProcessLost if it is unknown and stays so."""
        await self._exit.wait()
        if self._lost is not None:
            raise ProcessLost(self._lost)
        if self._returncode is None:
            assert self._error is not None
            raise self._error.with_traceback(None)
        return self._returncode

    # Who takes part.

    @property
    def viewers(self) -> list[Participant]:
        """All who take part, with the one that drives, as the server has told last."""
        return self._view.viewers

    @property
    def drives(self) -> bool:
        """True if this client drives."""
        return self._view.drives

    @property
    def epoch(self) -> int:
        """The number of the last change of the driver."""
        return self._view.epoch

    async def take(self, *, epoch: int | None = None) -> ControlState:
        """Take the input. Raises ControlRefused if a person drives and this client is an agent.

        With *epoch* it is also refused if the driver has changed since then.
        """
        return await self._client.control(self.watch_id, "take", epoch=epoch)

    async def offer(self, to: Participant | str | None = None) -> ControlState:
        """Let *to*, or any participant, take the input, even an agent from a person."""
        return await self._client.control(self.watch_id, "offer", to=to)

    async def give_back(self) -> ControlState:
        """Let the participant drive that drove before. Raises ControlLost if another one drives."""
        return await self._client.control(self.watch_id, "giveBack")

    async def control_state(self) -> ControlState:
        """Ask the server who takes part and who drives."""
        return await self._client.control(self.watch_id, "state")

    async def control_changes(self) -> AsyncIterator[ControlChangedEvent]:
        """Each change of the driver, and each offer, until the process or the watch ends."""
        async for change in self._view.changes():
            yield change

    # Input, for the driver.

    async def write(self, data: BytesLike) -> None:
        """Type to the process. Raises ControlLost unless this client drives."""
        data = as_bytes(data, "data")
        async with self._writing:
            for start in range(0, len(data), _WRITE_BYTES):
                self._last_write_id += 1
                status = await self._client.write(
                    self.watch_id,
                    data[start : start + _WRITE_BYTES],
                    write_id=f"{self._write_prefix}-{self._last_write_id}",
                )
                if status == "starting":
                    raise InvalidRequest(f"process {self.process_id} is starting")
                if status != "accepted":
                    raise StdinClosed(f"process {self.process_id} takes no input")

    async def resize(self, rows: int, cols: int) -> None:
        """Give the terminal another size. Raises ControlLost unless this client drives."""
        await self._client.resize(self.watch_id, rows, cols)

    async def close_stdin(self) -> None:
        """End the input of the process. Raises ControlLost unless this client drives."""
        await self._client.close_stdin(self.watch_id, repeat=not self.is_terminal)

    async def send_signal(self, signum: int | str) -> None:
        """Signal the process's group; see `RemoteProcess.send_signal`."""
        await self._client.signal(self.watch_id, signum)

    async def terminate(self) -> bool:
        """Kill the process and all that it has started; True if it was still running."""
        return await self._client.terminate(self.watch_id)

    async def denials(self) -> DenialsResult:
        """What the sandbox refused so far; see `RemoteProcess.denials`."""
        return await self._client.list_denials(self.watch_id)

    # What the connection reports.

    def _began(self, result: WatchResult) -> None:
        self._argv, self._is_terminal = result.argv, result.tty
        if result.rows is not None and result.cols is not None:
            self._size = result.rows, result.cols
        self._view.told(result.control)
        if result.screen is None:
            self._taken = max(self._taken, result.seq)
        if result.screen is not None:
            self._shows_pictures = True
            # Events may have overtaken the answer.
            self._seen.appendleft((result.seq, result.screen))
            self._news.set()

    def _forget(self) -> None:
        """The watch begins again: what was not taken comes once more."""
        self._seen.clear()

    def _received(self, event: WatchedEvent) -> None:
        if event.run != self._params.run:
            return
        if event.chunk and event.stream:
            self._put(event.seq, OutputChunk(event.seq, event.stream, event.chunk.data))
        elif event.screen:
            self._seen.clear()
            self._size = event.screen.rows, event.screen.cols
            self._put(event.seq, event.screen)
        elif event.size:
            self._size = event.size
            self._put(event.seq, TerminalSize(*event.size))
        elif event.dropped_bytes:
            self._put(event.seq, MissedOutput(event.dropped_bytes))
        elif event.exited:
            self._returncode = event.exit_code if isinstance(event.exit_code, int) else None
            self._signal = as_signal(event.signal)
            self._lost = event.lost or None
            self._end, self._usage = event.end or None, event.usage or None
            self._sandbox_denied = event.sandbox_denied
            if self._returncode is None and self._lost is None:
                self._lost = "the server does not say why"
            self._exit.set()
        elif event.closed:
            self._finish(None)

    def _put(self, seq: int, seen: Seen) -> None:
        self._seen.append((seq, seen))
        self._news.set()

    def _finish(self, error: ExecServerError | None) -> None:
        """Nothing follows: the process has closed, or it cannot be watched any more."""
        if self._is_closed:
            return
        self._is_closed, self._error = True, error
        if self._returncode is None and self._lost is None:
            self._error = self._error or InvalidRequest(
                f"the watch on process {self.process_id} has ended"
            )
            if error is None:
                self._lost = "the process was forgotten with its session"
                self._error = None
        self._exit.set()
        self._news.set()
        self._view.end(error)
