"""The watch of missing paths that a client may have: what its user sees, and who settles it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from exec_server.errors import ConnectionClosed
from exec_server.protocol import fs


class MissingWatch:
    """A watch of paths that did not exist. It reports the first change and is over then."""

    def __init__(self, changed: asyncio.Future[None]) -> None:
        self._changed = changed

    async def changed(self) -> None:
        """Wait until something has changed. Raises ConnectionClosed if the connection is lost."""
        await asyncio.shield(self._changed)


class MissingWatches:
    """Numbers the watches of one connection, of which the last one counts, and settles them."""

    def __init__(self) -> None:
        self._changed: asyncio.Future[None] | None = None
        self._last_id = 0

    async def start(self, ask: Callable[[int], Awaitable[bool]]) -> MissingWatch | None:
        """Start a watch; *ask* sends the request for this number and returns True if it is on."""
        self._last_id += 1
        # This comes before the request leaves, because the event may overtake the answer.
        before, changed = self._changed, asyncio.get_running_loop().create_future()
        self._changed = changed
        if await ask(self._last_id):
            return MissingWatch(changed)
        self._changed = before
        return None

    def event_received(self, event: fs.MissingChangedEvent) -> None:
        if event.watch_id == self._last_id:
            self._settle(None)

    def connection_lost(self) -> None:
        self._settle(ConnectionClosed("the connection was lost"))
        # Numbers and watches belong to a connection.
        self._changed, self._last_id = None, 0

    def _settle(self, error: Exception | None) -> None:
        if self._changed is None or self._changed.done():
            return
        if error is None:
            self._changed.set_result(None)
        else:
            self._changed.set_exception(error)
            # Reading the exception tells asyncio that it need not warn if no task waits for it.
            self._changed.exception()
