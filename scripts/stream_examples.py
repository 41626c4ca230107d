"""Traffic of `stream/*`, recorded from a server of ours, for `protocol_examples.py`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import websockets

Message = dict[str, Any]
Recorded = tuple[str, Message]
_SECONDS = 20


class _Recorder:
    """A connection that remembers what was said."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self._socket = socket
        self._last_id = 0
        self.traffic: list[Recorded] = []

    async def notify(self, method: str, params: Message) -> None:
        await self._say({"method": method, "params": params})

    async def call(self, method: str, params: Message) -> Any:
        self._last_id += 1
        await self._say({"id": self._last_id, "method": method, "params": params})
        answer = await self._until("id", self._last_id)
        if "error" in answer:
            raise SystemExit(f"{method}: {answer['error']}")
        return answer["result"]

    async def event(self, method: str) -> Message:
        params: Message = (await self._until("method", method))["params"]
        return params

    async def _say(self, message: Message) -> None:
        self.traffic.append(("c2s", message))
        await self._socket.send(json.dumps(message))

    async def _until(self, name: str, wanted: Any) -> Message:
        async with asyncio.timeout(_SECONDS):
            while True:
                message = json.loads(await self._socket.recv())
                self.traffic.append(("s2c", message))
                if message.get(name) == wanted:
                    found: Message = message
                    return found


async def stream_traffic(url: str) -> list[Recorded]:
    """A stream to a port of this machine, one that is accepted, and one that is resumed."""
    echo = await asyncio.start_server(_echo, "127.0.0.1", 0)
    port = echo.sockets[0].getsockname()[1]
    async with echo, websockets.connect(url) as socket:
        recorder = _Recorder(socket)
        await recorder.call("initialize", {"clientName": "example"})
        await recorder.notify("initialized", {})
        place = {"host": "127.0.0.1", "port": port, "window": 65536}
        await recorder.call("stream/open", {"streamId": "s1", **place})
        await recorder.notify("stream/data", {"streamId": "s1", "position": 0, "chunk": "aGkK"})
        data = await recorder.event("stream/data")
        await recorder.notify("stream/ack", {"streamId": "s1", "position": data["position"] + 3})
        await recorder.call("stream/list", {})
        held = {"s1": {"received": 3}}
        await recorder.call("stream/resume", {"streams": held})
        await recorder.notify("stream/end", {"streamId": "s1", "position": 3})
        await recorder.event("stream/end")
        await recorder.call("stream/open", {"streamId": "s2", **place})
        await recorder.notify("stream/reset", {"streamId": "s2", "reason": "not needed"})
        await _listener(recorder)
        return recorder.traffic


async def _listener(recorder: _Recorder) -> None:
    told = await recorder.call(
        "stream/listen", {"listenerId": "l1", "host": "127.0.0.1", "port": 0}
    )
    _, writer = await asyncio.open_connection("127.0.0.1", told["port"])
    await recorder.event("stream/accepted")
    writer.close()
    await recorder.call("stream/close", {"ids": ["l1"]})


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
