"""The windows of a client's processes: what the server is told of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from exec_server.protocol import process

if TYPE_CHECKING:
    from exec_server.client.client_session import ClientSession
    from exec_server.client.process.tracked_processes import TrackedProcesses


class Windows:
    """Acknowledges output, and gives up the windows of processes that nobody follows.

    The server lets those wait that have a window, so none may be forgotten: what could not be said
    is said over the next connection, and a resumed session keeps the windows of `taken` alone.
    """

    def __init__(self, session: ClientSession, tracked: TrackedProcesses) -> None:
        self._session = session
        self._tracked = tracked
        # What is to be said over the next connection.
        self._owed: dict[str, int | None] = {}
        # Of an earlier client: processes that have a window and no handle here, and their cursors.
        self._unclaimed: dict[str, int] = {}
        self._grace = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def acknowledge(self, process_id: str, seq: int) -> bool:
        """Say what was taken; False when there is no connection for it."""
        return self._say(process_id, seq)

    def settle(self, process_id: str, seq: int | None) -> None:
        """Say for the last time what was taken, or that nobody will say so any more."""
        self._unclaimed.pop(process_id, None)
        if self._session.offers_flow and not self._say(process_id, seq):
            self._owed[process_id] = seq

    def forget(self, process_id: str) -> None:
        """The handle of a process was dropped."""
        if process_id not in self._tracked.handles:
            self.settle(process_id, None)

    def release_all(self) -> None:
        """Nobody will be there for long."""
        for process_id in self.taken():
            self.settle(process_id, None)

    # An earlier client's.

    def expect(self, cursors: Iterable[tuple[str, int]], *, grace: float) -> None:
        """Keep windows of processes that will be attached to, within *grace* seconds."""
        self._unclaimed = dict(cursors)
        self._grace = grace

    def claim(self, process_id: str) -> None:
        self._unclaimed.pop(process_id, None)

    def _give_up(self) -> None:
        for process_id in tuple(self._unclaimed):
            self.settle(process_id, None)

    # What becomes of the connection.

    def taken(self) -> dict[str, int]:
        """Processes with windows, and up to which number their output was taken."""
        taken = dict(self._unclaimed)
        for process_id, handle in self._tracked.handles.items():
            if (seq := handle.flow_taken) is not None:
                taken[process_id] = seq
        return taken

    def connected(self) -> None:
        if self._unclaimed and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._grace, self._give_up)
        owed, self._owed = self._owed, {}
        for process_id, seq in owed.items():
            self._say(process_id, seq)
        for handle in tuple(self._tracked.handles.values()):
            handle.acknowledge()

    def session_lost(self) -> None:
        self._owed.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _say(self, process_id: str, seq: int | None) -> bool:
        link = self._session.connection
        if link is None or link.is_lost:
            return False
        link.acknowledge(process.AckParams(process_id, seq))
        return True
