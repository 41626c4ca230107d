"""ClientStreams: the client's ends of its byte streams, which outlive connections."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from exec_server.client.connection_link import ConnectionLink
from exec_server.client.streams.helper_streams import HelperCarrier, open_by_helper
from exec_server.client.streams.stream_place import StreamPlace
from exec_server.errors import ConnectionClosed, RpcError
from exec_server.limits import Limits
from exec_server.protocol import streams
from exec_server.protocol.method import Event
from exec_server.streams.byte_stream import ACK_BYTES, ByteStream
from exec_server.streams.pace import SMALL_BYTES, BulkPace
from exec_server.streams.turns import StreamTurns

if TYPE_CHECKING:
    from exec_server.client.client_session import ClientSession

_NEEDS = "it cannot carry connections to its ports"
# Called with each stream that a listener accepts, and the address of its other end.
OnAccepted = Callable[[ByteStream, tuple[str, int] | None], None]


class RemoteListener:
    """A socket that the server listens on for this client."""

    def __init__(
        self, owner: ClientStreams, listener_id: str, place: StreamPlace, on_accepted: OnAccepted
    ) -> None:
        self.id = listener_id
        # Where it listens, with the port that the server has chosen.
        self.place = place
        # Called with the reason if the server has lost it.
        self.on_lost: Callable[[str], None] = lambda reason: None
        self.on_accepted = on_accepted
        # The number of the last stream that was accepted.
        self.count = 0
        self._owner = owner

    def close(self) -> None:
        """Stop listening; the streams that were accepted go on."""
        self._owner.forget_listener(self)


class ClientStreams:
    """Opens streams over the connection in use, and continues them over the next one."""

    def __init__(self, session: ClientSession, *, limits: Limits) -> None:
        self.pace = BulkPace(asyncio.get_running_loop())
        self.turns = StreamTurns(self.pace)
        self._session = session
        self._limits = limits
        self._link: ConnectionLink | None = None
        self._streams: dict[str, ByteStream] = {}
        self._listeners: dict[str, RemoteListener] = {}
        self._carriers: set[HelperCarrier] = set()
        # The streams whose `stream/open` is not answered.
        self._opening: set[str] = set()
        # Where the server is with each stream, while a new connection is not in use yet.
        self._resumed: dict[str, streams.ResumedStream] = {}

    @property
    def has_open(self) -> bool:
        """True if there is a stream or a listener."""
        return bool(self._streams or self._listeners)

    async def offered(self) -> bool:
        """True if the server carries streams."""
        return await self._session.offers("streams")

    # Opening.

    async def open(self, place: StreamPlace) -> tuple[ByteStream, tuple[str, int] | None]:
        """A stream to *place*, and the address that the server has connected to.

        The error of the server's system is an OSError. On a server without streams, a helper
        command there carries the bytes.
        """
        if not await self.offered():
            return await self._open_by_helper(place), None
        stream = ByteStream(_new_id(), self, window=self._limits.stream_window)
        self._streams[stream.id] = stream
        self._opening.add(stream.id)
        params = streams.OpenParams(
            stream.id, place.host, place.port, place.path, self._limits.stream_window, ACK_BYTES
        )
        try:
            result = await self._session.call(streams.OPEN, params, repeat=True)
        except BaseException:
            self._streams.pop(stream.id, None)
            self._session.send(streams.CLOSE, streams.CloseParams([stream.id]))
            raise
        finally:
            self._opening.discard(stream.id)
        stream.window = min(stream.window, result.window)
        stream.other_end_acknowledges(result.acks)
        if result.address is None:
            return stream, None
        return stream, (result.address, result.port or 0)

    async def _open_by_helper(self, place: StreamPlace) -> ByteStream:
        carrier = await open_by_helper(self._session, place)
        # Its tasks would be collected with a stream that its user holds no more.
        self._carriers.add(carrier)
        carrier.on_ended = self._carriers.discard
        return carrier.near

    async def listen(self, place: StreamPlace, on_accepted: OnAccepted) -> RemoteListener:
        """Listen on *place* of the server's machine; *on_accepted* gets each stream."""
        await self._session.require("streams", _NEEDS)
        listener = RemoteListener(self, _new_id(), place, on_accepted)
        self._listeners[listener.id] = listener
        params = streams.ListenParams(
            listener.id, place.host, place.port, place.path, self._limits.stream_window, ACK_BYTES
        )
        try:
            result = await self._session.call(streams.LISTEN, params, repeat=True)
        except BaseException:
            listener.close()
            raise
        listener.place = StreamPlace(result.address, result.port, result.path)
        return listener

    def forget_listener(self, listener: RemoteListener) -> None:
        if self._listeners.pop(listener.id, None) is not None:
            self._session.send(streams.CLOSE, streams.CloseParams([listener.id]))

    async def list(self, *, all_sessions: bool = False) -> list[streams.StreamInfo]:
        """The streams and listeners that the server has, of this session or of all."""
        await self._session.require("streams", _NEEDS)
        params = streams.StreamListParams(all_sessions)
        return (await self._session.call(streams.LIST, params, repeat=True)).streams

    def close(self) -> None:
        """The client leaves: the server drops everything."""
        ids = [*self._listeners, *self._streams]
        self._listeners.clear()
        if ids:
            self._session.send(streams.CLOSE, streams.CloseParams(ids))
        for stream in tuple(self._streams.values()):
            stream.detach()
            stream.break_off("the client is closed")

    def typed(self, count: int) -> None:
        """So many bytes are written to a process: bulk makes way for what a person types."""
        if self._streams and count <= SMALL_BYTES:
            self.pace.talked()

    # Events of the server.

    def event_received(self, event: Any) -> None:
        if isinstance(event, streams.AcceptedEvent):
            self._accepted(event)
            return
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return
        if isinstance(event, streams.DataEvent):
            stream.data_arrived(event.position, event.chunk.data)
        elif isinstance(event, streams.StreamAckEvent):
            stream.acknowledged(event.position)
        elif isinstance(event, streams.EndEvent):
            stream.end_arrived(event.position, is_closed=event.closed)
        else:
            stream.reset_arrived(event.reason)

    def _accepted(self, event: streams.AcceptedEvent) -> None:
        listener = self._listeners.get(event.listener_id)
        if listener is None:
            self._session.send(streams.CLOSE, streams.CloseParams([event.stream_id]))
            return
        if event.stream_id in self._streams:
            # A stream of ours is not replaced by one that the server names alike.
            return
        listener.count = event.number
        window = min(event.window, self._limits.stream_window)
        stream = ByteStream(event.stream_id, self, window=window)
        stream.other_end_acknowledges(event.acks)
        self._streams[stream.id] = stream
        if self._link is None:
            # It was accepted before the new connection is in use.
            stream.detach()
            self._resumed[stream.id] = streams.ResumedStream()
        peer = None if event.address is None else (event.address, event.port or 0)
        listener.on_accepted(stream, peer)

    # The wire of the streams.

    def send_bulk(self, before: bytes, data: bytes, after: bytes) -> None:
        if self._link is not None:
            self._link.send_bulk(before, data, after)

    def send_event(self, event: Event[Any], params: Any) -> None:
        if self._link is not None:
            self._link.notify(event, params)

    def stream_over(self, stream: ByteStream) -> None:
        self._streams.pop(stream.id, None)

    # Connections.

    def connection_lost(self) -> None:
        self._link = None
        self.turns.close()
        for stream in self._streams.values():
            stream.detach()

    async def restore(self, link: ConnectionLink) -> None:
        """Agree with the server on where both ends of each stream are."""
        self._resumed = {}
        if not self.has_open:
            return
        held = {key: streams.HeldStream(each.position) for key, each in self._streams.items()}
        counts = {key: listener.count for key, listener in self._listeners.items()}
        try:
            result = await link.call(
                streams.RESUME,
                streams.ResumeParams(held, counts),
                seconds=self._limits.stream_connect_timeout,
            )
        except RpcError as exc:
            # Another server has taken the place of the one that had them, and knows none.
            gone = {key: streams.ResumedStream(reset=exc.message) for key in held}
            result = streams.ResumeResult(gone, [])
        self._resumed |= result.streams
        for key in self._listeners.keys() - set(result.listeners) - self._opening:
            lost = self._listeners.pop(key)
            lost.on_lost("the server does not listen any more")

    def connected(self, link: ConnectionLink) -> None:
        """Everything goes over *link* from now on."""
        self._link = link
        link.turns = self.turns
        resumed, self._resumed = self._resumed, {}
        for key, known in resumed.items():
            stream = self._streams.get(key)
            if stream is None:
                continue
            if key in self._opening and known.reset is not None:
                # The server has not heard of it yet; the request is repeated.
                stream.resume(0)
            else:
                self._continue(stream, known)
        if not link.is_writing_paused:
            self.turns.open()

    def _continue(self, stream: ByteStream, known: streams.ResumedStream) -> None:
        if known.reset is None and not known.over:
            stream.resume(known.received)
            return
        if known.over:
            # Only the last acknowledgement is missing.
            stream.acknowledged(known.received)
        stream.reset_arrived(known.reset or "the stream is over")

    def session_lost(self, error: ConnectionClosed) -> None:
        self._listeners, lost = {}, self._listeners
        for listener in lost.values():
            listener.on_lost(str(error))
        for stream in tuple(self._streams.values()):
            stream.reset_arrived(str(error))


def _new_id() -> str:
    return uuid.uuid4().hex
