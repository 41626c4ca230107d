"""A connection to the server under test, over WebSocket or stdio."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Protocol

# The largest message that a server may send, by the protocol's own limit.
_LARGEST = 64 * 1024 * 1024
# No check makes a server send as much as this on one connection.
_MOST = 256 * 1024 * 1024

Message = dict[str, Any]


class ConnectionEnded(Exception):
    """The server has ended the connection."""


class TextChannel(Protocol):
    """A way to send and receive texts."""

    async def send(self, text: str | bytes) -> None: ...

    async def receive(self) -> str | bytes: ...


class KitWire:
    """One connection. Every wait has a deadline."""

    def __init__(self, channel: TextChannel, *, patience: float, has_native_paths: bool) -> None:
        self.channel = channel
        self.patience = patience
        self._has_native_paths = has_native_paths
        # Messages that arrived while another one was awaited.
        self.unread: list[Message] = []
        # All that was received, in the order of arrival.
        self.history: list[Message] = []
        self._last_id = 0
        self._received = 0

    async def send(self, message: Any) -> None:
        """Send an object as JSON, or a text or bytes as they are."""
        if not isinstance(message, str | bytes):
            message = json.dumps(_native(message) if self._has_native_paths else message)
        await self.channel.send(message)

    async def request(self, method: str, params: Any = None) -> int:
        """Send a request and return its id."""
        self._last_id += 1
        await self.send({"id": self._last_id, "method": method, "params": params})
        return self._last_id

    async def receive(self) -> Message:
        """The next message, as it arrives."""
        async with asyncio.timeout(self.patience):
            text = await self.channel.receive()
        self._received += len(text)
        if self._received > _MOST:
            raise ValueError(f"the server has sent more than {_MOST} bytes")
        message = json.loads(text)
        if not isinstance(message, dict):
            raise ValueError(f"a message that is no object: {text!r:.100}")
        self.history.append(message)
        return message

    async def find(self, is_wanted: Callable[[Message], bool]) -> Message:
        """The first message, kept or new, that is wanted. Others are kept."""
        for index, message in enumerate(self.unread):
            if is_wanted(message):
                return self.unread.pop(index)
        while True:
            message = await self.receive()
            if is_wanted(message):
                return message
            self.unread.append(message)

    async def answer(self, request_id: Any) -> Message:
        """The whole answer to a request."""
        return await self.find(
            lambda message: "method" not in message and _same(message.get("id"), request_id)
        )

    async def call(self, method: str, params: Any = None) -> Any:
        """The result of a request that has to succeed."""
        answer = await self.answer(await self.request(method, params))
        if "result" not in answer:
            raise ValueError(f"{method} failed: {answer.get('error')!r:.300}")
        return answer["result"]

    async def error(self, method: str, params: Any = None) -> Message:
        """The error of a request that has to fail."""
        answer = await self.answer(await self.request(method, params))
        if "error" not in answer:
            raise ValueError(f"{method} succeeded: {answer.get('result')!r:.300}")
        error: Message = answer["error"]
        return error

    async def handshake(self, **params: Any) -> Message:
        """`initialize` and `initialized`; the result of the first."""
        asked = {"clientName": "conformance", "resumeSessionId": None, **params}
        result: Message = await self.call("initialize", asked)
        await self.send({"method": "initialized", "params": {}})
        return result

    async def until_ended(self) -> None:
        """Wait until the server ends the connection. Messages before that are kept."""
        with suppress(ConnectionEnded):
            while True:
                self.unread.append(await self.receive())


def _native(value: Any) -> Any:
    """A message of an older client, which has paths where newer ones have URIs."""
    if isinstance(value, dict):
        return {name: _native(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_native(member) for member in value]
    is_uri = isinstance(value, str) and value.startswith("file:///")
    return value.removeprefix("file://") if is_uri else value


def _same(seen: Any, wanted: Any) -> bool:
    return type(seen) is type(wanted) and bool(seen == wanted)


@asynccontextmanager
async def open_wire(
    target: str, *, headers: dict[str, str], patience: float, has_native_paths: bool
) -> AsyncIterator[KitWire]:
    """A connection to *target*, which is a ws:// or wss:// URL or `stdio:PROGRAM`."""
    if target.startswith("stdio:"):
        async with _stdio(target.removeprefix("stdio:"), patience) as lines:
            yield KitWire(lines, patience=patience, has_native_paths=has_native_paths)
        return
    async with dialled(target, headers=headers, patience=patience) as socket:
        channel = _WebSocketChannel(socket)
        yield KitWire(channel, patience=patience, has_native_paths=has_native_paths)


@asynccontextmanager
async def dialled(url: str, *, headers: dict[str, str], patience: float) -> AsyncIterator[Any]:
    """A WebSocket. Raises OSError if the server does not accept it."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import WebSocketException

    async with AsyncExitStack() as stack:
        connecting = connect(
            url,
            compression=None,
            max_size=_LARGEST,
            ping_interval=None,
            proxy=None,
            additional_headers=headers,
            open_timeout=patience,
            close_timeout=1,
        )
        try:
            socket = await stack.enter_async_context(connecting)
        except WebSocketException as exc:
            raise OSError(f"the WebSocket was not accepted: {exc}") from exc
        yield socket


class _WebSocketChannel:
    def __init__(self, socket: Any) -> None:
        self.socket = socket

    async def send(self, text: str | bytes) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await self.socket.send(text)
        except ConnectionClosed as exc:
            raise ConnectionEnded(str(exc)) from exc

    async def receive(self) -> str | bytes:
        from websockets.exceptions import ConnectionClosed

        try:
            text: str | bytes = await self.socket.recv()
        except ConnectionClosed as exc:
            raise ConnectionEnded(str(exc)) from exc
        if isinstance(text, bytes):
            raise ValueError("the server sent a binary message")
        return text

    def cut(self) -> None:
        """Lose the connection without a goodbye."""
        self.socket.transport.abort()


class _LineChannel:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._writer, self._reader = process.stdin, process.stdout

    async def send(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        try:
            self._writer.write(data + b"\n")
            await self._writer.drain()
        except (ConnectionError, RuntimeError) as exc:
            # Some event loops raise RuntimeError for a pipe that is closed already.
            raise ConnectionEnded("the server closed its input") from exc

    async def receive(self) -> str | bytes:
        line = await self._reader.readline()
        if not line:
            raise ConnectionEnded("the server closed its output")
        return line


@asynccontextmanager
async def _stdio(command: str, patience: float) -> AsyncIterator[_LineChannel]:
    process = await asyncio.create_subprocess_exec(
        *shlex.split(command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LARGEST,
    )
    try:
        yield _LineChannel(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(patience):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        # What the program has written and no check has read would keep its pipe open.
        transport: Any = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()
