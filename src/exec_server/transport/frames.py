"""A WebSocket that we open and that carries binary messages: the connection to a rendezvous."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from exec_server.limits import Limits
from exec_server.transport.dial import open_websocket
from exec_server.transport.frame_masks import LEAST_BYTES, loaded_mask, mask_frame
from exec_server.transport.picows_internals import consume_violation
from exec_server.transport.picows_names import (
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
)
from exec_server.transport.silence_watch import SilenceWatch, unacknowledged_bytes

if TYPE_CHECKING:
    from ssl import SSLContext

_TEXT, _BINARY, _CONTINUATION = WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION
_WRITE_HIGH_WATER = 1024 * 1024


class FrameReceiver(Protocol):
    """The user of a FrameSocket; `socket_opened` comes first and `socket_lost` last, once each."""

    def socket_opened(self, socket: FrameSocket) -> None: ...

    def frame_received(self, data: bytes | memoryview) -> None:
        """One whole binary message arrived; it is valid only until the call ends."""

    def text_received(self, data: bytes) -> None:
        """One whole text message arrived; it may be invalid UTF-8."""

    def writing_paused(self) -> None: ...

    def writing_resumed(self) -> None: ...

    def socket_lost(self, reason: str) -> None:
        """The socket is lost. The reason is one of the words that the reference logs."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """The largest frames and messages to accept, and the size above which ours are fragmented."""

    frame_bytes: int
    message_bytes: int
    sent_frame_bytes: int


async def dial_frames(
    url: str,
    receiver: FrameReceiver,
    *,
    sizes: Sizes,
    limits: Limits,
    headers: Sequence[tuple[str, str]] = (),
    answers_close: bool = False,
    is_needed: Callable[[], bool] | None = None,
    connect_timeout: float | None = None,
    ssl_context: SSLContext | None = None,
) -> FrameSocket:
    """Open a socket; fails as `dial` does. *receiver* may be called before this returns.

    While *is_needed* is true, the socket is given up after a short silence (silence_watch.py).
    """

    def new(on_open: Callable[[FrameSocket], None]) -> FrameSocket:
        return FrameSocket(
            receiver,
            sizes=sizes,
            limits=limits,
            answers_close=answers_close,
            is_needed=is_needed,
            on_open=on_open,
        )

    return await open_websocket(
        url,
        new,
        headers=headers,
        limits=msgspec.structs.replace(limits, frame_bytes=sizes.frame_bytes),
        connect_timeout=connect_timeout,
        ssl_context=ssl_context,
    )


class FrameSocket(WSListener):
    """One socket; it pings, and drops a peer that does not answer or does not read.

    It never sends a close frame, and does not answer that of a rendezvous: the socket just ends.
    """

    def __init__(
        self,
        receiver: FrameReceiver,
        *,
        sizes: Sizes,
        limits: Limits,
        answers_close: bool,
        on_open: Callable[[FrameSocket], None],
        is_needed: Callable[[], bool] | None = None,
    ) -> None:
        self._receiver = receiver
        self._is_needed = is_needed
        self._watch: SilenceWatch | None = None
        self._sizes = sizes
        self._limits = limits
        self._answers_close = answers_close
        self._on_open = on_open
        self._loop = asyncio.get_running_loop()
        self._parts: bytearray | None = None
        self._is_binary = True
        self._is_over = False
        self.is_reading = True
        self._sent_bytes = 0
        self._reason = "read_error"
        # The words of the peer's close frame. The peer may write anything there.
        self.close_words = ""
        self._ping_timer: asyncio.TimerHandle | None = None
        self._pong_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    @property
    def unsent_bytes(self) -> int:
        return int(self._stream.get_write_buffer_size())

    def send(self, data: bytes | bytearray, start: int = 0) -> None:
        """Send one message, which begins at *start*; after the end nothing happens.

        A bytearray is given away: it is masked and sent where it is, without a copy. The bytes
        before its message are free then, and are a multiple of four, at least 16.
        """
        if self._is_over:
            return
        self._sent_bytes += len(data) - start
        if start and isinstance(data, bytearray):
            if len(data) >= LEAST_BYTES and self._mask is not None:
                self._write(mask_frame(self._mask, data, start))
            else:
                self._ws.send_reuse_external_bytearray(_BINARY, data, start)
            return
        data = data[start:]
        limit = self._sizes.sent_frame_bytes
        if len(data) <= limit:
            self._ws.send(_BINARY, data)
            return
        for start in range(0, len(data), limit):
            kind = _CONTINUATION if start else _BINARY
            self._ws.send(kind, data[start : start + limit], fin=start + limit >= len(data))

    def _write(self, frame: memoryview) -> None:
        """Write a frame, whose buffer is given away, after all that waits."""
        if self._ws.is_close_frame_sent or self._stream.is_closing():
            return
        if self._fd >= 0 and not self._stream.get_write_buffer_size():
            # Otherwise the usual way tells a full socket from a lost one.
            with contextlib.suppress(OSError):
                frame = frame[os.write(self._fd, frame) :]
        if frame:
            self._stream.write(frame)

    def close(self) -> None:
        """End when all that is queued is sent, or after the close timeout. Idempotent."""
        if not self._is_over:
            self._reason = "local_shutdown"
            self._ws.disconnect()
            # After the socket is lost this call does nothing.
            self._loop.call_later(self._limits.close_timeout, self._ws.disconnect, False)

    def drop(self, reason: str = "local_shutdown") -> None:
        """End at once."""
        if not self._is_over:
            self._reason = reason
            self._ws.disconnect(False)

    def pause_reading(self) -> None:
        if self.is_reading and not self._is_over:
            self.is_reading = False
            self._stream.pause_reading()

    def resume_reading(self) -> None:
        if not self.is_reading and not self._is_over:
            self.is_reading = True
            self._stream.resume_reading()

    # Called by the watch.

    @property
    def undelivered_bytes(self) -> int:
        sock = self._stream.get_extra_info("socket")
        return self.unsent_bytes + (0 if sock is None else unacknowledged_bytes(sock.fileno()))

    def ping(self) -> None:
        """Ask for a sign of life; any frame is one."""
        self._ws.send_ping()

    def give_up(self) -> None:
        self.drop("pong_timeout")

    # Called by picows.

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._ws = transport
        self._stream: Any = transport.underlying_transport
        self._stream.set_write_buffer_limits(high=_WRITE_HIGH_WATER)
        # A plain socket does not encrypt frames, so they are written straight to the descriptor.
        is_plain = transport.is_client_side and not transport.is_secure
        self._fd = self._stream.get_extra_info("socket").fileno() if is_plain else -1
        self._mask = loaded_mask() if transport.is_client_side else None
        self._next_ping = self._loop.time()
        self._schedule_ping()
        if self._is_needed is not None:
            self._watch = SilenceWatch(self, self._is_needed, limits=self._limits)
        self._receiver.socket_opened(self)
        self._on_open(self)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if self._is_over:
            return
        if self._watch is not None:
            self._watch.heard()
        if transport.is_close_frame_sent:
            # picows has reported a violation to the peer, and continues to parse.
            self.drop("read_error")
            return
        kind = frame.msg_type
        if kind is _BINARY and frame.fin and self._parts is None:
            self._deliver(frame.get_payload_as_memoryview())
        elif kind == WSMsgType.PING:
            # No more pongs are sent to a peer that does not read them.
            if self.unsent_bytes <= self._limits.unread_answer_bytes:
                transport.send_pong(frame.get_payload_as_bytes())
        elif kind == WSMsgType.PONG:
            self._cancel("_pong_timer")
        elif kind == WSMsgType.CLOSE:
            self.close_words = (frame.get_close_message() or b"").decode("utf-8", "replace")
            self._on_close()
        else:
            self._collect(frame, kind)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        if self._is_over:
            return
        self._is_over = True
        for timer in ("_ping_timer", "_pong_timer", "_stall_timer"):
            self._cancel(timer)
        if self._watch is not None:
            self._watch.stop()
        self._consuming = consume_violation(transport)
        self._receiver.socket_lost(self._reason)

    def pause_writing(self) -> None:
        self._watch_writing()
        self._receiver.writing_paused()

    def resume_writing(self) -> None:
        self._cancel("_stall_timer")
        self._receiver.writing_resumed()

    # Messages.

    def _on_close(self) -> None:
        self._reason = "peer_close"
        if self._answers_close:
            self._ws.send_close(WSCloseCode.OK)
            self._ws.disconnect()
        else:
            self._ws.disconnect(False)

    def _collect(self, frame: WSFrame, kind: WSMsgType) -> None:
        """Take one frame of a text or of a fragmented message."""
        if (kind is _CONTINUATION) != (self._parts is not None):
            self.drop("read_error")
            return
        if self._parts is None:
            self._parts, self._is_binary = bytearray(), kind is _BINARY
        self._parts += frame.get_payload_as_memoryview()
        if len(self._parts) > self._sizes.message_bytes:
            self.drop("read_error")
        elif frame.fin:
            data, self._parts = bytes(self._parts), None
            if self._is_binary:
                self._deliver(data)
            else:
                self._receiver.text_received(data)

    def _deliver(self, data: bytes | memoryview) -> None:
        if len(data) > self._sizes.message_bytes:
            self.drop("read_error")
        else:
            self._receiver.frame_received(data)

    # Pings, and a limit on the time for writing.

    def _schedule_ping(self) -> None:
        self._next_ping += self._limits.ping_interval
        self._ping_timer = self._loop.call_at(self._next_ping, self._ping)

    def _ping(self) -> None:
        if self._pong_timer is None:
            self._ws.send_ping()
            self._await_pong()
        self._schedule_ping()

    def _await_pong(self) -> None:
        self._pong_timer = self._loop.call_later(self._limits.pong_timeout, self._pong_is_late)

    def _pong_is_late(self) -> None:
        # While we do not read, the pong may have arrived unread.
        if self.is_reading:
            self.drop("pong_timeout")
        else:
            self._await_pong()

    def _watch_writing(self) -> None:
        flushed = self._sent_bytes - self.unsent_bytes
        self._stall_timer = self._loop.call_later(
            self._limits.relay_write_timeout, self._check_writing, flushed
        )

    def _check_writing(self, flushed: int) -> None:
        if self._sent_bytes - self.unsent_bytes > flushed:
            self._watch_writing()
        else:
            self.drop("write_error")

    def _cancel(self, name: str) -> None:
        timer: asyncio.TimerHandle | None = getattr(self, name)
        setattr(self, name, None)
        if timer is not None:
            timer.cancel()
