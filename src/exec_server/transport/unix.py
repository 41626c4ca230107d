"""Unix sockets: tells WebSockets from plain lines, and carries the lines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from exec_server.limits import Limits
from exec_server.transport.accepting import WaitingConnections
from exec_server.transport.connection import Connection, Identity, Receiver, introduce
from exec_server.transport.fair_turns import MESSAGES_PER_TURN, HeldInput
from exec_server.transport.gathered_writes import writelines_of
from exec_server.transport.http_front import Identify, JudgePeer
from exec_server.transport.lines import LineBuffer, LineTooLong
from exec_server.transport.refusal_log import RefusalLog
from exec_server.transport.socket_owner import UnixOwner, unix_peer

logger = logging.getLogger(__name__)

# How the log names a peer that has no address.
_PEER = "a Unix socket"


class UnixFront(asyncio.Protocol):
    """Looks at the first byte: a brace begins plain lines, anything else is HTTP."""

    def __init__(
        self,
        http_front: Callable[[JudgePeer], asyncio.Protocol],
        new_lines: Callable[[], LineConnection],
        *,
        limits: Limits,
        waiting: WaitingConnections,
        judge_peer: JudgePeer,
        identify: Identify,
        refusals: RefusalLog,
    ) -> None:
        self._refusals = refusals
        self._identify = identify
        self._waiting = waiting
        self._judge_peer = judge_peer
        self._http_front = http_front
        self._new_lines = new_lines
        self._limits = limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._verdict = self._judge_peer(transport)
        self._waiting.add(self._transport)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._limits.http_head_timeout, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._let_go()
        protocol: asyncio.Protocol
        if data[:1] == b"{" and self._verdict is not None:
            self._log_refusal()
            self._transport.abort()
            return
        if data[:1] == b"{":
            protocol = self._new_lines()
            try:
                introduce(protocol, self._identify(self._transport, None))
            except PermissionError:
                self._transport.abort()
                return
        else:
            protocol = self._http_front(lambda _: self._verdict)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(data)

    def _log_refusal(self) -> None:
        more = self._refusals.refused(_PEER, "peer")
        if more is not None:
            reason = self._verdict if isinstance(self._verdict, str) else "it may not connect"
            told = {"notice": "connection"}
            logger.warning("refused %s: %s%s", _PEER, reason, more, extra=told)
            self._refusals.logged(_PEER, "peer", reason + more)

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()

    def _let_go(self) -> None:
        self._deadline.cancel()
        self._waiting.discard(self._transport)


class LineConnection(asyncio.Protocol):
    """A Connection that carries one message a line."""

    malformed_prefix = "failed to parse JSON-RPC message from exec-server unix socket: "
    transport_name = "unix"
    peer_name = "unix"
    principal: str | None = None
    identity: Identity | None = None
    owner: UnixOwner | None = None

    def __init__(self, on_open: Callable[[Connection], None], *, limits: Limits) -> None:
        self._on_open = on_open
        self._lines = LineBuffer(max_bytes=limits.message_bytes)
        self._close_timeout = limits.close_timeout
        self._receiver: Receiver | None = None
        # Lines of one read beyond a number, which wait for later turns of the event loop.
        self._held: HeldInput[bytes] = HeldInput(
            lambda line, _: self._take(line), self._set_reading
        )
        self._is_reading_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writelines = writelines_of(transport)
        self.owner = unix_peer(transport)
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        try:
            for number, line in enumerate(self._lines.feed(data)):
                if not line.isascii():
                    line.decode()
                if number < MESSAGES_PER_TURN and not self._held:
                    self._take(line)
                else:
                    self._held.add(line)
        except (LineTooLong, UnicodeDecodeError):
            self._held.clear()
            self._transport.abort()

    def _take(self, line: bytes) -> None:
        if self._receiver is not None and not self._transport.is_closing():
            self._receiver.message_received(line)

    def pause_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.writing_paused()

    def resume_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.writing_resumed()

    def eof_received(self) -> bool:
        """The peer has closed its side. It counts as gone, even if it still reads."""
        self._abort_later()
        self._tell_lost()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._held.clear()
        self._tell_lost()

    def _tell_lost(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.connection_lost()

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def send(self, *parts: bytes) -> None:
        if not self._transport.is_closing():
            self._writelines([*parts, b"\n"])

    def close(self, reason: str = "", *, is_violation: bool = False) -> None:
        self._transport.close()
        self._abort_later()

    def _abort_later(self) -> None:
        """Bound the graceful end: a peer that does not read would delay it for ever."""
        asyncio.get_running_loop().call_later(self._close_timeout, self._transport.abort)

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._is_reading_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        self._set_reading(not self._held)

    def _set_reading(self, is_on: bool) -> None:
        """Read unless lines are held, which must not become more, or the receiver is behind."""
        if is_on and not self._is_reading_paused:
            self._transport.resume_reading()
        elif not is_on:
            self._transport.pause_reading()
