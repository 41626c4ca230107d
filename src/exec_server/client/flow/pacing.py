"""When a connection is read: untaken output must neither fill the memory nor stop the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from weakref import WeakSet

from exec_server.client.flow.reminders import Withheld
from exec_server.transport.connection import Connection


class Flow:
    """Reads on, or lets the server feel that somebody is behind.

    Processes with a window are held back one by one, by `withheld` acknowledgements. Without
    windows the protocol cannot do that, and an answer arrives behind all the output that was sent
    before it. So whoever takes output too slowly holds up the connection, and with it the process
    that writes too fast, as long as nobody else is harmed:

    * While nobody waits for anything, the connection is not read until those behind catch up.
    * A call under way has it read on at once; those behind hold more meanwhile, up to their bound.
    * Whoever waits for a process to say something waits for those behind, too, as long as these
      take something every *patience* seconds. Then they lose their claim until they take again.
    """

    def __init__(self, *, patience: float) -> None:
        self._patience = patience
        self._connection: Connection | None = None
        # Weak: a handle that was dropped claims nothing. Nobody needs to be told of it, because
        # a connection that stays unread harms nobody until somebody waits and looks here again.
        self._behind: WeakSet[object] = WeakSet()
        self.withheld = Withheld(patience=patience, is_watched=self._was_watched)
        self._is_news_wanted = False
        self._calls = 0
        self._watchers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._progress = 0.0

    def use(self, connection: Connection | None) -> None:
        """From now on it is *connection* that is read."""
        self._connection = connection
        self._update()

    def fall_behind(self, consumer: object) -> None:
        """*consumer* has too much to take; said again whenever it has taken some of it."""
        self._behind.add(consumer)
        self._progress = asyncio.get_running_loop().time()
        self._update()

    def catch_up(self, consumer: object) -> None:
        self._behind.discard(consumer)
        self._update()

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """An answer is awaited inside."""
        self._calls += 1
        self._update()
        try:
            yield
        finally:
            self._calls -= 1
            self._update()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """News of a process are awaited inside."""
        self._watchers += 1
        self._is_news_wanted = True
        self._update()
        try:
            yield
        finally:
            self._watchers -= 1
            self._update()

    def _was_watched(self) -> bool:
        """Whether news of any process were awaited since this was last asked."""
        was_wanted, self._is_news_wanted = self._is_news_wanted, self._watchers > 0
        return was_wanted

    def _update(self) -> None:
        is_held_up = bool(self._behind) and not self._calls
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
