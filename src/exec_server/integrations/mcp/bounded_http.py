"""Connections of HTTP that are judged before they are read, and bounded until they have asked."""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

# Why a connection is refused; None lets it in. The answer may come later.
Verdict = str | None | asyncio.Future[str | None]
Judge = Callable[[asyncio.BaseTransport], Verdict]

# How long a connection may take to send a whole request, and another one after an answer.
REQUEST_SECONDS = 30.0
# Connections that have sent no whole request; the one that has waited for longest gives way.
MAX_WAITING = 128
# What a client may send before it is known who it is.
_MAX_EARLY = 1024 * 1024
# How long a client that is refused has to read why.
_FAREWELL_SECONDS = 2.0


class UnaskedConnections:
    """The connections of one listener whose requests are not there yet."""

    def __init__(self, *, most: int = MAX_WAITING, seconds: float = REQUEST_SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._timers: OrderedDict[BoundedProtocol, asyncio.TimerHandle] = OrderedDict()

    def add(self, protocol: BoundedProtocol) -> None:
        self.remove(protocol)
        loop = asyncio.get_running_loop()
        self._timers[protocol] = loop.call_later(self._seconds, self._drop, protocol)
        if len(self._timers) > self._most:
            self._drop(next(iter(self._timers)))

    def remove(self, protocol: BoundedProtocol) -> None:
        timer = self._timers.pop(protocol, None)
        if timer is not None:
            timer.cancel()

    def _drop(self, protocol: BoundedProtocol) -> None:
        self.remove(protocol)
        protocol.transport.abort()


class BoundedProtocol(H11Protocol):
    """One connection. *judge* decides about it first, if it is given."""

    def __init__(
        self, *args: Any, judge: Judge | None, waiting: UnaskedConnections, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._judge = judge
        self._waiting = waiting
        self._is_refused = False
        # What has come before the judge has decided; None after that.
        self._early: bytearray | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waiting.add(self)
        verdict = None if self._judge is None else self._judge(transport)
        if isinstance(verdict, asyncio.Future):
            self._early = bytearray()
            verdict.add_done_callback(self._judged)
        elif verdict is not None:
            self._refuse(verdict)

    def _judged(self, verdict: asyncio.Future[str | None]) -> None:
        is_unknown = verdict.cancelled() or verdict.exception() is not None
        text = "the client could not be judged" if is_unknown else verdict.result()
        early, self._early = self._early, None
        if self.transport.is_closing():
            return
        if text is not None:
            self._refuse(text)
        elif early:
            self.data_received(bytes(early))

    def _refuse(self, text: str) -> None:
        self._is_refused = True
        body = f"{text}\n".encode()
        head = (
            "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.write_eof()
        # What it sends meanwhile is read, so that the answer arrives.
        self.loop.call_later(_FAREWELL_SECONDS, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._early is not None:
            self._early += data
            if len(self._early) > _MAX_EARLY:
                self.transport.abort()
        elif not self._is_refused:
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._waiting.remove(self)

    def on_response_complete(self) -> None:
        self._waiting.add(self)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.remove(self)
        super().connection_lost(exc)


def bounded_protocol(judge: Judge | None, waiting: UnaskedConnections) -> Any:
    """What uvicorn makes for each connection."""
    return functools.partial(BoundedProtocol, judge=judge, waiting=waiting)
