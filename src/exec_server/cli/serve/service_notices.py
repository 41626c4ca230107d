"""Tells systemd how the service is doing: sd_notify(3), without a library.

Without a NOTIFY_SOCKET in the environment nothing is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import MutableMapping

logger = logging.getLogger(__name__)

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class ServiceNotices:
    """Sends the states of this process to the service manager that has started it, if any.

    The variables are removed from *environ*, so that commands do not speak for the service.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        address, interval, pid = (environ.pop(name, "") for name in _VARIABLES)
        # A name that begins with an @ is in the abstract name space.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        is_ours = not pid or pid == str(os.getpid())
        self._watchdog_seconds = _seconds(interval) if address and is_ours else 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_service(self) -> bool:
        """True if a service manager has started this process and wants to hear of it."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """The service works; this also ends a reload. The watchdog is fed from now on."""
        self._send(f"READY=1\nSTATUS={status}")
        if self._watchdog_seconds and self._timer is None:
            self._feed()

    def reloading(self) -> None:
        # A `Type=notify-reload` service has to tell the time on the clock of systemd.
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send(f"RELOADING=1\nMONOTONIC_USEC={now}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=ending the processes of clients")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _feed(self) -> None:
        """Say twice in each interval that the event loop runs."""
        self._send("WATCHDOG=1")
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._watchdog_seconds / 2, self._feed)

    def _send(self, text: str) -> None:
        if not self._address:
            return
        flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        try:
            with socket.socket(socket.AF_UNIX, flags) as sock:
                sock.connect(self._address)
                sock.send(text.encode())
        except OSError as exc:
            logger.warning("systemd could not be told: %s", exc)


def _seconds(microseconds: str) -> float:
    with contextlib.suppress(ValueError):
        return max(int(microseconds), 0) / 1e6
    return 0.0
