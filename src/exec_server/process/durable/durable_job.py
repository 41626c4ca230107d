"""One durable job: its folder, its journal, and its messages to the durable keeper."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exec_server.errors import InternalError
from exec_server.process.durable.durable_spawner import DurableSpawner
from exec_server.process.durable.journal_log import Bounds, JournalLog
from exec_server.process.durable.state_directory import StateDirectory, StoredJob
from exec_server.process.durable.stored_control import StoredControl
from exec_server.process.durable.stored_screen import StoredScreen
from exec_server.process.spawn import Launch, OnExit, Spawned, SpawnFailed
from exec_server.protocol.process import Stream

logger = logging.getLogger(__name__)


class DurableJob:
    """Starts one program through the durable keeper, as a `ProgramStarter`.

    *saved* says what the job is. A job that an earlier server has started has a *name*.
    """

    log: JournalLog

    def __init__(
        self,
        saved: StoredJob,
        *,
        state: StateDirectory,
        spawner: DurableSpawner,
        bounds: Bounds,
        hold_seconds: float,
        name: str | None = None,
    ) -> None:
        self.saved = saved
        self.name = name
        self._state = state
        self._spawner = spawner
        self._bounds = bounds
        self._hold_seconds = hold_seconds
        # Facts for the job's file that are known only when the program starts.
        self.describe: Callable[[], dict[str, Any]] = dict
        # The file of its denials, before the job has a folder.
        self._records: Path | None = None

    @property
    def streams(self) -> tuple[Stream, ...]:
        return ("pty",) if self.saved.tty else ("stdout", "stderr")

    def open(self) -> None:
        """Open the journal that an earlier server has left. Raises OSError."""
        assert self.name is not None
        self.log = JournalLog.open(self._state.job_folder(self.name), self.streams, self._bounds)

    def spawn(self, launch: Launch, on_exit: OnExit) -> asyncio.Future[Spawned]:
        for field, value in self.describe().items():
            setattr(self.saved, field, value)
        self.saved.output_limit = (launch.limits or {}).get("outputBytes")
        try:
            self.name = name = self._state.new_job(self.saved)
            if self._records is not None and self._records.exists():
                self._records.rename(self._state.record_file(name))
        except OSError as exc:
            raise self._failed(exc) from exc
        settings = {
            "name": name,
            # With a window, the program waits for its reader, for so many seconds without a server.
            "drains": self.saved.flow_window is None,
            "holds": self._hold_seconds,
            **self._bounds._asdict(),
        }
        try:
            spawned = self._spawner.spawn(launch, on_exit, mark=self.saved.mark, settings=settings)
        except InternalError:
            self.remove()
            raise
        try:
            # Meanwhile the keeper starts the program.
            self.log = JournalLog.create(self._state.job_folder(name), self.streams, self._bounds)
        except OSError as exc:
            # The spawner ends it as soon as it has started.
            spawned.cancel()
            raise self._failed(exc) from exc
        spawned.add_done_callback(lambda future: self._settle(name, future))
        return spawned

    def _failed(self, exc: OSError) -> SpawnFailed:
        self.remove()
        return SpawnFailed(exc.errno or 0, exc.strerror or str(exc))

    def _settle(self, name: str, spawned: asyncio.Future[Spawned]) -> None:
        if (spawned.cancelled() or spawned.exception() is not None) and self.name == name:
            self.remove()

    def signal_group(self, pid: int, signum: int) -> None:
        self._spawner.signal_group(pid, signum)

    def after_signals(self, then: Callable[[], None]) -> bool:
        return self._spawner.after_signals(then)

    def end_tree(self, mark: int) -> None:
        self._spawner.end_tree(mark)

    def reach_limit(self, pid: int, name: str) -> None:
        self._spawner.reach_limit(pid, name)

    def note_order(self, order: dict[str, Any]) -> None:
        """Have the keeper note who is about to signal the job."""
        if self.name is not None:
            self._spawner.note_order(self.name, order)

    def write(self, write_id: str | None, data: bytes, accepted: Callable[[], None]) -> None:
        assert self.name is not None
        self._spawner.write(self.name, write_id, data, accepted)

    def finish(self) -> None:
        assert self.name is not None
        self._spawner.finish(self.name)

    def share_input(self, shared: Callable[[list[int]], None]) -> None:
        assert self.name is not None
        self._spawner.share_input(self.name, shared)

    def give_back_input(self) -> None:
        assert self.name is not None
        self._spawner.give_back_input(self.name)

    def give_up_window(self) -> None:
        """Its output waits for no reader any more, whichever server reads it."""
        if self.name is not None and self.saved.flow_window is not None:
            self.saved.flow_window = None
            self._spawner.set_drains(self.name, True)
            try:
                self._state.save_job(self.name, self.saved)
            except OSError as exc:
                logger.error("a job could not be saved: %s", exc)

    def new_record_file(self) -> Path:
        """The path of a file for its denials, which moves to its folder when it starts."""
        self._records = self._state.new_record_file()
        return self._records

    def record_file(self) -> Path | None:
        """The file of the denials of a job that has started; None if it has none."""
        path = None if self.name is None else self._state.record_file(self.name)
        return path if path is not None and path.exists() else None

    def store_control(self, control: StoredControl) -> None:
        """Let the next server know who drives it."""
        if self.name is not None:
            try:
                self._state.save_control(self.name, control)
            except OSError as exc:
                logger.error("the driver of a job could not be saved: %s", exc)

    def stored_control(self) -> StoredControl | None:
        return None if self.name is None else self._state.control(self.name)

    def stored_screen(self) -> StoredScreen:
        """What the next server has to know of its terminal."""
        assert self.name is not None
        return StoredScreen(self._state.job_folder(self.name))

    def release(self) -> None:
        """All of it is recorded: the keeper can forget it."""
        if self.name is not None:
            self._spawner.release(self.name)

    def remove(self) -> None:
        """Forget it everywhere, with its output."""
        if self._records is not None:
            self._records.unlink(missing_ok=True)
        if self.name is not None:
            self.release()
            if hasattr(self, "log"):
                self.log.clear()
            self._state.remove_job(self.name)
            self.name = None
