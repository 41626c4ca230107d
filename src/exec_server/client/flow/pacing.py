"""ReadPacing: when the connection is read, if output or HTTP bodies are not taken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from weakref import WeakSet

from exec_server.transport.connection import Connection


class ReadPacing:
    """Pauses the reading of a connection while a consumer is behind.

    Without windows the protocol cannot slow down one process alone, and an answer arrives behind
    all the output that was sent before it. So a consumer that takes its output too slowly pauses
    the connection, and with it the process that writes too fast, as long as no other task suffers:

    * While no task waits for anything, the connection is not read until the consumer catches up.
    * A call under way resumes the reading at once. Consumers that are behind hold more meanwhile,
      up to their bound.
    * A task that waits for an event of a process waits for those consumers, too, as long as they
      take something every *patience* seconds. After that they lose their claim until they take
      something again.
    """

    def __init__(self, *, patience: float) -> None:
        self._patience = patience
        self._connection: Connection | None = None
        # The references are weak: a handle that was dropped has no claim. When that happens nothing
        # needs to be updated, because an unread connection does no harm until a task waits, and
        # that task looks here again.
        self._behind: WeakSet[object] = WeakSet()
        self._is_news_wanted = False
        self._calls = 0
        self._watchers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._progress = 0.0

    def use(self, connection: Connection | None) -> None:
        """Control the reading of *connection* from now on."""
        self._connection = connection
        self._update()

    def fall_behind(self, consumer: object) -> None:
        """*consumer* holds too much that is not taken; repeat it whenever it has taken some."""
        self._behind.add(consumer)
        self._progress = asyncio.get_running_loop().time()
        self._update()

    def catch_up(self, consumer: object) -> None:
        """*consumer* no longer holds too much."""
        self._behind.discard(consumer)
        self._update()

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """The block waits for the answer to a call."""
        self._calls += 1
        self._update()
        try:
            yield
        finally:
            self._calls -= 1
            self._update()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """The block waits for an event of a process."""
        self._watchers += 1
        self._is_news_wanted = True
        self._update()
        try:
            yield
        finally:
            self._watchers -= 1
            self._update()

    def was_watched(self) -> bool:
        """True if a task has waited for an event of any process since this was last called."""
        was_wanted, self._is_news_wanted = self._is_news_wanted, self._watchers > 0
        return was_wanted

    @property
    def is_calling(self) -> bool:
        """True while a task waits for the answer to a call."""
        return self._calls > 0

    @property
    def is_reading(self) -> bool:
        """False while the connection is not read because a consumer is behind."""
        return not self._behind or self._calls > 0

    def _update(self) -> None:
        is_held_up = not self.is_reading
        if self._connection is not None:
            if is_held_up:
                self._connection.pause_reading()
            else:
                self._connection.resume_reading()
        if is_held_up and self._watchers:
            if self._timer is None:
                self._start_timer(self._patience)
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_timer(self, delay: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay, self._lose_patience)

    def _lose_patience(self) -> None:
        idle = asyncio.get_running_loop().time() - self._progress
        if idle < self._patience:
            self._start_timer(self._patience - idle)
            return
        self._timer = None
        self._behind.clear()
        self._update()
