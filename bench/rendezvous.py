"""A rendezvous that costs little: what is measured through it is the ends."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qs, urlsplit

from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server

from tests.support.rendezvous import Rendezvous

_BINARY = WSMsgType.BINARY


class QuickRendezvous(Rendezvous):
    """The registry of the tests, with sockets that pass frames on at once.

    It does nothing for streams whose harness has gone, and holds no stream back, which is good
    for measuring.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sockets: asyncio.Server | None = None
        self._socket_port = 0
        self.executors: dict[str, WSTransport] = {}
        self.harnesses: dict[bytes, WSTransport] = {}

    async def start(self) -> None:
        await super().start()
        self._sockets = await ws_create_server(
            self._listener, "127.0.0.1", 0, max_frame_size=1 << 24, enable_auto_ping=False
        )
        self._socket_port = self._sockets.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._sockets is not None
        self._sockets.close()
        await super().stop()

    def is_online(self, environment: str = "env-1") -> bool:
        return environment in self.executors

    def _sign(self, environment: str, role: str) -> str:
        return f"ws://127.0.0.1:{self._socket_port}/{environment}?role={role}"

    def _connect(self, environment: str, body: Any, kind: str) -> tuple[int, Any]:
        # What the tests' own sockets would have told it.
        self._executors = dict.fromkeys(self.executors)  # type: ignore[assignment]
        return super()._connect(environment, body, kind)

    def _listener(self, request: WSUpgradeRequest) -> WSListener:
        parts = urlsplit(request.path.decode())
        environment = parts.path.strip("/")
        if parse_qs(parts.query)["role"] == ["environment"]:
            return _Executor(self, environment)
        return _Harness(self, environment)


class _Executor(WSListener):
    def __init__(self, relay: QuickRendezvous, environment: str) -> None:
        self._relay = relay
        self._environment = environment

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._relay.executors[self._environment] = transport
        self._relay.changed.set()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == _BINARY:
            data = frame.get_payload_as_memoryview()
            target = self._relay.harnesses.get(_stream_id(data))
            if target is not None:
                target.send(_BINARY, data)
        elif frame.msg_type == WSMsgType.PING:
            transport.send_pong(frame.get_payload_as_bytes())


class _Harness(WSListener):
    def __init__(self, relay: QuickRendezvous, environment: str) -> None:
        self._relay = relay
        self._executor = relay.executors[environment]

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == _BINARY:
            data = frame.get_payload_as_memoryview()
            self._relay.harnesses[_stream_id(data)] = transport
            self._executor.send(_BINARY, data)
        elif frame.msg_type == WSMsgType.PING:
            transport.send_pong(frame.get_payload_as_bytes())


def _stream_id(data: memoryview) -> bytes:
    """Behind the version, and shorter than 128 bytes."""
    return bytes(data[4 : 4 + data[3]])
