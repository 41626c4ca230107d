"""Warm helpers: one for each distinct plan, a bounded number, for a bounded time.

Every request makes a new plan from its policy and from the file system as it is. Requests with
equal plans share a helper; others do not. A helper is also replaced if a file at one of its mount
points was: see `mounted`.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from exec_server.errors import InternalError
from exec_server.files.confined.helper import Helper, HelperProcess
from exec_server.files.confined.mounted import Mounted
from exec_server.limits import Limits
from exec_server.sandbox.model import Plan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Started(NamedTuple):
    """A confined process that speaks on *sock*."""

    sock: socket.socket
    process: HelperProcess


# Starts a helper that is confined by a plan. Raises RpcError.
Starter = Callable[[Plan], Awaitable[Started]]


class _PooledHelper:
    """A helper that runs, or one that is being started for all requests that wait for it."""

    def __init__(self, starting: asyncio.Task[Helper], mounted: Mounted) -> None:
        self.starting = starting
        self.mounted = mounted
        self.users = 0
        self.idle_timer: asyncio.TimerHandle | None = None

    @property
    def can_serve(self) -> bool:
        """True if the helper is confined like a new one for an equal plan."""
        return not self.is_closed and self.mounted.is_still_there()

    @property
    def is_closed(self) -> bool:
        return self.starting.done() and (self.has_failed or self.starting.result().is_closed)

    @property
    def has_failed(self) -> bool:
        return self.starting.cancelled() or self.starting.exception() is not None


class HelperPool:
    """At most `sandbox_helpers` helpers. The least recently used idle one is ended first."""

    def __init__(self, start: Starter, limits: Limits) -> None:
        self._start = start
        self._limits = limits
        # The helpers, in the order of their last use.
        self._entries: OrderedDict[Plan, _PooledHelper] = OrderedDict()
        # Set when a helper may have become idle.
        self._room = asyncio.Event()
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._entries)

    @asynccontextmanager
    async def borrow(self, plan: Plan) -> AsyncIterator[Helper]:
        """A helper for *plan*, for one block. Raises RpcError if there is none in time."""
        entry = self._entry(plan) or await self._make_room(plan)
        entry.users += 1
        if entry.idle_timer is not None:
            entry.idle_timer.cancel()
            entry.idle_timer = None
        try:
            yield await asyncio.shield(entry.starting)
        finally:
            entry.users -= 1
            self._put_back(plan, entry)

    def _entry(self, plan: Plan) -> _PooledHelper | None:
        """The helper for *plan*, which may have to be started; None if there are too many."""
        entry = self._entries.get(plan)
        if entry is not None and not entry.can_serve:
            self._forget(plan, entry)
            entry = None
        if entry is not None:
            self._entries.move_to_end(plan)
        elif len(self._entries) < self._limits.sandbox_helpers or self._evict():
            mounted = Mounted(plan)
            starting = asyncio.get_running_loop().create_task(self._begin(plan))
            entry = self._entries[plan] = _PooledHelper(starting, mounted)
        return entry

    async def _make_room(self, plan: Plan) -> _PooledHelper:
        """Wait until another helper is idle, and start one for *plan* in its place."""
        try:
            async with asyncio.timeout(self._limits.sandbox_helper_start):
                while (entry := self._entry(plan)) is None:
                    self._room.clear()
                    await self._room.wait()
                return entry
        except TimeoutError:
            count = self._limits.sandbox_helpers
            raise InternalError(f"fs sandbox helper failed: {count} others are busy") from None

    async def _begin(self, plan: Plan) -> Helper:
        try:
            async with asyncio.timeout(self._limits.sandbox_helper_start):
                started = await self._start(plan)
                helper = Helper(
                    started.sock,
                    started.process,
                    call_seconds=self._limits.sandbox_call,
                    max_calls=self._limits.sandbox_helper_calls,
                )
                try:
                    await helper.wait_ready()
                except BaseException:
                    helper.close("fs sandbox helper failed: it did not start in time")
                    raise
                return helper
        except TimeoutError:
            raise InternalError("fs sandbox helper failed: it did not start in time") from None

    def _evict(self) -> bool:
        for key, entry in self._entries.items():
            if not entry.users:
                self._forget(key, entry)
                return True
        return False

    def _put_back(self, key: Plan, entry: _PooledHelper) -> None:
        if entry.users:
            return
        if entry.is_closed or self._entries.get(key) is not entry:
            self._forget(key, entry)
        else:
            loop = asyncio.get_running_loop()
            idle = self._limits.sandbox_helper_idle
            entry.idle_timer = loop.call_later(idle, self._forget, key, entry)
        self._room.set()

    def _forget(self, key: Plan, entry: _PooledHelper) -> None:
        """Give the helper to no further request; it ends now, or after its last user."""
        if self._entries.get(key) is entry:
            del self._entries[key]
        if entry.users and not self._is_stopped:
            return
        entry.mounted.close()
        if entry.idle_timer is not None:
            entry.idle_timer.cancel()
        if not entry.starting.done():
            entry.starting.cancel()
        elif not entry.has_failed:
            entry.starting.result().close("fs sandbox helper failed: it is no longer needed")

    def stop(self) -> None:
        """End every helper at once."""
        self._is_stopped = True
        for key, entry in tuple(self._entries.items()):
            self._forget(key, entry)
