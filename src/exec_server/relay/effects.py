"""Effects: requests of the relay to the holder of the socket, to be performed at once in order."""

from __future__ import annotations

from msgspec import Struct

from exec_server.relay.frame import StreamId
from exec_server.relay.keys import PublicKeys


class Send(Struct, frozen=True):
    """Send a frame as one binary WebSocket message: the bytes of *buffer* from *start* on.

    If there are bytes before it, they are free for the header of the message, and the whole buffer
    is given away: the transport masks the frame where it is.
    """

    buffer: bytes | bytearray
    start: int = 0

    @property
    def data(self) -> bytes:
        return bytes(memoryview(self.buffer)[self.start :])

    def __repr__(self) -> str:
        return f"Send({len(self.buffer) - self.start} bytes)"


class Validate(Struct, frozen=True):
    """Ask the registry whether this harness may come in; answer with `Mux.settle(ticket, ...)`."""

    ticket: int
    stream_id: StreamId
    harness_key: PublicKeys
    # It is a secret: it lets its bearer in.
    authorization: str

    def __repr__(self) -> str:
        return f"Validate(ticket={self.ticket}, stream_id={self.stream_id!r})"


class Abandon(Struct, frozen=True):
    """Cancel the question with this *ticket*; its answer is no longer needed."""

    ticket: int


class StreamOpened(Struct, frozen=True):
    """The stream carries messages from now on."""

    stream_id: StreamId


class Message(Struct, frozen=True):
    """One whole message has arrived."""

    stream_id: StreamId
    data: bytes

    def __repr__(self) -> str:
        return f"Message({self.stream_id!r}, {len(self.data)} bytes)"


class StreamClosed(Struct, frozen=True):
    """An open stream has ended. The reason is for logs; the peer may have chosen its words."""

    stream_id: StreamId
    reason: str


Effect = Send | Validate | Abandon | StreamOpened | Message | StreamClosed
