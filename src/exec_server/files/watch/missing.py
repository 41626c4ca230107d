"""The only watch of a connection: fs/watchMissing replaces it, and it fires once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from exec_server.errors import InvalidRequest
from exec_server.files.nowait import linux_calls
from exec_server.files.runner import Runner
from exec_server.files.watch.watcher import Watch, watch
from exec_server.limits import Limits
from exec_server.protocol import fs

_NOT_WATCHING = fs.WatchMissingResult(False)


class MissingPathsWatch:
    def __init__(
        self, runner: Runner, limits: Limits, notify: Callable[[fs.MissingChangedEvent], None]
    ) -> None:
        self._runner = runner
        self._limits = limits
        self._notify = notify
        self._last_id = -1
        self._watch: Watch | None = None

    def replace(
        self, params: fs.WatchMissingParams
    ) -> fs.WatchMissingResult | Awaitable[fs.WatchMissingResult]:
        """Replace the watch. An id that is not larger than all earlier ones changes nothing."""
        if params.watch_id <= self._last_id:
            return _NOT_WATCHING
        self._last_id = params.watch_id
        self.drop()
        try:
            missing = [path.native for path in params.missing]
            present = None if params.present is None else params.present.native
        except InvalidRequest:
            return _NOT_WATCHING
        if not linux_calls.IS_LINUX or not 1 <= len(missing) <= self._limits.watched_paths:
            return _NOT_WATCHING
        return self._start(params.watch_id, missing, present)

    async def _start(
        self, watch_id: int, missing: list[bytes], present: bytes | None
    ) -> fs.WatchMissingResult:
        def after(found: Watch | None, error: BaseException | None) -> None:
            if found is None:
                return
            if self._runner.is_lost() or self._last_id != watch_id:
                self._close(found)
                return
            self._watch = found
            # The answer leaves in the next turn of the event loop, and the event must come later.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, loop.call_soon, self._arm, found, watch_id)

        return fs.WatchMissingResult(
            await self._runner.run(watch, missing, present, after=after) is not None
        )

    def _arm(self, found: Watch, watch_id: int) -> None:
        if self._watch is found:
            found.arm(lambda: self._fire(watch_id))

    def _fire(self, watch_id: int) -> None:
        self.drop()
        self._notify(fs.MissingChangedEvent(watch_id))

    def drop(self) -> None:
        """Stop watching."""
        found, self._watch = self._watch, None
        if found is not None:
            found.disarm()
            self._close(found)

    def _close(self, found: Watch) -> None:
        # The kernel needs milliseconds to close the queue, because notices may be on their way.
        self._runner.workers.call(found.close)
