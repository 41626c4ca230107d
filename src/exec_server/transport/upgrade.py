"""The client's part of opening a WebSocket, from the request to the answer of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from exec_server.errors import ConnectError, ConnectionRejected
from exec_server.limits import Limits
from exec_server.transport.dial_target import DialTarget, describe
from exec_server.transport.picows_internals import (
    UnixTransport,
    client_protocol,
    feed,
    handshake_result,
)
from exec_server.transport.picows_names import WSListener

# Only a short text of a refusal's body is shown.
_REFUSAL_BYTES = 4096

L = TypeVar("L", bound=WSListener)
# Makes the listener of a WebSocket, which calls the argument with itself once it is open.
NewListener = Callable[[Callable[[L], None]], L]


class Upgrade(asyncio.Protocol, Generic[L]):
    """Asks for a WebSocket, judges the answer, and hands the socket to picows."""

    def __init__(
        self,
        target: DialTarget,
        headers: Sequence[tuple[str, str]],
        limits: Limits,
        new_listener: NewListener[L],
    ) -> None:
        self.opened: asyncio.Future[L] = asyncio.get_running_loop().create_future()
        self._target = target
        self._headers = headers
        self._limits = limits
        self._new_listener = new_listener
        self._transport: Any = None
        self._data = bytearray()
        self._refusal: _UpgradeRefusal | None = None
        self._timer: asyncio.TimerHandle | None = None

    def release(self, *, is_taken: bool) -> None:
        """End the attempt, unless the caller has taken the listener. The caller no longer waits.

        A caller that is cancelled at the moment of the answer does not take the listener.
        """
        if self._timer is not None:
            self._timer.cancel()
        if is_taken:
            return
        if not self.opened.cancel() and not self.opened.cancelled():
            # Otherwise an error would be reported as never retrieved.
            self.opened.exception()
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = UnixTransport(transport) if self._target.is_unix else transport  # type: ignore[arg-type]
        self._protocol = client_protocol(
            self._target.host_header,
            self._target.resource,
            lambda: self._new_listener(self._on_open),
            headers=self._headers,
            limits=self._limits,
        )
        # This sends the request.
        self._protocol.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._refusal is not None:
            self._take_refusal()
        elif not b"HTTP/1.".startswith(self._data[:7]):
            self._fail(ConnectionRejected(self._target.failure("the answer is not HTTP")))
        elif (end := self._data.find(b"\r\n\r\n")) >= 0:
            self._judge(bytes(self._data[:end]), end + 4)
        elif len(self._data) > self._limits.http_head_bytes:
            self._fail(ConnectionRejected(self._target.failure("the answer is too long")))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._refusal is not None:
            self._refuse(self._refusal)
        cause = (
            "the connection was closed before it was a WebSocket" if exc is None else describe(exc)
        )
        self._fail(ConnectError(self._target.failure(cause)))

    # The answer.

    def _judge(self, head: bytes, size: int) -> None:
        refusal = _UpgradeRefusal.parse(head)
        if refusal.status == 101:
            self._hand_over()
            return
        del self._data[:size]
        self._refusal = refusal
        self._take_refusal()
        if not self.opened.done():
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._limits.close_timeout, self._refuse, refusal)

    def _hand_over(self) -> None:
        self._transport.set_protocol(self._protocol)
        feed(self._protocol, bytes(self._data))
        if self.opened.done():
            return
        # picows found fault with the answer and has ended the connection.
        checked = handshake_result(self._protocol)
        checked.add_done_callback(self._tell_fault)

    def _tell_fault(self, checked: asyncio.Future[None]) -> None:
        fault = "closed" if checked.cancelled() else checked.exception()
        self._fail(ConnectionRejected(self._target.failure(fault), status=101))

    def _take_refusal(self) -> None:
        refusal = self._refusal
        assert refusal is not None
        if len(self._data) >= min(refusal.body_bytes, _REFUSAL_BYTES):
            self._refuse(refusal)

    def _refuse(self, refusal: _UpgradeRefusal) -> None:
        text = bytes(self._data[: min(refusal.body_bytes, _REFUSAL_BYTES)])
        words = " ".join(text.decode("utf-8", "replace").split())
        message = self._target.failure(f"HTTP {refusal.status} {refusal.reason}".rstrip())
        message += refusal.advice + (f": {words}" if words and words.isprintable() else "")
        # A gateway in front of the server may be able to reach it later.
        is_temporary = refusal.status >= 500 or refusal.status in (408, 429)
        error = ConnectError(message) if is_temporary else ConnectionRejected(message)
        error.status = refusal.status
        self._fail(error)

    def _fail(self, error: ConnectError) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)

    def _on_open(self, listener: L) -> None:
        if not self.opened.done():
            self.opened.set_result(listener)


class _UpgradeRefusal(msgspec.Struct, frozen=True):
    """An HTTP answer that is not an upgrade."""

    status: int
    reason: str
    body_bytes: int

    @property
    def advice(self) -> str:
        if 300 <= self.status < 400:
            return " (redirects are not followed)"
        # The body of a 400 says what is wrong, such as "this port needs TLS".
        if self.status in (200, 404, 426):
            return " (not an exec-server?)"
        return ""

    @staticmethod
    def parse(head: bytes) -> _UpgradeRefusal:
        status_line, *lines = head.decode("latin-1").split("\r\n")
        _, _, rest = status_line.partition(" ")
        code, _, reason = rest.partition(" ")
        length = _REFUSAL_BYTES
        for line in lines:
            name, _, value = line.partition(":")
            if name.lower() == "content-length" and value.strip().isdecimal():
                length = int(value)
        return _UpgradeRefusal(int(code) if code.isdecimal() else 0, reason.strip(), length)
