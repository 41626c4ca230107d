"""A server that says exactly what a test wants it to, over another implementation of WebSocket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import websockets

from tests.support.wire import PATIENCE


class Talk:
    """One client's connection, seen from the server."""

    def __init__(self, socket: websockets.ServerConnection) -> None:
        self.socket = socket

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            message: dict[str, Any] = json.loads(await self.socket.recv())
        return message

    async def expect(self, method: str) -> dict[str, Any]:
        """The next message, which must be a *method*."""
        message = await self.receive()
        assert message["method"] == method, message
        return message

    async def send(self, message: Any) -> None:
        await self.socket.send(json.dumps(message))

    async def answer(self, request: dict[str, Any], result: Any) -> None:
        await self.send({"id": request["id"], "result": result})

    async def refuse(self, request: dict[str, Any], code: int, message: str) -> None:
        await self.send({"id": request["id"], "error": {"code": code, "message": message}})

    async def event(self, method: str, process_id: str, **params: Any) -> None:
        await self.send({"method": method, "params": {"processId": process_id, **params}})

    async def output(self, process_id: str, seq: int, data: bytes, stream: str = "stdout") -> None:
        chunk = base64.b64encode(data).decode()
        await self.event("process/output", process_id, seq=seq, stream=stream, chunk=chunk)

    async def shake_hands(self, result: Any = None) -> dict[str, Any]:
        """Both halves of the handshake; the params of `initialize`."""
        request = await self.expect("initialize")
        await self.answer(request, {"sessionId": "s"} if result is None else result)
        await self.expect("initialized")
        params: dict[str, Any] = request["params"]
        return params

    async def start(self) -> dict[str, Any]:
        """Answer a `process/start`; its params."""
        request = await self.expect("process/start")
        process_id = request["params"]["processId"]
        await self.answer(request, {"processId": process_id, "sandboxType": "none"})
        params: dict[str, Any] = request["params"]
        return params

    async def gone(self) -> None:
        """Returns once the client has left."""
        async with asyncio.timeout(PATIENCE):
            await self.socket.wait_closed()


Script = Callable[[Talk], Awaitable[None]]


@contextlib.asynccontextmanager
async def fake_server(script: Script) -> AsyncIterator[str]:
    """The URL of a server that plays *script* for each client; what goes wrong in it fails here."""
    errors: list[BaseException] = []

    async def play(socket: websockets.ServerConnection) -> None:
        try:
            await script(Talk(socket))
        except websockets.ConnectionClosed:
            return
        except BaseException as exc:
            errors.append(exc)
            raise

    async with websockets.serve(
        play, "127.0.0.1", 0, compression=None, max_size=None, ping_interval=None
    ) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}"
    if errors:
        raise errors[0]
