"""Connections that count their bytes, for servers whose metrics are wanted."""

from __future__ import annotations

from typing import Any

from exec_server.transport.connection import Receiver
from exec_server.transport.unix import LineConnection
from exec_server.transport.websocket import WebSocketConnection


class Traffic:
    """The messages of all connections of a listener, without frames and encryption."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self.sent_bytes = 0
        self.received_messages = 0
        self.sent_messages = 0

    def received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        self.received_messages += 1

    def sent(self, parts: tuple[bytes, ...]) -> None:
        self.sent_bytes += sum(map(len, parts))
        self.sent_messages += 1


class MeteredWebSocket(WebSocketConnection):
    """A WebSocket that counts."""

    def __init__(self, traffic: Traffic, **rest: Any) -> None:
        super().__init__(**rest)
        self._traffic = traffic

    def send(self, *parts: bytes) -> None:
        self._traffic.sent(parts)
        super().send(*parts)

    def send_bytes(self, *parts: bytes) -> None:
        self._traffic.sent(parts)
        super().send_bytes(*parts)

    def attach(self, receiver: Receiver) -> None:
        super().attach(receiver)
        take = receiver.message_received

        def receive(data: bytes) -> None:
            self._traffic.received(data)
            take(data)

        if self._receive is not None:
            self._receive = receive


class MeteredLines(LineConnection):
    """A connection of lines that counts."""

    def __init__(self, traffic: Traffic, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._traffic = traffic

    def send(self, *parts: bytes) -> None:
        self._traffic.sent(parts)
        super().send(*parts)

    def _take(self, line: bytes) -> None:
        self._traffic.received(line)
        super()._take(line)
