"""Acknowledgements: what the server is told about the windows of processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol


class AckChannel(Protocol):
    """The connection, as far as acknowledgements need it."""

    @property
    def offers_flow(self) -> bool:
        """True if the server knows windows."""

    def acknowledge(self, process_id: str, seq: int | None) -> bool:
        """Send `process/ack`; False if there is no connection. None gives up the window."""


class Acknowledgements:
    """Sends acknowledgements, and remembers those that could not be sent.

    A process with a window waits for them, so none may be lost: what could not be sent is sent
    over the next connection, and a resumed session keeps only the windows that the client names.
    """

    def __init__(self, channel: AckChannel) -> None:
        self._channel = channel
        # What has to be sent over the next connection, for processes that are no longer tracked.
        self._owed: dict[str, int | None] = {}
        # Processes of an earlier client that have a window and no handle here, and their cursors.
        self._unclaimed: dict[str, int] = {}
        self._grace = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def acknowledge(self, process_id: str, seq: int) -> bool:
        """Acknowledge up to *seq*; False if there is no connection."""
        return self._channel.acknowledge(process_id, seq)

    def settle(self, process_id: str, seq: int | None) -> None:
        """Acknowledge for the last time, now or over the next connection; None gives up."""
        self._unclaimed.pop(process_id, None)
        if self._channel.offers_flow and not self._channel.acknowledge(process_id, seq):
            self._owed[process_id] = seq

    # Windows of an earlier client.

    def expect(self, cursors: Iterable[tuple[str, int]], *, grace: float) -> None:
        """Keep these windows for *grace* seconds after the connection, unless they are claimed."""
        self._unclaimed = dict(cursors)
        self._grace = grace

    def claim(self, process_id: str) -> None:
        self._unclaimed.pop(process_id, None)

    def unclaimed(self) -> dict[str, int]:
        return dict(self._unclaimed)

    def _give_up(self) -> None:
        for process_id in tuple(self._unclaimed):
            self.settle(process_id, None)

    # The connection.

    def connected(self) -> None:
        if self._unclaimed and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._grace, self._give_up)
        owed, self._owed = self._owed, {}
        for process_id, seq in owed.items():
            self._channel.acknowledge(process_id, seq)

    def session_lost(self) -> None:
        self._owed.clear()
        if self._timer is not None:
            self._timer.cancel()
