"""Two connected ends without a socket, inside one event loop."""

from __future__ import annotations

import asyncio
from collections import deque

from exec_server.limits import Limits
from exec_server.transport.connection import Identity, Receiver

# About as much as the kernel keeps between two sockets.
_HIGH_WATER = 256 * 1024


def memory_pair(*, limits: Limits) -> tuple[MemoryConnection, MemoryConnection]:
    """Return two connections; each receives what the other sends."""
    one, other = MemoryConnection(limits=limits), MemoryConnection(limits=limits)
    one.other, other.other = other, one
    return one, other


class MemoryConnection:
    """One end of a pair; made by `memory_pair`."""

    malformed_prefix = "failed to parse JSON-RPC message from exec-server memory: "
    transport_name = "memory"
    principal: str | None = None
    identity: Identity | None = None
    carries_bytes = True
    peer_name = "memory"
    other: MemoryConnection

    def __init__(self, *, limits: Limits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._receiver: Receiver | None = None
        # Messages that the other end has sent and we have not delivered.
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._is_reading = True
        self._is_writing_paused = False
        self._is_closing = False
        self._is_lost = False
        self._delivery: asyncio.Handle | None = None
        # Runs from `close` until the other end has read everything.
        self._timer: asyncio.TimerHandle | None = None

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver
        if self._is_lost:
            self._tell_lost()
        else:
            self._schedule()

    # Output.

    def send(self, *parts: bytes) -> None:
        if self._is_closing or self._is_lost:
            return
        self.other._take(b"".join(parts))
        if self.unsent_bytes > _HIGH_WATER and not self._is_writing_paused:
            self._is_writing_paused = True
            if self._receiver is not None:
                self._receiver.writing_paused()

    def send_bytes(self, *parts: bytes) -> None:
        self.send(*parts)

    @property
    def unsent_bytes(self) -> int:
        return self.other._inbox_bytes

    def _drained(self) -> None:
        """The other end has read everything."""
        if self._is_writing_paused:
            self._is_writing_paused = False
            if self._receiver is not None:
                self._receiver.writing_resumed()

    # Input.

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._schedule()

    def _take(self, data: bytes) -> None:
        if not self._is_closing:
            self._inbox.append(data)
            self._inbox_bytes += len(data)
            self._schedule()

    @property
    def _is_listening(self) -> bool:
        return self._is_reading and not self._is_closing and self._receiver is not None

    def _schedule(self) -> None:
        """Deliver soon, but never from within `send`: its caller is not ready to receive."""
        has_news = self._inbox or self.other._is_closing
        if has_news and self._is_listening and self._delivery is None:
            self._delivery = self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._delivery = None
        # Messages that arrive meanwhile wait for the next turn of the loop.
        for _ in range(len(self._inbox)):
            if not self._is_listening:
                break
            self._hand_over(self._inbox.popleft())
        if self._inbox or self._is_closing:
            self._schedule()
            return
        self.other._drained()
        if self.other._is_closing:
            self._end()

    def _hand_over(self, data: bytes) -> None:
        self._inbox_bytes -= len(data)
        if len(data) > self._limits.message_bytes:
            self.close("message too long", is_violation=True)
        elif self._receiver is not None:
            self._receiver.message_received(data)

    # The end.

    def close(self, reason: str = "", *, is_violation: bool = False) -> None:
        """End when all is read, or after the close timeout, which loses the rest."""
        if self._is_closing or self._is_lost:
            return
        self._is_closing = True
        self._forget_inbox()
        if self.other._is_closing:
            self._end()
            return
        self._timer = self._loop.call_later(self._limits.close_timeout, self._end)
        self.other._schedule()

    def abort(self) -> None:
        self._end()

    def _end(self) -> None:
        """Both ends are lost."""
        for end in (self, self.other):
            if not end._is_lost:
                end._lose()

    def _lose(self) -> None:
        self._is_closing = self._is_lost = True
        self._forget_inbox()
        if self._timer is not None:
            self._timer.cancel()
        if self._delivery is not None:
            self._delivery.cancel()
        self._tell_lost()

    def _forget_inbox(self) -> None:
        self._inbox.clear()
        self._inbox_bytes = 0

    def _tell_lost(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            self._loop.call_soon(receiver.connection_lost)
