"""Who looks on at a process and who drives it: what the client knows, and how it takes part."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from exec_server.errors import ExecServerError
from exec_server.protocol.sharing import (
    OWNER,
    ControlChangedEvent,
    ControlState,
    Participant,
    PresenceEvent,
)

# So many changes wait for a reader; the newest ones count.
_MOST_CHANGES = 256


class ControlView:
    """What the server has told about the participants of one process, under the id *label*."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.state: ControlState | None = None
        self._changes: deque[ControlChangedEvent] = deque(maxlen=_MOST_CHANGES)
        self._news = asyncio.Event()
        self._is_over = False
        self._error: ExecServerError | None = None

    def told(self, state: ControlState) -> None:
        if self.state is None or state.epoch >= self.state.epoch:
            self.state = state

    def received(self, event: PresenceEvent | ControlChangedEvent) -> None:
        self.told(event.control)
        if isinstance(event, ControlChangedEvent):
            self._changes.append(event)
        self._news.set()

    def end(self, error: ExecServerError | None = None) -> None:
        """Nothing follows."""
        self._is_over, self._error = True, error
        self._news.set()

    @property
    def viewers(self) -> list[Participant]:
        return [] if self.state is None else list(self.state.participants)

    @property
    def drives(self) -> bool:
        if self.state is None:
            return self._is_owner
        return any(each.drives and each.id == self.state.you for each in self.state.participants)

    @property
    def _is_owner(self) -> bool:
        return self.state is None or self.state.you == OWNER

    @property
    def epoch(self) -> int:
        return 1 if self.state is None else self.state.epoch

    async def changes(self) -> AsyncIterator[ControlChangedEvent]:
        """Each change of the driver, and each offer, until nothing can follow."""
        while True:
            while self._changes:
                yield self._changes.popleft()
            if self._is_over:
                return
            self._news.clear()
            await self._news.wait()
