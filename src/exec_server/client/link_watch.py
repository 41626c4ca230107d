"""LinkWatch: notices a connection that carries nothing any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from exec_server.client.connection_link import ConnectionLink
from exec_server.limits import Limits

logger = logging.getLogger(__name__)

# The watch looks this many times before it sends a probe.
_LOOKS = 3


class LinkWatch:
    """Watches a connection while the client waits for something; an idle client costs nothing.

    A router that forgets a connection tells neither end. So after `silence` seconds without a byte
    the server is asked for a sign of life, and after `silence_limit` the connection is given up.
    The time is counted in looks: a program that was stopped, or a computer that slept, has missed
    looks and not signs of life.
    """

    def __init__(
        self,
        *,
        limits: Limits,
        is_needed: Callable[[], bool],
        is_reading: Callable[[], bool],
        give_up: Callable[[ConnectionLink], None],
    ) -> None:
        """*is_reading* is false while the client itself does not read the connection."""
        self._limits = limits
        self._is_needed = is_needed
        self._is_reading = is_reading
        self._give_up = give_up
        self._link: ConnectionLink | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._activity: object = None
        self._quiet = 0.0
        self._has_asked = False

    def use(self, link: ConnectionLink | None) -> None:
        """Watch *link* from now on."""
        self._link = link
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.wake()

    def wake(self) -> None:
        """The client begins to wait for something."""
        if self._timer is None and self._link is not None and self._is_needed():
            self._activity = self._link.activity
            self._quiet, self._has_asked = 0.0, False
            self._look_later()

    @property
    def _pause(self) -> float:
        return self._limits.silence / _LOOKS

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._look)

    def _look(self) -> None:
        self._timer = None
        link = self._link
        if link is None or link.is_lost or not self._is_needed():
            return
        activity = link.activity
        if activity != self._activity or not self._is_reading():
            self._activity, self._quiet, self._has_asked = activity, 0.0, False
        else:
            self._quiet += self._pause
        # Half a pause is more than the error of adding up pauses.
        if not self._has_asked and self._quiet + self._pause / 2 > self._limits.silence:
            self._has_asked = link.probe()
        if self._has_asked and self._quiet + self._pause / 2 > self._limits.silence_limit:
            logger.info("nothing was heard for %g s; the connection is replaced", self._quiet)
            self._give_up(link)
            return
        self._look_later()
