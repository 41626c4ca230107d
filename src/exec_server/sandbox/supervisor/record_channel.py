"""The supervisor's end of its socket to the server: marshalled tuples, one a packet.

The keeper loads this file by its path, so it imports the standard library only.
"""

from __future__ import annotations

import marshal
import socket
import time

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Counts that have changed are told after this time.
_TELL_SECONDS = 0.05
_PACKET_BYTES = 1 << 16


class RecordChannel:
    """The socket to the server. Calls never wait for it: what does not fit is told later."""

    def __init__(self, fd: int) -> None:
        self._sock = socket.socket(fileno=fd)
        self._sock.setblocking(False)
        self.fd = fd
        self._waiting: list[tuple[Any, ...]] = []
        self._counts: dict[str, int] = {}
        # When the next counts are told; None if none has changed.
        self.due: float | None = None

    def receive_file(self) -> int | None:
        """The descriptor that the first message brings; None if it was lost."""
        _, fds, _, _ = socket.recv_fds(self._sock, _PACKET_BYTES, 1)
        return fds[0] if fds else None

    def put(self, message: tuple[Any, ...]) -> None:
        self._waiting.append(message)
        self._flush()

    def recount(self, denial_id: str, count: int) -> None:
        self._counts[denial_id] = count
        self.touch()

    def touch(self) -> None:
        if self.due is None:
            self.due = time.monotonic() + _TELL_SECONDS

    def tell_when_due(self, totals: Any) -> None:
        if self.due is not None and time.monotonic() >= self.due:
            self.due = None
            self._flush()
            # A server that is behind with reading gets the counts later.
            if not self._waiting:
                self.tell(totals())

    def tell(self, totals: tuple[Any, ...]) -> None:
        """Tell all counts that have changed."""
        self.due = None
        self._waiting += [("count", *item) for item in self._counts.items()]
        self._counts.clear()
        self._waiting.append(totals)
        self._flush()

    def finish(self, totals: tuple[Any, ...]) -> None:
        """Tell everything, however long the server takes; then there is nothing to answer."""
        self._sock.setblocking(True)
        self.tell(totals)

    def receive(self) -> tuple[Any, ...] | None:
        try:
            data = self._sock.recv(_PACKET_BYTES)
        except BlockingIOError:
            return ("",)
        except OSError:
            return None
        message = marshal.loads(data) if data else None
        return message if isinstance(message, tuple) else None

    def _flush(self) -> None:
        while self._waiting:
            try:
                self._sock.send(marshal.dumps(self._waiting[0]))
            except BlockingIOError:
                self.touch()
                return
            except OSError:
                # The server is gone.
                self._waiting.clear()
                return
            del self._waiting[0]
