"""One stream of the executor's socket, as a Connection."""

from __future__ import annotations

import asyncio
from typing import Protocol

from exec_server.relay.frame import StreamId
from exec_server.relay.records import Join
from exec_server.transport.connection import Identity, Receiver


class StreamCarrier(Protocol):
    """The socket as its streams see it."""

    is_writing_paused: bool

    @property
    def unsent_bytes(self) -> int: ...

    def send(self, stream_id: StreamId, *parts: bytes) -> None: ...

    def join_with(self, stream_id: StreamId, join: Join) -> None: ...

    def close_stream(self, stream_id: StreamId, reason: str) -> None: ...

    def pause_stream(self, stream_id: StreamId) -> None: ...

    def resume_stream(self, stream_id: StreamId) -> None: ...


class StreamConnection:
    """The connection to one harness.

    Unsent bytes and pauses in writing are those of the whole socket.
    """

    transport_name = "relay"
    principal: str | None = None
    identity: Identity | None = None
    carries_bytes = True
    # A message that is not JSON-RPC ends the stream.
    malformed_prefix = None

    def __init__(self, carrier: StreamCarrier, stream_id: StreamId) -> None:
        self.peer_name = f"stream {stream_id[:64]}"
        self._carrier = carrier
        self._stream_id = stream_id
        self._loop = asyncio.get_running_loop()
        self._receiver: Receiver | None = None
        self._is_paused = False
        self._is_lost = False

    # Called by the socket.

    def deliver(self, data: bytes) -> None:
        if self._receiver is not None:
            self._receiver.message_received(data)

    def writing_paused(self) -> None:
        if self._receiver is not None:
            self._receiver.writing_paused()

    def writing_resumed(self) -> None:
        if self._receiver is not None:
            self._receiver.writing_resumed()

    def lose(self) -> None:
        """End the stream. The receiver is told soon, but never from within a call of its own."""
        self._is_lost = True
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            self._loop.call_soon(receiver.connection_lost)

    # The methods of a Connection.

    @property
    def unsent_bytes(self) -> int:
        return self._carrier.unsent_bytes

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._carrier.join_with(self._stream_id, getattr(receiver, "join", b"".join))
        if self._is_lost:
            self.lose()
        elif self._carrier.is_writing_paused:
            self._loop.call_soon(self._tell_paused)

    def _tell_paused(self) -> None:
        if self._carrier.is_writing_paused:
            self.writing_paused()

    def send(self, *parts: bytes) -> None:
        if not self._is_lost:
            self._carrier.send(self._stream_id, *parts)

    def send_bytes(self, *parts: bytes) -> None:
        self.send(*parts)

    def close(self, reason: str = "", *, is_violation: bool = False) -> None:
        if not self._is_lost:
            self._carrier.close_stream(self._stream_id, reason)

    def abort(self) -> None:
        self.close("aborted")

    def pause_reading(self) -> None:
        if not self._is_paused and not self._is_lost:
            self._is_paused = True
            self._carrier.pause_stream(self._stream_id)

    def resume_reading(self) -> None:
        if self._is_paused and not self._is_lost:
            self._is_paused = False
            self._carrier.resume_stream(self._stream_id)
