"""A process whose output tabs show: a terminal, or a command without one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from exec_server.client.process.output_buffer import OutputChunk
from exec_server.client.process.watched_process import (
    MissedOutput,
    Seen,
    TerminalSize,
    WatchedProcess,
)
from exec_server.client.session_token import Cursor, SessionToken
from exec_server.errors import ExecServerError
from exec_server.web.call_words import MAX_SIDE
from exec_server.web.process_list import end_facts
from exec_server.web.replay_screen import OutputTail, ReplayScreen, TerminalScreen
from exec_server.web.typed_input import TypedInput
from exec_server.web.viewer import Viewer

if TYPE_CHECKING:
    from exec_server.client.process.remote_process import RemoteProcess
    from exec_server.protocol.jobs import JobInfo
    from exec_server.web.places import PagePlaces, Place
    from exec_server.web.recordings.terminal_history import TerminalHistory

logger = logging.getLogger(__name__)

ShownState = Literal["running", "exited", "lost", "left"]

# How many seconds a visible tab may draw nothing before the process stops waiting for it.
PATIENCE = 2.0
# How many seconds a shell has to end by itself after SIGHUP.
_FAREWELL = 1.0


class ShownProcess:
    """One process, the tabs that show it, and the screen for those that come late."""

    def __init__(
        self,
        place: Place,
        places: PagePlaces,
        *,
        argv: list[str],
        is_terminal: bool,
        screen_size: Size,
        name: str | None = None,
    ) -> None:
        self.id = secrets.token_hex(8)
        self.place = place
        self.argv = argv
        self.name = name
        self.is_terminal = is_terminal
        self.size = screen_size = _drawable(screen_size)
        self.started_at = time.time() * 1000
        self.state: ShownState = "running"
        self.problem: str | None = None
        self._places = places
        self._screen: ReplayScreen = OutputTail()
        if is_terminal:
            self._screen = TerminalScreen(*screen_size, self._answer)
        self._history: TerminalHistory | None = None
        if is_terminal and places.histories is not None:
            self._history = places.histories.begin(argv, screen_size, self.draw)
        self._viewers: set[Viewer] = set()
        self._room = asyncio.Event()
        self._process: RemoteProcess | WatchedProcess | None = None
        self._input: TypedInput | None = None
        self._task: asyncio.Task[None] | None = None
        # A job of another session: it runs on when it is closed here.
        self._job: JobInfo | None = None
        self._leave = asyncio.Event()
        # Output up to this number is old: tabs get a frame after it.
        self._old_until = 0

    # Beginning.

    def follow(self, process: RemoteProcess) -> None:
        """Show a process of the environment's own session."""
        self._process = process
        self._places.shown[self.id] = self
        self._task = asyncio.create_task(self._run(process), name=f"show {process.process_id}")

    def follow_watched(self, watched: WatchedProcess) -> None:
        """Look on at a process of another session; it is left alone at the end."""
        self._process = watched
        self._places.shown[self.id] = self
        self._task = asyncio.create_task(self._run(watched), name=f"watch {watched.process_id}")

    async def follow_job(self, job: JobInfo, *, take_over: bool) -> None:
        """Show a durable job of another session. Raises the errors of a connection."""
        self._job = job
        self._old_until = job.next_seq - 1
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(
            self._run_job(job, begun, take_over=take_over), name=f"show {job.process_id}"
        )
        try:
            await asyncio.shield(begun)
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        self._places.shown[self.id] = self

    async def _run_job(self, job: JobInfo, begun: asyncio.Future[None], *, take_over: bool) -> None:
        cursors = {job.process_id: Cursor(is_terminal=job.tty)}
        token = str(SessionToken(job.session_id, cursors))
        try:
            async with self.place.facts.open(session_token=token, take_over=take_over) as client:
                process = self._process = await client.attach(job.process_id, 0)
                begun.set_result(None)
                await self._run(process)
        except (ExecServerError, OSError) as exc:
            if begun.done():
                self._end("lost", str(exc))
            else:
                begun.set_exception(exc)
        finally:
            begun.cancel()

    # Tabs.

    def add(self, viewer: Viewer) -> None:
        """Show the process in one more tab."""
        self._viewers.add(viewer)
        if not self._old_until:
            viewer.begin()

    def remove(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)
        self._room.set()

    def moved(self) -> None:
        """A tab has drawn something, or was hidden or shown."""
        self._room.set()

    def draw(self) -> bytes:
        """What paints the current screen on an empty one."""
        return self._screen.draw()

    def type(self, data: bytes) -> bool:
        """Type *data*; False if the process does not read what was typed before."""
        return self._input is not None and self._input.put(data)

    async def resize(self, size: Size) -> None:
        """Give the terminal another size; all tabs are told."""
        if self._process is None or size == self.size or not self._process.drives:
            return
        self._resized(size)
        await self._process.resize(size[1], size[0])

    def _resized(self, size: Size) -> None:
        size = _drawable(size)
        if size != self.size:
            self.size = size
            self._screen.resize(size[0], size[1])
            if self._history is not None:
                self._history.resized(size)
            self._places.tell("shown", self.as_json())

    async def take(self) -> None:
        """Take the input of the process. Raises ControlRefused."""
        if isinstance(self._process, WatchedProcess):
            await self._process.take()
        elif self._process is not None:
            await self._process.take(kind="person", name=self._places.person)
        self._places.tell("shown", self.as_json())

    async def give_back(self) -> None:
        """Let the one drive that drove before."""
        if self._process is not None:
            await self._process.give_back()
            self._places.tell("shown", self.as_json())

    async def send_signal(self, name: str) -> None:
        if self._process is not None:
            await self._process.send_signal(name)

    # The end.

    async def end(self) -> None:
        """End what was started here, as closing a terminal's window does; leave jobs alone."""
        self._places.shown.pop(self.id, None)
        if isinstance(self._process, WatchedProcess):
            await self._unwatch(self._process)
        elif self._job is None and self._process is not None and self.state == "running":
            await self._hang_up(self._process)
        self._leave.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._end("left")
        self._screen.close()
        if self._history is not None:
            self._history.forget()
        self._places.tell("gone", {"id": self.id})

    async def _unwatch(self, watched: WatchedProcess) -> None:
        with contextlib.suppress(ExecServerError, TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await watched.close()

    async def _hang_up(self, process: RemoteProcess) -> None:
        with contextlib.suppress(ExecServerError, TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await process.send_signal(signal.SIGHUP)
                await process.wait()
        with contextlib.suppress(ExecServerError, TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await process.terminate()

    @property
    def history_path(self) -> str | None:
        """The recording of what was shown; None if there is none yet."""
        return None if self._history is None else self._history.path

    async def history_written(self) -> None:
        """Wait until the recording has everything that was shown."""
        if self._history is not None:
            await self._history.written()

    @property
    def process_id(self) -> str | None:
        return None if self._process is None else self._process.process_id

    def as_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "id": self.id,
            "place": self.place.facts.id,
            "argv": self.argv,
            "name": self.name,
            "terminal": self.is_terminal,
            "columns": self.size[0],
            "rows": self.size[1],
            "state": self.state,
            "problem": self.problem,
            "job": self._job is not None,
            "history": self._history is not None,
        }
        process = self._process
        if process is not None:
            facts |= {"processId": process.process_id, "drives": process.drives}
            facts |= {"exitCode": process.returncode, "lost": process.lost}
            facts |= {"watched": isinstance(process, WatchedProcess)}
            facts["person"] = self._places.person
            facts["people"] = [msgspec.to_builtins(each) for each in process.viewers]
        if process is not None and not isinstance(process, WatchedProcess):
            facts |= {"durable": process.is_durable or self._job is not None, "pid": process.pid}
            facts |= end_facts(process.end, process.usage)
        return facts

    # Output.

    def _answer(self, data: bytes) -> None:
        """Answer a question of the program, if no tab does, and if it is not an old one."""
        is_looked_at = any(each.answers_queries for each in self._viewers)
        is_ours = not isinstance(self._process, WatchedProcess)
        if is_ours and not self._old_until and not is_looked_at:
            self.type(data)

    async def _run(self, process: RemoteProcess | WatchedProcess) -> None:
        typed = self._input = TypedInput(process)
        helpers = [
            asyncio.create_task(typed.pass_on(), name=f"type {process.process_id}"),
            asyncio.create_task(self._tell_drivers(process), name="tell who drives"),
        ]
        try:
            async for seen in process:
                self._take_in(seen)
                if self._has_full_viewer:
                    await self._wait_for_room()
            self._show_old()
            await process.wait()
            self._end("exited" if process.lost is None else "lost")
        except ExecServerError as exc:
            self._show_old()
            self._end("lost", str(exc))
        finally:
            for task in helpers:
                task.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)

    async def _tell_drivers(self, process: RemoteProcess | WatchedProcess) -> None:
        async for change in process.control_changes():
            if self._history is not None and change.driver is not None:
                self._history.driven(change.driver.name or "someone", change.driver.kind)
            self._places.tell("shown", self.as_json())

    def _take_in(self, seen: Seen) -> None:
        if isinstance(seen, OutputChunk):
            self._show(seen.seq, seen.data)
        elif isinstance(seen, TerminalSize):
            self._resized((seen.cols, seen.rows))
        elif not isinstance(seen, MissedOutput):
            self._repaint((seen.cols, seen.rows), seen.data.data)

    def _repaint(self, size: Size, data: bytes) -> None:
        """Begin anew with a picture of the screen."""
        self._screen.close()
        size = _drawable(size)
        self._screen = TerminalScreen(*size, self._answer)
        self._resized(size)
        self._screen.feed(data)
        if self._history is not None:
            self._history.repainted(size, data)
        for viewer in self._viewers:
            viewer.begin()

    def _show(self, seq: int, data: bytes) -> None:
        self._screen.feed(data)
        if self._history is not None:
            self._history.output(data)
        if self._old_until:
            if seq >= self._old_until:
                self._show_old()
            return
        for viewer in self._viewers:
            viewer.offer(data)

    def _show_old(self) -> None:
        if self._old_until:
            self._old_until = 0
            for viewer in self._viewers:
                viewer.begin()

    @property
    def _has_full_viewer(self) -> bool:
        return any(viewer.is_full for viewer in self._viewers)

    async def _wait_for_room(self) -> None:
        """Wait until all visible tabs have drawn something; those that sleep are left out."""
        while self._has_full_viewer:
            self._room.clear()
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._room.wait()
            except TimeoutError:
                for viewer in self._viewers:
                    if viewer.is_full:
                        viewer.fall_behind()

    def _end(self, state: ShownState, problem: str | None = None) -> None:
        if self.state == "running":
            self.state, self.problem = state, problem
            if self._history is not None:
                self._history.close(None if self._process is None else self._process.returncode)
            self._places.tell("shown", self.as_json())


# Columns and rows.
Size = tuple[int, int]


def _drawable(size: Size) -> Size:
    """A size that a browser can draw: a server, or another client of it, may name any."""
    columns, rows = (min(max(each, 1), MAX_SIDE) for each in size)
    return max(columns, 2), rows
