"""The open streams of one socket, and what both relays have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from exec_server.errors import RelayError
from exec_server.relay.effects import Effect, Message, Send, StreamClosed
from exec_server.relay.frame import Data, RelayFrame, Reset, StreamId, Trace, encode
from exec_server.relay.inbox import Inbox
from exec_server.relay.records import Join


class Stream(Protocol):
    """One stream of either relay."""

    inbox: Inbox

    def join_with(self, join: Join) -> None: ...

    def receive(self, data: Data) -> Sequence[bytes]: ...

    def send(self, *parts: bytes, trace: Trace | None = None) -> Iterable[Send]: ...


S = TypeVar("S", bound=Stream)


class Streams(Generic[S]):
    """Streams by their ids. Methods return effects, and none for a stream that is not open."""

    def __init__(self) -> None:
        self._open: dict[StreamId, S] = {}

    @property
    def open_streams(self) -> int:
        return len(self._open)

    def send(
        self, stream_id: StreamId, *parts: bytes, trace: Trace | None = None
    ) -> Iterable[Effect]:
        """Send one message, given in pieces. One that cannot be sent ends the stream.

        Perform all effects before the next call: those of a long message are made one by one.
        """
        stream = self._open.get(stream_id)
        if stream is None:
            return ()
        try:
            return stream.send(*parts, trace=trace)
        except RelayError as exc:
            return self.close(stream_id, str(exc))

    def close(self, stream_id: StreamId, reason: str = "") -> Sequence[Effect]:
        """End a stream from our side and tell the peer."""
        if self._open.pop(stream_id, None) is None:
            return ()
        reason = reason or "closed"
        return [self._reset(stream_id, reason), StreamClosed(stream_id, reason)]

    def join_with(self, stream_id: StreamId, join: Join) -> None:
        """Let *join* make the long messages of this stream."""
        if stream := self._open.get(stream_id):
            stream.join_with(join)

    def pause(self, stream_id: StreamId) -> None:
        """Keep the messages of this stream. If too many come, the stream is reset."""
        if stream := self._open.get(stream_id):
            stream.inbox.pause()

    def resume(self, stream_id: StreamId) -> Sequence[Effect]:
        """Deliver the messages that were kept, and those that follow."""
        stream = self._open.get(stream_id)
        return () if stream is None else _messages(stream_id, stream.inbox.resume())

    def end(self, reason: str = "the socket is gone") -> Sequence[Effect]:
        """End all streams, because the socket is lost."""
        gone, self._open = self._open, {}
        return [StreamClosed(stream_id, reason) for stream_id in gone]

    def _deliver(self, stream_id: StreamId, stream: S, data: Data) -> Sequence[Effect]:
        try:
            messages = stream.receive(data)
        except RelayError as exc:
            return self.close(stream_id, str(exc))
        return _messages(stream_id, messages)

    def _was_reset(self, stream_id: StreamId, reason: str) -> Sequence[Effect]:
        if self._open.pop(stream_id, None) is None:
            return ()
        return [StreamClosed(stream_id, reason)]

    def _reset(self, stream_id: StreamId, reason: str) -> Send:
        """Tell the peer that a stream has ended."""
        return Send(encode(RelayFrame(stream_id, Reset(reason))))


def _messages(stream_id: StreamId, messages: Iterable[bytes]) -> list[Effect]:
    return [Message(stream_id, data) for data in messages]
