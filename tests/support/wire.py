"""Raw JSON over a WebSocket: what a client says, without any client of ours."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from types import TracebackType
from typing import Any, Self

import websockets

from tests.support.schema_checks import SchemaCheck

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
PATIENCE = 60.0


def trusting_all(url: str) -> ssl.SSLContext | None:
    """A context that accepts each certificate; None for a URL without TLS."""
    if not url.startswith("wss:"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Wire:
    """One connection; every wait has a deadline that turns a hang into a failure."""

    def __init__(
        self,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """*context* is for TLS; without one every certificate is accepted."""
        self.url = url
        self._context = context
        self._headers = headers or {}
        self._last_id = 0
        # What arrived while something else was awaited.
        self.unread: list[dict[str, Any]] = []
        self._schemas = SchemaCheck()

    async def __aenter__(self) -> Self:
        async with asyncio.timeout(PATIENCE):
            if self.url.startswith("unix://"):
                self.socket = await websockets.unix_connect(
                    self.url.removeprefix("unix://"),
                    compression=None,
                    max_size=None,
                    ping_interval=None,
                    open_timeout=None,
                )
            else:
                self.socket = await websockets.connect(
                    self.url,
                    compression=None,
                    max_size=None,
                    ping_interval=None,
                    open_timeout=None,
                    proxy=None,
                    additional_headers=self._headers,
                    ssl=self._context or trusting_all(self.url),
                )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.socket.close()

    def cut(self) -> None:
        """Lose the connection without a goodbye."""
        self.socket.transport.abort()

    async def send(self, message: Any) -> None:
        """Send an object as JSON, or a str or bytes as they are."""
        self._schemas.sent(message)
        if not isinstance(message, (str, bytes)):
            message = json.dumps(message)
        await self.socket.send(message)

    async def receive(self) -> dict[str, Any]:
        """The next message as it arrives."""
        async with asyncio.timeout(PATIENCE):
            message: dict[str, Any] = json.loads(await self.socket.recv())
        self._schemas.received(message)
        return message

    async def request(self, method: str, params: Any = None, **members: Any) -> int:
        """Send a request and return its id."""
        self._last_id += 1
        await self.send({"id": self._last_id, "method": method, "params": params, **members})
        return self._last_id

    async def answer(self, request_id: Any) -> dict[str, Any]:
        """The whole answer to *request_id*; other messages are kept in `unread`."""
        return await self.find(lambda m: m.get("id") == request_id and "method" not in m)

    async def find(self, wanted: Any) -> dict[str, Any]:
        """The first message, kept or new, for which *wanted* is true."""
        for index, message in enumerate(self.unread):
            if wanted(message):
                return self.unread.pop(index)
        while True:
            message = await self.receive()
            if wanted(message):
                return message
            self.unread.append(message)

    async def call(self, method: str, params: Any = None) -> Any:
        """The result of a request that must succeed."""
        answer = await self.answer(await self.request(method, params))
        assert "result" in answer, answer
        return answer["result"]

    async def error(self, method: str, params: Any = None) -> dict[str, Any]:
        """The error of a request that must fail."""
        answer = await self.answer(await self.request(method, params))
        assert "error" in answer, answer
        error: dict[str, Any] = answer["error"]
        return error

    async def initialize(self, **params: Any) -> dict[str, Any]:
        """The whole handshake; the result of `initialize`."""
        result: dict[str, Any] = await self.call("initialize", {"clientName": "wire", **params})
        await self.send({"method": "initialized", "params": {}})
        return result

    async def start(self, process_id: str, argv: list[str], **params: Any) -> dict[str, Any]:
        result: dict[str, Any] = await self.call(
            "process/start", start_params(process_id, argv, **params)
        )
        return result

    async def event(self, process_id: str, method: str) -> dict[str, Any]:
        """The params of the next *method* notification about *process_id*."""

        def is_it(message: dict[str, Any]) -> bool:
            named = message.get("params") or {}
            return message.get("method") == method and named.get("processId") == process_id

        params: dict[str, Any] = (await self.find(is_it))["params"]
        return params

    async def events_until_closed(self, process_id: str) -> list[dict[str, Any]]:
        """Every notification about *process_id* in the order of arrival, up to its close."""
        events: list[dict[str, Any]] = []
        while not events or events[-1]["method"] != "process/closed":
            events.append(
                await self.find(
                    lambda m: "method" in m and m["params"].get("processId") == process_id
                )
            )
        return events

    async def run(self, process_id: str, argv: list[str], **params: Any) -> Finished:
        """Start a process and follow it to its close."""
        await self.start(process_id, argv, **params)
        return Finished(await self.events_until_closed(process_id))

    async def output_until(self, process_id: str, text: bytes) -> bytes:
        """Output of *process_id*, any stream, until *text* is in it."""
        seen = b""
        while text not in seen:
            seen += decoded(await self.event(process_id, "process/output"))
        return seen

    async def write(self, process_id: str, data: bytes, write_id: str | None = None) -> str:
        params = {"processId": process_id, "chunk": base64.b64encode(data).decode()}
        if write_id is not None:
            params["writeId"] = write_id
        status: str = (await self.call("process/write", params))["status"]
        return status

    async def closed(self) -> None:
        """Returns once the server has ended the connection."""
        async with asyncio.timeout(PATIENCE):
            await self.socket.wait_closed()


class Finished:
    """The events of a process that has closed."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.events = events

    def stream(self, name: str) -> bytes:
        return b"".join(
            decoded(e["params"])
            for e in self.events
            if e["method"] == "process/output" and e["params"]["stream"] == name
        )

    @property
    def stdout(self) -> bytes:
        return self.stream("stdout")

    @property
    def stderr(self) -> bytes:
        return self.stream("stderr")

    @property
    def exit_code(self) -> int:
        codes: list[int] = [
            e["params"]["exitCode"] for e in self.events if e["method"] == "process/exited"
        ]
        assert len(codes) == 1, self.events
        return codes[0]

    @property
    def seqs(self) -> list[int]:
        return [e["params"]["seq"] for e in self.events]


def decoded(params: dict[str, Any]) -> bytes:
    return base64.b64decode(params["chunk"])


def start_params(process_id: str, argv: list[str], **params: Any) -> dict[str, Any]:
    return {
        "processId": process_id,
        "argv": argv,
        "cwd": "file:///tmp",
        "env": ENV,
        "tty": False,
        **params,
    }
