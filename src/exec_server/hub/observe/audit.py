"""The audit log: who did what to which environment, when and from where."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable

from exec_server.audit.audit_file import AuditLines
from exec_server.audit.event import AuditEvent
from exec_server.hub.store import Store, StoreUnavailable
from exec_server.hub.store.entities import AccessToken
from exec_server.limits import Limits
from exec_server.prometheus import Metric

logger = logging.getLogger(__name__)

# The most events in one statement. The event loop stands still while the statement is built.
_BATCH = 100
# The pause before a store that was away is tried again.
_PAUSE_SECONDS = 0.5


class Audit:
    """Keeps events in the store, and also appends each to *lines*, a file, if given.

    `note` never fails and never waits. While the store is away, events wait in memory. If too many
    wait, the oldest are dropped, and an event reports how many. An event may be kept twice if the
    store went away while it was written.
    """

    def __init__(
        self,
        store: Store,
        *,
        limits: Limits,
        clock: Callable[[], float],
        lines: AuditLines | None = None,
    ) -> None:
        self._store = store
        self._limits = limits
        self._clock = clock
        self._lines = lines
        self._waiting: deque[AuditEvent] = deque()
        # The number of events so far, and how many of them were kept or dropped.
        self._noted = 0
        self._settled = 0
        self._lost = 0
        self._all_lost = 0
        self._is_away = False
        self._is_any = asyncio.Event()
        self._progress = asyncio.Condition()

    async def note(
        self,
        name: str,
        *,
        token: AccessToken | None = None,
        token_id: str = "",
        environment_id: str = "",
        address: str = "",
        detail: str = "",
    ) -> None:
        event = AuditEvent(
            at=self._clock(),
            name=name,
            principal=token.principal if token else "",
            token_id=token.id if token else token_id,
            environment_id=environment_id,
            address=address,
            detail=detail,
        )
        if self._lines is not None:
            self._lines.write_event(event)
        self._queue(event)

    def metrics(self) -> list[Metric]:
        return [
            Metric(
                "events_waiting",
                "gauge",
                "Audit events that wait for the state.",
                self._noted - self._settled,
            ),
            Metric(
                "events_lost_total",
                "counter",
                "Audit events that were dropped, because too many waited.",
                self._all_lost,
            ),
        ]

    async def settled(self) -> None:
        """Return once the store has all earlier events, or is known to be away."""
        noted = self._noted
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.hub_store_timeout), self._progress:
                await self._progress.wait_for(lambda: self._settled >= noted or self._is_away)

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Write events to the store during the block; the last ones get one more timeout."""
        writing = asyncio.create_task(self._keep(), name="keep audit events")
        try:
            yield
        finally:
            await self._finish()
            writing.cancel()
            await asyncio.wait([writing])

    async def _finish(self) -> None:
        try:
            async with asyncio.timeout(self._limits.hub_store_timeout), self._progress:
                await self._progress.wait_for(lambda: self._settled >= self._noted)
        except TimeoutError:
            logger.error("%d events could not be kept", self._noted - self._settled)

    def _queue(self, event: AuditEvent) -> None:
        if self._is_full:
            self._waiting.popleft()
            self._give_up(1)
        self._waiting.append(event)
        self._noted += 1
        self._is_any.set()

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) >= self._limits.hub_audit_waiting

    def _give_up(self, count: int) -> None:
        if not self._lost:
            logger.error("events are lost from now on")
        self._lost += count
        self._all_lost += count
        self._settled += count

    async def _keep(self) -> None:
        while True:
            await self._is_any.wait()
            size = min(_BATCH, len(self._waiting))
            is_kept = await self._keep_batch([self._waiting.popleft() for _ in range(size)])
            if is_kept and self._lost and not self._is_full:
                await self._tell_lost()
            if not self._waiting:
                self._is_any.clear()

    async def _keep_batch(self, batch: list[AuditEvent]) -> bool:
        while True:
            try:
                await self._store.add_events(batch)
            except StoreUnavailable:
                await self._advance(0, is_away=True)
                await asyncio.sleep(_PAUSE_SECONDS)
            except Exception:
                # Another attempt would fail in the same way.
                logger.exception("%d events cannot be kept", len(batch))
                self._give_up(len(batch))
                await self._advance(0)
                return False
            else:
                await self._advance(len(batch))
                return True

    async def _advance(self, count: int, *, is_away: bool = False) -> None:
        async with self._progress:
            self._settled += count
            self._is_away = is_away
            self._progress.notify_all()

    async def _tell_lost(self) -> None:
        """Note how many events were dropped; the store is back."""
        lost, self._lost = self._lost, 0
        logger.error("%d events were lost", lost)
        await self.note("events lost", detail=str(lost))
