"""Connections whose messages wait until the audit log is on the disk (`--audit-fsync always`).

Only messages that follow a line about their own connection wait for it. They keep their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from exec_server.audit.disk_sync import DiskSync
from exec_server.transport.connection import (
    Audible,
    Connection,
    LocalConnection,
    Receiver,
    bytes_sender,
)
from exec_server.transport.socket_owner import UnixOwner


class HeldConnection:
    """A Connection that sends what it is given once the lines before it are on the disk.

    While messages wait, it is in *holding*, whose connections have to be released.
    """

    def __init__(self, inner: Connection, sync: DiskSync, holding: set[HeldConnection]) -> None:
        self._inner = inner
        self._sync = sync
        self._holding = holding
        # Messages wait for the line with this number.
        self._until = 0
        self._waiting: deque[tuple[int, int, Callable[[], None]]] = deque()
        self._waiting_bytes = 0
        self.transport_name = inner.transport_name
        self.peer_name = inner.peer_name
        self.principal = inner.principal
        self.identity = inner.identity
        self._send_bytes = bytes_sender(inner)
        self.carries_bytes = self._send_bytes is not None
        self.owner: UnixOwner | None = None
        if isinstance(inner, LocalConnection):
            self.owner = inner.owner

    def hold(self) -> None:
        """Hold back everything from now on until the lines so far are on the disk."""
        self._until = self._sync.written

    def release(self) -> None:
        """Send what need not wait any more."""
        while self._waiting and self._waiting[0][0] <= self._sync.synced:
            _, size, act = self._waiting.popleft()
            self._waiting_bytes -= size
            act()
        if not self._waiting:
            self._holding.discard(self)

    def _later(self, size: int, act: Callable[[], None]) -> None:
        self._holding.add(self)
        self._waiting.append((self._until, size, act))
        self._waiting_bytes += size

    @property
    def _is_held(self) -> bool:
        return bool(self._waiting) or self._until > self._sync.synced

    # The connection.

    @property
    def malformed_prefix(self) -> str | None:
        return self._inner.malformed_prefix

    @property
    def unsent_bytes(self) -> int:
        return self._inner.unsent_bytes + self._waiting_bytes

    def attach(self, receiver: Receiver) -> None:
        self._inner.attach(receiver)

    def send(self, *parts: bytes) -> None:
        if self._is_held:
            self._later(sum(map(len, parts)), partial(self._inner.send, *parts))
        else:
            self._inner.send(*parts)

    def send_bytes(self, *parts: bytes) -> None:
        assert self._send_bytes is not None
        if self._is_held:
            self._later(sum(map(len, parts)), partial(self._send_bytes, *parts))
        else:
            self._send_bytes(*parts)

    def close(self, reason: str = "", *, is_violation: bool = False) -> None:
        if self._is_held:
            self._later(0, partial(self._inner.close, reason, is_violation=is_violation))
        else:
            self._inner.close(reason, is_violation=is_violation)

    def abort(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
        self._holding.discard(self)
        self._inner.abort()

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()


class HeldAudibleConnection(HeldConnection):
    """The same, of a connection that notices bytes before they are a whole message."""

    def __init__(self, inner: Connection, sync: DiskSync, holding: set[HeldConnection]) -> None:
        super().__init__(inner, sync, holding)
        assert isinstance(inner, Audible)
        self._audible: Audible = inner

    @property
    def arrived(self) -> object:
        return self._audible.arrived

    @property
    def departed(self) -> object:
        return self._audible.departed


def held(inner: Connection, sync: DiskSync, holding: set[HeldConnection]) -> HeldConnection:
    kind = HeldAudibleConnection if isinstance(inner, Audible) else HeldConnection
    return kind(inner, sync, holding)
