"""Notices that a socket swallows everything: nothing is heard, and nothing that was sent arrives.

A router that forgets a connection tells neither end. So after `silence` seconds without a sign of
life the peer is pinged, and after `silence_limit` seconds the socket is given up. Bytes that leave
the machine for good are a sign of life, too: on a slow line a ping waits behind them.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from exec_server.limits import Limits

# How often in `silence` seconds the watch looks. Looks are counted and not seconds, so that the
# time in which this program stood still is not taken for silence.
_LOOKS = 3


class WatchedSocket(Protocol):
    @property
    def is_reading(self) -> bool: ...

    @property
    def undelivered_bytes(self) -> int:
        """What was sent and has not arrived at the other end of the line."""

    def ping(self) -> None: ...

    def give_up(self) -> None: ...


class SilenceWatch:
    """Watches a socket while *is_needed* is true."""

    def __init__(
        self, socket: WatchedSocket, is_needed: Callable[[], bool], *, limits: Limits
    ) -> None:
        self._socket = socket
        self._is_needed = is_needed
        self._pause = limits.silence / _LOOKS
        self._most = round(limits.silence_limit / self._pause)
        self._loop = asyncio.get_running_loop()
        self._silent_looks = 0
        self._undelivered = 0
        self._timer = self._loop.call_later(self._pause, self._look)

    def heard(self) -> None:
        self._silent_looks = 0

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._pause, self._look)
        before, self._undelivered = self._undelivered, self._socket.undelivered_bytes
        if not self._is_needed() or not self._socket.is_reading or self._undelivered < before:
            self._silent_looks = 0
            return
        self._silent_looks += 1
        if self._silent_looks == _LOOKS:
            self._socket.ping()
        elif self._silent_looks >= self._most:
            self._socket.give_up()


def unacknowledged_bytes(descriptor: int) -> int:
    """The bytes in a socket that the peer's kernel has not acknowledged; 0 if that is unknown."""
    count = array.array("i", [0])
    with contextlib.suppress(OSError, ValueError, ImportError):
        # Not every system of a client has these.
        import fcntl
        import termios

        fcntl.ioctl(descriptor, termios.TIOCOUTQ, count)
    return count[0]
