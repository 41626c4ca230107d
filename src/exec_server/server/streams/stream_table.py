"""StreamTable: the streams and listeners of one session."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from exec_server.errors import InvalidParams, InvalidRequest, QuotaReached
from exec_server.limits import Limits
from exec_server.protocol import streams
from exec_server.protocol.envelope import encode_notification
from exec_server.protocol.method import Event
from exec_server.rpc import boundary
from exec_server.server.streams.dialling import dial_tcp, dial_unix, read_host
from exec_server.server.streams.stream_listener import (
    PeerAddress,
    StreamListener,
    bind_tcp,
    bind_unix,
)
from exec_server.server.streams.stream_rules import StreamRules, joined
from exec_server.state.window import WindowBudget
from exec_server.streams.byte_stream import ACK_BYTES, ByteStream
from exec_server.streams.pace import BulkPace
from exec_server.streams.socket_bridge import SocketBridge
from exec_server.streams.turns import StreamTurns

if TYPE_CHECKING:
    from exec_server.server.floors.host_floor import HostFloor

# Streams that are over, of which a client may not have heard.
_REMEMBERED = 1024
_FORGOTTEN = "the server does not have this stream any more"
_DROPPED = "the client does not have this stream any more"


class StreamOutlet(Protocol):
    """The session, which sends messages while it has a connection."""

    def push(self, *parts: bytes) -> None: ...

    def push_bulk(self, before: bytes, data: bytes, after: bytes) -> None: ...


class _Open:
    """One stream: its end here, and what the list says about it."""

    def __init__(self, stream: ByteStream, address: str, listener: StreamListener | None) -> None:
        self.stream = stream
        self.address = address
        self.listener = listener
        self.number = 0 if listener is None else listener.count
        self.accepted: streams.AcceptedEvent | None = None


class StreamTable:
    """Opens and keeps the streams of a session; it outlives connections as the session does.

    `on_over` is called with each stream that has ended: its address, the bytes that came from the
    client and that went to it, and why it was broken off.
    """

    def __init__(
        self,
        outlet: StreamOutlet,
        *,
        rules: StreamRules,
        limits: Limits,
        windows: WindowBudget,
        pace: BulkPace | None = None,
    ) -> None:
        self.turns = StreamTurns(pace)
        self.on_over: Callable[[str, int, int, str], None] | None = None
        self._outlet = outlet
        self._rules = rules
        self._limits = limits
        self._windows = windows
        self._loop = asyncio.get_running_loop()
        self._streams: dict[str, _Open] = {}
        self._listeners: dict[str, StreamListener] = {}
        # Requests under way, which outlive the connection that they came over.
        self._opening: dict[str, asyncio.Task[Any]] = {}
        # How streams that are over have ended, for a client that has to be told.
        self._ended: OrderedDict[str, streams.ResumedStream] = OrderedDict()
        self._is_attached = self._is_closed = False
        # The listeners of a client that has lost its connection, and has not resumed them yet.
        self._stale: set[str] = set()
        self._expiry: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._streams or self._listeners or self._opening)

    # Requests.

    def open(
        self, params: streams.OpenParams, floor: HostFloor | None
    ) -> asyncio.Future[streams.OpenResult]:
        """Connect, and answer; a repeated request is answered like the first one."""
        return self._once(params.stream_id, self._connect(params, floor), self._check_room)

    def listen(self, params: streams.ListenParams) -> asyncio.Future[streams.ListenResult]:
        return self._once(params.listener_id, self._bind(params), self._check_listeners)

    def _once(
        self, key: str, work: Coroutine[Any, Any, Any], check: Callable[[], None]
    ) -> asyncio.Future[Any]:
        task = self._opening.get(key)
        if task is not None:
            work.close()
        else:
            try:
                check()
            except BaseException:
                work.close()
                raise
            task = self._loop.create_task(work, name=f"stream {key}")
            self._opening[key] = task
            task.add_done_callback(lambda done: self._opened(key, done))
        # The connection may be lost meanwhile, and the request repeated.
        return asyncio.shield(task)

    def _opened(self, key: str, task: asyncio.Task[Any]) -> None:
        self._opening.pop(key, None)
        if not task.cancelled():
            task.exception()

    def _check_room(self) -> None:
        if len(self._streams) + len(self._opening) >= self._limits.session_streams:
            most = self._limits.session_streams
            raise QuotaReached(f"a session has at most {most} streams at a time")

    def _check_listeners(self) -> None:
        if len(self._listeners) + len(self._opening) >= self._limits.session_listeners:
            most = self._limits.session_listeners
            raise QuotaReached(f"a session has at most {most} listeners at a time")

    async def _connect(
        self, params: streams.OpenParams, floor: HostFloor | None
    ) -> streams.OpenResult:
        known = self._streams.get(params.stream_id)
        if known is not None:
            return _opened_result(known.stream, None)
        seconds = self._limits.stream_connect_timeout
        if params.path is not None:
            self._rules.check_path(params.path)
            sock, peer = await dial_unix(params.path, seconds=seconds), None
            shown = params.path
        else:
            host, port = read_host(params.host or ""), params.port or 0
            sock, at = await dial_tcp(host, port, rules=self._rules, seconds=seconds, floor=floor)
            shown, peer = joined(host, port), (str(at), port)
        if self._is_closed or params.stream_id in self._streams:
            sock.close()
            is_used = "the session has ended" if self._is_closed else "the id is used already"
            raise InvalidRequest(is_used)
        entry = self._add(params.stream_id, sock, shown, window=params.window, acks=params.acks)
        return _opened_result(entry.stream, peer)

    async def _bind(self, params: streams.ListenParams) -> streams.ListenResult:
        listener = self._listeners.get(params.listener_id)
        if listener is None:
            if params.path is not None:
                self._rules.check_path(params.path)
                sock, is_for_all = bind_unix(params.path), False
            else:
                seconds = self._limits.stream_connect_timeout
                sock, is_for_all = await bind_tcp(
                    params.host or "", params.port or 0, rules=self._rules, seconds=seconds
                )
            window = params.window or self._limits.stream_window
            listener = StreamListener(
                params.listener_id,
                sock,
                window=window,
                path=params.path,
                is_for_all=is_for_all,
            )
            if self._is_closed:
                listener.close()
                raise InvalidRequest("the session has ended")
            listener.acks = params.acks
            listener.on_accepted = self._accepted
            self._listeners[listener.id] = listener
            # The answer leaves first.
            self._loop.call_soon(self._loop.call_soon, self._accept_more)
        address = listener.address
        if address is None:
            return streams.ListenResult(path=listener.path)
        return streams.ListenResult(*address)

    def close_ids(self, ids: list[str]) -> None:
        """End streams and listeners at once; ids that are unknown do not matter."""
        for each in ids:
            task = self._opening.get(each)
            if task is not None:
                task.cancel()
            self._drop_listener(each)
            if each in self._streams:
                self._streams[each].stream.break_off("the client has closed it")

    def infos(self, session: str) -> Iterator[streams.StreamInfo]:
        """What is open, for a list; *session* names the session."""
        for listener in self._listeners.values():
            yield streams.StreamInfo(listener.id, "listener", listener.shown, session)
        for key, entry in self._streams.items():
            yield streams.StreamInfo(
                key,
                "stream",
                entry.address,
                session,
                entry.stream.received,
                entry.stream.written,
                None if entry.listener is None else entry.listener.id,
            )

    # Streams.

    def _add(
        self,
        stream_id: str,
        sock: socket.socket,
        address: str,
        *,
        window: int | None,
        acks: int | None,
        listener: StreamListener | None = None,
    ) -> _Open:
        granted = self._windows.take(window or self._limits.stream_window)
        stream = ByteStream(stream_id, self, window=granted)
        stream.other_end_acknowledges(acks)
        entry = _Open(stream, address, listener)
        self._streams[stream_id] = entry
        SocketBridge(sock, stream, self.turns)
        return entry

    def _accepted(self, listener: StreamListener, sock: socket.socket, peer: PeerAddress) -> None:
        stream_id = self._next_id(listener)
        shown = listener.shown if peer is None else joined(*peer)
        entry = self._add(
            stream_id, sock, shown, window=listener.window, acks=listener.acks, listener=listener
        )
        host, port = (None, None) if peer is None else peer
        entry.accepted = streams.AcceptedEvent(
            listener.id, stream_id, listener.count, entry.stream.window, host, port, ACK_BYTES
        )
        if self._is_attached and listener.id not in self._stale:
            self.send_event(streams.ACCEPTED, entry.accepted)
        else:
            # The client is told when it has said that it goes on with this listener.
            entry.stream.detach()
        self._accept_more()

    def _next_id(self, listener: StreamListener) -> str:
        """The id of the next stream of *listener*; the client may have used it for another one."""
        while True:
            listener.count += 1
            stream_id = f"{listener.id}#{listener.count}"
            if stream_id not in self._streams:
                return stream_id

    def _accept_more(self) -> None:
        has_room = len(self._streams) + len(self._opening) < self._limits.session_streams
        for listener in self._listeners.values():
            if has_room:
                listener.resume()
            else:
                listener.pause()

    # What a client sends about its streams.

    def event_received(self, event: Event[Any], params: Any) -> None:
        try:
            decoded = boundary.decode_params(event.params, params)
        except InvalidParams as exc:
            raise InvalidParams(f"{event.name}: {exc}") from exc
        entry = self._streams.get(decoded.stream_id)
        if entry is None:
            return
        stream = entry.stream
        if isinstance(decoded, streams.DataEvent):
            stream.data_arrived(decoded.position, decoded.chunk.data)
        elif isinstance(decoded, streams.StreamAckEvent):
            stream.acknowledged(decoded.position)
        elif isinstance(decoded, streams.EndEvent):
            stream.end_arrived(decoded.position, is_closed=decoded.closed)
        else:
            stream.reset_arrived(decoded.reason)

    # The wire of the streams.

    def send_bulk(self, before: bytes, data: bytes, after: bytes) -> None:
        self._outlet.push_bulk(before, data, after)

    def send_event(self, event: Event[Any], params: Any) -> None:
        self._outlet.push(encode_notification(event.name, boundary.encode(params)))

    def stream_over(self, stream: ByteStream) -> None:
        entry = self._streams.pop(stream.id, None)
        if entry is None:
            return
        self._windows.give_back(stream.window)
        self._ended[stream.id] = streams.ResumedStream(
            stream.position, over=stream.why_reset is None, reset=stream.why_reset
        )
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
        if self.on_over is not None:
            self.on_over(entry.address, stream.received, stream.written, stream.why_reset or "")
        if not self._is_closed:
            self._accept_more()

    # Connections.

    def detached(self) -> None:
        """The connection is lost: everything is kept until a client resumes it."""
        self._is_attached = False
        self.turns.close()
        self._stop_expiry()
        for entry in self._streams.values():
            entry.stream.detach()

    def attached(self, *, is_paused: bool) -> None:
        """There is a new connection, whose client may resume the streams."""
        self._is_attached = True
        self._stale = set(self._listeners)
        if self._streams or self._stale:
            self._stop_expiry()
            seconds = self._limits.stream_resume_seconds
            self._expiry = self._loop.call_later(seconds, self._expire)
        if not is_paused:
            self.turns.open()

    def resume(self, params: streams.ResumeParams) -> streams.ResumeResult:
        """Go on with the streams that the client has, and drop all others."""
        self._stop_expiry()
        for key in [key for key in self._stale if key not in params.listeners]:
            self._drop_listener(key)
        self._stale.clear()
        known = {key: self._told(key) for key in params.streams}
        # Events of streams that the client has not heard of come before the data of the others.
        for key, entry in list(self._streams.items()):
            held = params.streams.get(key)
            if held is not None:
                entry.stream.resume(held.received)
            elif entry.stream.is_live:
                # It was opened over the new connection.
                continue
            elif self._is_unheard(entry, params):
                assert entry.accepted is not None
                self.send_event(streams.ACCEPTED, entry.accepted)
                entry.stream.resume(0)
            else:
                entry.stream.reset_arrived(_DROPPED)
        return streams.ResumeResult(known, list(self._listeners))

    def _told(self, key: str) -> streams.ResumedStream:
        entry = self._streams.get(key)
        if entry is not None:
            return streams.ResumedStream(entry.stream.position)
        return self._ended.get(key) or streams.ResumedStream(reset=_FORGOTTEN)

    def _is_unheard(self, entry: _Open, params: streams.ResumeParams) -> bool:
        listener = entry.listener
        if listener is None or listener.id not in params.listeners:
            return False
        return entry.number > params.listeners[listener.id]

    def _stop_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _expire(self) -> None:
        """The client of the new connection has not asked for the streams of the old one."""
        self.resume(streams.ResumeParams())

    def _drop_listener(self, key: str) -> None:
        listener = self._listeners.pop(key, None)
        if listener is not None:
            listener.close()

    def close(self) -> None:
        """The session ends."""
        self._is_closed = True
        self._stop_expiry()
        for task in tuple(self._opening.values()):
            task.cancel()
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        for entry in tuple(self._streams.values()):
            entry.stream.break_off("the session has ended")


def _opened_result(stream: ByteStream, peer: PeerAddress) -> streams.OpenResult:
    address, port = peer or (None, None)
    return streams.OpenResult(stream.window, address, port, acks=ACK_BYTES)
