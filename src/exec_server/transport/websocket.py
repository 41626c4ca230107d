"""One WebSocket as a Connection: joins fragments, corks replies, answers pings and closes.

The module is long because all of these are states of one object that picows calls back.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable, Sequence
from typing import Any, cast

from exec_server.limits import Limits
from exec_server.transport.connection import Assembly, Identity, Receiver
from exec_server.transport.fair_turns import MESSAGES_PER_TURN, HeldFrame, HeldInput
from exec_server.transport.frame_headers import (
    FIRST_BINARY,
    FIRST_TEXT,
    LAST,
    MORE,
    SMALL_HEADERS,
    WHOLE_BINARY,
    WHOLE_TEXT,
    cut,
    frame_header,
)
from exec_server.transport.gathered_writes import writelines_of
from exec_server.transport.picows_internals import stream_of
from exec_server.transport.picows_names import (
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
)
from exec_server.transport.socket_owner import UnixOwner, unix_peer
from exec_server.transport.tcp_activity import TcpActivity, tcp_activity

_TEXT, _BINARY, _CONTINUATION = WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION
# Up to this size one copy is cheaper than a vectored write.
_JOIN_BYTES = 16 * 1024
# The receiver may cut a larger message that came whole.
_CUT_BYTES = 64 * 1024
# A still larger message is not copied as a whole, but taken from the buffer of picows.
_COPIED_BYTES = 2 * 1024 * 1024
# writev takes 1024 buffers at most.
_MOST_BUFFERS = 512
_WRITE_HIGH_WATER = 128 * 1024
# The pieces of small messages that wait for one write; two of each, below a KiB, are 128 KiB.
_MOST_CORKED = 256
# The name of a peer that has no address.
_UNIX = "unix"
# Linux reports that a peer has closed, even behind unread data; others report resets alone.
_HANGUP = getattr(select, "POLLRDHUP", 0)


class WebSocketConnection(WSListener):
    """One WebSocket, on the side of the server or of the client."""

    # With so many attributes, slots take less time and memory than a dictionary.
    __slots__ = (
        "_assemble",
        "_assembled_bytes",
        "_assembly",
        "_corked",
        "_corked_bytes",
        "_cut",
        "_fd",
        "_frames",
        "_frames_before",
        "_frames_ticked",
        "_has_many",
        "_held",
        "_is_closing",
        "_is_holding",
        "_is_server",
        "_is_text",
        "_limits",
        "_loop",
        "_on_open",
        "_queued_bytes",
        "_reading_paused",
        "_receive",
        "_receiver",
        "_silent_ticks",
        "_small_bytes",
        "_stream",
        "_timer",
        "_writelines",
        "_ws",
        "identity",
        "malformed_prefix",
        "owner",
        "peer_name",
        "principal",
    )

    transport_name = "websocket"
    carries_bytes = True

    def __init__(self, *, limits: Limits, on_open: Callable[[WebSocketConnection], None]) -> None:
        self._limits = limits
        self._on_open = on_open
        self._receiver: Receiver | None = None
        # Takes each message; None without a receiver, and from the beginning of the end on.
        self._receive: Callable[[Any], None] | None = None
        self._assemble: Callable[[], Assembly] = _JoinedMessage
        self._cut: Callable[[memoryview], Any] = _uncut
        # A message that is incomplete. Its frames are joined at once, because they may be tiny.
        self._assembly: Assembly | None = None
        self._assembled_bytes = 0
        self._is_text = False
        self._corked: list[bytes] | None = None
        self._corked_bytes = 0
        # A server's messages of fewer bytes go the short way, until the connection ends.
        self._small_bytes = 0
        self._is_closing = False
        self._reading_paused = False
        # Frames of one read beyond a number, which wait for later turns of the event loop.
        self._held: HeldInput[HeldFrame] = HeldInput(self._take_held, self._set_reading)
        self._is_holding = self._has_many = False
        # All frames so far, those before the read that is under way, and those before the last
        # tick.
        self._frames = self._frames_before = self._frames_ticked = 0
        self._silent_ticks = 0
        self._timer: asyncio.TimerHandle | None = None
        self.peer_name = "?"
        self.principal: str | None = None
        self.identity: Identity | None = None
        # The process at the other end of a Unix socket that we serve.
        self.owner: UnixOwner | None = None
        self.malformed_prefix = ""

    # Called by picows.

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._ws = transport
        self._stream: Any = stream_of(transport)
        self._writelines = writelines_of(self._stream)
        self._queued_bytes: Callable[[], int] = self._stream.get_write_buffer_size
        self._stream.set_write_buffer_limits(high=_WRITE_HIGH_WATER)
        # A server does not mask its frames, so they are built here. A plain socket does not encrypt
        # them, so they are written straight to the descriptor.
        self._is_server = not transport.is_client_side
        is_plain = self._is_server and not transport.is_secure
        self._fd = self._stream.get_extra_info("socket").fileno() if is_plain else -1
        if self._is_server:
            self._small_bytes = min(len(SMALL_HEADERS), self._limits.frame_bytes + 1)
        self.peer_name = _peer_name(self._stream)
        if self._is_server and self.peer_name == _UNIX:
            self.owner = unix_peer(self._stream)
        self.malformed_prefix = (
            "failed to parse websocket JSON-RPC message from exec-server websocket "
            f"{self.peer_name}: "
        )
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._limits.ping_interval, self._tick)
        self._on_open(self)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        frames = self._frames = self._frames + 1
        is_last = frame.last_in_buffer
        if is_last:
            self._frames_before = frames
        elif frames - self._frames_before > MESSAGES_PER_TURN and self._is_server:
            self._hold(frame)
            return
        if self._is_holding:
            self._hold(frame)
        elif (
            # Nearly all messages are like this; `_take_frame` has the reasons.
            frame.msg_type is _TEXT
            and frame.fin
            and self._assembly is None
            and frame.payload_size <= _CUT_BYTES
            and (data := frame.get_payload_as_bytes()).isascii()
            and not (frame.rsv1 or frame.rsv2 or frame.rsv3)
            and not transport.is_close_frame_sent
            and (receive := self._receive) is not None
        ):
            if not is_last:
                if self._corked is None:
                    self._corked = []
                receive(data)
            else:
                receive(data)
                if self._corked is not None:
                    self._uncork()
        else:
            self._take_frame(transport, frame)

    def reads_much(self) -> bool:
        """True if the last read of the socket has brought few frames."""
        has_many, self._has_many = self._has_many, False
        return not has_many

    def _take_frame(self, transport: WSTransport, frame: WSFrame | HeldFrame) -> None:
        # picows goes on parsing after a violation that it has reported to the peer.
        if self._is_closing or transport.is_close_frame_sent:
            return
        kind = frame.msg_type
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            self._fail(WSCloseCode.PROTOCOL_ERROR, "reserved bits are set")
        elif (
            (kind is _TEXT or kind is _BINARY)
            and frame.fin
            and self._assembly is None
            and frame.payload_size <= _COPIED_BYTES
        ):
            if kind is _BINARY or frame.payload_size > _CUT_BYTES:
                message = self._cut(frame.get_payload_as_memoryview())
                if message is not None:
                    self._deliver(message, is_last=frame.last_in_buffer)
                    return
            data = frame.get_payload_as_bytes()
            if kind is _BINARY or data.isascii() or _is_utf8(data):
                self._deliver(data, is_last=frame.last_in_buffer)
            else:
                self._refuse_text()
        elif kind == WSMsgType.PING:
            # No more pongs are sent to a peer that does not read them.
            if self._queued_bytes() <= self._limits.unread_answer_bytes:
                transport.send_pong(frame.get_payload_as_bytes())
        elif kind == WSMsgType.CLOSE:
            self._end(WSCloseCode.OK, "")
            self._tell_lost()
        elif kind != WSMsgType.PONG:
            self._collect(frame, kind)

    def on_ws_eof(self) -> None:
        """The peer has closed its side. It counts as gone, even if it still reads."""
        self._begin_end()
        self._abort_later()
        self._tell_lost()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._begin_end()
        self._corked = None
        self._assembly = None
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._tell_lost()

    def _tell_lost(self) -> None:
        receiver, self._receiver, self._receive = self._receiver, None, None
        if receiver is not None:
            receiver.connection_lost()

    def pause_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.writing_paused()

    def resume_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.writing_resumed()

    # Input.

    def _hold(self, frame: WSFrame) -> None:
        """Keep one of many frames for a later turn of the event loop."""
        if not self._is_closing:
            self._has_many = self._is_holding = True
            self._held.add(HeldFrame(frame))

    def _take_held(self, frame: HeldFrame, is_followed: bool) -> None:
        frame.last_in_buffer = not is_followed
        self._take_frame(self._ws, frame)

    def _collect(self, frame: WSFrame | HeldFrame, kind: WSMsgType) -> None:
        """Take one frame of a fragmented or large message."""
        is_first = kind is not _CONTINUATION
        if is_first != (self._assembly is None):
            self._fail(WSCloseCode.PROTOCOL_ERROR, "fragments out of order")
            return
        if self._assembly is None:
            self._is_text = kind is _TEXT
            self._assembly, self._assembled_bytes = self._assemble(), 0
        self._assembled_bytes += frame.payload_size
        if self._assembled_bytes > self._limits.message_bytes:
            self._fail(WSCloseCode.MESSAGE_TOO_BIG, "message too big")
            return
        self._assembly.add(frame.get_payload_as_memoryview())
        if frame.fin:
            assembly, self._assembly = self._assembly, None
            if self._is_text and not assembly.is_utf8():
                self._refuse_text()
                return
            self._deliver(assembly.finish(), is_last=frame.last_in_buffer)

    def _refuse_text(self) -> None:
        self._fail(WSCloseCode.INVALID_TEXT, "text is not UTF-8")

    def _deliver(self, data: Any, *, is_last: bool) -> None:
        if not is_last and self._corked is None:
            self._corked = []
        if self._receive is not None:
            self._receive(data)
        if is_last and self._corked is not None:
            self._uncork()

    def pause_reading(self) -> None:
        if not self._reading_paused and not self._is_closing:
            self._reading_paused = True
            if not self._is_holding:
                self._stream.pause_reading()

    def resume_reading(self) -> None:
        if self._reading_paused and not self._is_closing:
            self._reading_paused = False
            if not self._is_holding:
                self._stream.resume_reading()

    def _set_reading(self, is_on: bool) -> None:
        """Called by the held frames, which must not become more."""
        self._is_holding = not is_on
        if self._reading_paused or self._is_closing:
            return
        if is_on:
            self._stream.resume_reading()
        else:
            self._stream.pause_reading()

    # Output.

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._receive = None if self._is_closing else receiver.message_received
        # An isinstance() of a Protocol looks through all its classes, for each connection.
        self._assemble = getattr(receiver, "assemble", _JoinedMessage)
        self._cut = getattr(receiver, "cut", _uncut)

    def send(self, message: bytes, *more: bytes) -> None:
        size = len(message)
        if more:
            size += sum(map(len, more))
        if size >= self._small_bytes:
            self._send((message, *more), size)
        elif (corked := self._corked) is not None:
            corked.append(SMALL_HEADERS[size])
            corked.append(message)
            if more:
                corked.extend(more)
            if len(corked) > _MOST_CORKED:
                self._uncork_many()
        elif self._fd >= 0 and not self._queued_bytes():
            header = SMALL_HEADERS[size]
            self._write_small(b"".join((header, message, *more)) if more else header + message)
        else:
            self._write([SMALL_HEADERS[size], message, *more], size)

    def send_bytes(self, *parts: bytes) -> None:
        self._send(parts, sum(map(len, parts)), is_text=False)

    def _send(self, parts: tuple[bytes, ...], size: int, *, is_text: bool = True) -> None:
        """Send what is not a small message of a server."""
        if self._is_closing:
            return
        if not self._is_server:
            self._send_masked(_TEXT if is_text else _BINARY, b"".join(parts))
            return
        if size > self._limits.frame_bytes:
            self._send_fragments(parts, FIRST_TEXT if is_text else FIRST_BINARY)
            return
        header = frame_header(WHOLE_TEXT if is_text else WHOLE_BINARY, size)
        if self._corked is None:
            if size <= _JOIN_BYTES and self._fd >= 0 and not self._queued_bytes():
                self._write_small(b"".join((header, *parts)))
            else:
                self._write([header, *parts], size)
        elif size <= _JOIN_BYTES:
            self._corked += (header, *parts)
            self._corked_bytes += size
            if self._corked_bytes > _WRITE_HIGH_WATER or len(self._corked) > _MOST_CORKED:
                self._uncork_many()
        else:
            # Copying a message of this size costs more than the write that corking saves.
            corked, self._corked, self._corked_bytes = self._corked, [], 0
            self._write([b"".join(corked), header, *parts], size)

    def _uncork_many(self) -> None:
        """Bound the answers to the requests of one read, too, in case that the peer reads none."""
        self._uncork()
        self._corked = []

    def _uncork(self) -> None:
        """Send everything that one read of the socket has produced, in one write."""
        corked, self._corked, self._corked_bytes = self._corked, None, 0
        if corked:
            self._write([b"".join(corked)], 0)

    @property
    def unsent_bytes(self) -> int:
        return self._queued_bytes()

    def _write_small(self, data: bytes) -> None:
        """Write a small message to a descriptor for which nothing is queued."""
        try:
            sent = os.write(self._fd, data)
        except OSError:
            # The usual way tells a full socket from a lost one.
            sent = 0
        if sent < len(data):
            self._write([data[sent:]], 0)

    def _write(self, buffers: list[bytes], size: int) -> None:
        if size <= _JOIN_BYTES or len(buffers) > _MOST_BUFFERS:
            buffers = [b"".join(buffers)]
        if self._fd < 0 or self._queued_bytes():
            self._writelines(buffers)
            return
        try:
            sent = os.writev(self._fd, buffers)
        except BlockingIOError:
            sent = 0
        except OSError:
            # The reading side also learns of the end, and reports it once.
            self._stream.abort()
            return
        for index, buffer in enumerate(buffers):
            if sent < len(buffer):
                self._writelines([memoryview(buffer)[sent:], *buffers[index + 1 :]])
                return
            sent -= len(buffer)

    def _send_fragments(self, parts: Sequence[bytes], first_of_all: int) -> None:
        """Cut a message into frames that a peer with the reference's frame limit accepts."""
        self._uncork()
        frames = cut(parts, self._limits.frame_bytes)
        for index, (size, pieces) in enumerate(frames):
            first = first_of_all if index == 0 else LAST if index == len(frames) - 1 else MORE
            self._writelines([frame_header(first, size), *pieces])

    def _send_masked(self, kind: WSMsgType, message: bytes) -> None:
        limit = self._limits.frame_bytes
        for start in range(0, max(len(message), 1), limit):
            piece = message[start : start + limit]
            self._ws.send(kind, piece, fin=start + limit >= len(message))
            kind = _CONTINUATION

    # Signs of life.

    @property
    def arrived(self) -> object:
        return self._frames, self._tcp_activity().arrived

    @property
    def departed(self) -> object:
        return self._tcp_activity().departed

    def _tcp_activity(self) -> TcpActivity:
        raw = None if self._is_closing else self._stream.get_extra_info("socket")
        return TcpActivity() if raw is None else tcp_activity(raw)

    def ping(self) -> None:
        if not self._is_closing:
            self._ws.send_ping()

    # The end.

    def close(self, reason: str = "", *, is_violation: bool = False) -> None:
        code = WSCloseCode.POLICY_VIOLATION if is_violation else WSCloseCode.GOING_AWAY
        self._fail(code, reason)

    def abort(self) -> None:
        self._begin_end()
        self._ws.disconnect(False)

    def _fail(self, code: WSCloseCode, reason: str) -> None:
        if not self._is_closing:
            self._end(code, reason)

    def _end(self, code: WSCloseCode, reason: str) -> None:
        if self._corked:
            self._uncork()
        self._begin_end()
        self._ws.send_close(code, reason.encode()[:123])
        self._ws.disconnect()
        self._abort_later()

    def _begin_end(self) -> None:
        """From now on nothing is delivered, and nothing is sent."""
        self._is_closing = True
        self._receive = None
        self._small_bytes = 0

    def _abort_later(self) -> None:
        """Bound the graceful end: a peer that does not read would delay it for ever."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._limits.close_timeout, self._ws.disconnect, False)

    def _tick(self) -> None:
        """Send a ping; drop a peer that has sent nothing for the whole pong timeout."""
        limits = self._limits
        if self._frames != self._frames_ticked:
            self._frames_ticked, self._silent_ticks = self._frames, 0
        if self._reading_paused:
            if _has_hung_up(self._stream.get_extra_info("socket").fileno()):
                self._ws.disconnect(False)
                return
        else:
            self._silent_ticks += 1
            if (self._silent_ticks - 1) * limits.ping_interval >= limits.pong_timeout:
                self._ws.disconnect(False)
                return
        if not self._is_closing:
            self._ws.send_ping()
            self._timer = self._loop.call_later(limits.ping_interval, self._tick)


class _JoinedMessage:
    """A message for a receiver that takes it as a whole."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, piece: memoryview) -> None:
        self._data += piece

    def is_utf8(self) -> bool:
        return self._data.isascii() or _is_utf8(self._data)

    def finish(self) -> bytes:
        # A copy would take as much memory again, and nothing changes this object any more.
        return cast("bytes", self._data)


def _uncut(_: memoryview) -> None:
    """For a receiver that takes no message in parts."""


def _has_hung_up(fd: int) -> bool:
    """True if the peer is gone, which goes unnoticed while the socket is not read."""
    poll = select.poll()
    poll.register(fd, _HANGUP)
    return bool(poll.poll(0))


def _is_utf8(data: bytes | bytearray) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _peer_name(transport: Any) -> str:
    peer = transport.get_extra_info("peername")
    if isinstance(peer, tuple) and len(peer) >= 2:
        host, port = peer[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return _UNIX
