"""Connections of the client under test, and what is answered without a script."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Any

from exec_server.conformance.clients.scripted_process import Message, ScriptedProcess

_NOT_FOUND, _UNKNOWN_METHOD = -32004, -32601
# The script answers these; all others are answered at once.
_SCRIPTED = ("initialize", "process/start", "process/read")
_FACTS = {
    "shell": {"name": "sh", "path": "/bin/sh"},
    "executorVersion": "conformance",
    "cwd": "file:///tmp",
    "userHomeDir": "file:///tmp",
    "platformOs": "linux",
    "prependPathDirs": [],
    "temporaryDirectories": [],
    "tempDir": "file:///tmp",
    "capabilities": {},
}
_ANSWERS: dict[str, Any] = {
    "environment/info": _FACTS,
    "environment/status": {"status": "ready"},
    "process/terminate": {"running": False},
    "process/write": {"status": "accepted"},
    "process/signal": {},
    "fs/watchMissing": {"watching": False},
}


class ClientMistake(Exception):
    """The client did something that no client may do."""


class ClientConnection:
    """One connection of the client under test."""

    def __init__(self, socket: Any, server: ScriptedServer) -> None:
        self._socket = socket
        self._server = server
        # Requests for the script and notifications, in the order of arrival.
        self.waiting: list[Message] = []
        # Everything that was received.
        self.history: list[Message] = []
        self.is_over = False

    async def read_on(self) -> None:
        """Receive until the client is gone."""
        from websockets.exceptions import ConnectionClosed

        try:
            while True:
                text = await self._socket.recv()
                self._server.bytes_received += len(text)
                await self._take(text)
        except (ConnectionClosed, ConnectionError):
            pass
        finally:
            self.is_over = True
            self._server.changed()

    async def _take(self, text: str | bytes) -> None:
        try:
            message = json.loads(text)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            self._server.mistakes.append(f"a message that is no object: {text!r:.100}")
            return
        self.history.append(message)
        method = message.get("method")
        if method is not None and "id" in message and method not in _SCRIPTED:
            await self._answer(message)
        else:
            self.waiting.append(message)
        self._server.changed()

    async def _answer(self, request: Message) -> None:
        method = str(request["method"])
        if method in _ANSWERS and self._server.is_helpful:
            await self.send({"id": request["id"], "result": _ANSWERS[method]})
            return
        code = _NOT_FOUND if method.startswith("fs/") else _UNKNOWN_METHOD
        await self.send({"id": request["id"], "error": {"code": code, "message": "not here"}})

    async def send(self, message: Any) -> None:
        """Send an object, or a text or bytes as they are. A connection that is gone takes all."""
        from websockets.exceptions import ConnectionClosed

        if isinstance(message, dict):
            message = json.dumps(message)
        try:
            await self._socket.send(message)
        except (ConnectionClosed, ConnectionError):
            self.is_over = True

    async def find(self, is_wanted: Callable[[Message], bool]) -> Message:
        """The first message that is wanted. Others are kept."""

        def found() -> Message | None:
            for index, message in enumerate(self.waiting):
                if is_wanted(message):
                    return self.waiting.pop(index)
            return None

        message: Message = await self._server.until(
            found, "a message of the client", connection=self
        )
        return message

    async def request(self, method: str) -> Message:
        """The next request of this method that has not been answered."""
        return await self.find(lambda message: message.get("method") == method)

    async def reply(self, request: Message, result: Any) -> None:
        await self.send({"id": request["id"], "result": result})

    async def refuse(self, request: Message, code: int, text: str) -> None:
        await self.send({"id": request["id"], "error": {"code": code, "message": text}})

    async def delivered(self) -> None:
        """Wait until the client's WebSocket has taken what was sent."""
        from websockets.exceptions import ConnectionClosed

        try:
            async with asyncio.timeout(self._server.patience):
                await (await self._socket.ping())
        except ConnectionClosed:
            self.is_over = True

    async def close(self, code: int = 1001) -> None:
        await self._socket.close(code)

    def cut(self) -> None:
        """Lose the connection without a goodbye."""
        self._socket.transport.abort()

    # The usual steps.

    async def initialize(self, session_id: str, **more: Any) -> Message:
        """Answer `initialize` with this session, and wait for `initialized`."""
        asked = await self.request("initialize")
        result = {"sessionId": session_id, "environmentInfo": _FACTS, **more}
        await self.reply(asked, {name: value for name, value in result.items() if value})
        await self.request("initialized")
        return asked

    async def started(self) -> ScriptedProcess:
        """Answer `process/start`."""
        asked = await self.request("process/start")
        process_id = asked["params"]["processId"]
        await self.reply(asked, {"processId": process_id, "sandboxType": "none"})
        return ScriptedProcess(process_id)

    async def recovered(self, process: ScriptedProcess) -> Message:
        """Answer the read of a client that has resumed its session."""
        asked = await self.request("process/read")
        if asked["params"].get("processId") != process.id:
            raise ClientMistake(f"a read of another process: {asked['params']!r:.200}")
        await self.reply(asked, process.page(int(asked["params"].get("afterSeq") or 0)))
        return asked


class ScriptedServer:
    """A server whose answers a check writes. Every wait has a deadline."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.session_id = str(uuid.uuid4())
        self.connections: list[ClientConnection] = []
        self.mistakes: list[str] = []
        self.bytes_received = 0
        # False refuses every request that a client can do without.
        self.is_helpful = True
        # The status of HTTP that answers instead of a WebSocket.
        self.refusal: int | None = None
        self.has_ended: Callable[[], bool] = lambda: False
        self.url = ""
        self._taken = 0
        self._event = asyncio.Event()
        self._listener: Any = None

    async def __aenter__(self) -> ScriptedServer:
        from websockets.asyncio.server import serve

        self._listener = await serve(
            self._serve,
            "127.0.0.1",
            0,
            compression=None,
            ping_interval=None,
            max_size=64 * 1024 * 1024,
            close_timeout=1,
            process_request=self._admit,
        )
        port = next(iter(self._listener.sockets)).getsockname()[1]
        self.url = f"ws://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self.connections:
            if not connection.is_over:
                connection.cut()
        self._listener.close()
        await self._listener.wait_closed()

    def _admit(self, connection: Any, request: Any) -> Any:
        return None if self.refusal is None else connection.respond(self.refusal, "no\n")

    async def _serve(self, socket: Any) -> None:
        connection = ClientConnection(socket, self)
        self.connections.append(connection)
        self.changed()
        await connection.read_on()

    def changed(self) -> None:
        self._event.set()

    async def until(
        self,
        found: Callable[[], Any],
        what: str,
        *,
        connection: ClientConnection | None = None,
    ) -> Any:
        """Wait until *found* returns something."""
        async with asyncio.timeout(self.patience):
            while True:
                if self.mistakes:
                    raise ClientMistake(self.mistakes[0])
                value = found()
                if value:
                    return value
                if self.has_ended():
                    raise ClientMistake(f"the client ended, expected {what}")
                if connection is not None and connection.is_over:
                    raise ClientMistake(f"the client left, expected {what}")
                self._event.clear()
                await self._event.wait()

    async def connection(self) -> ClientConnection:
        """The next connection of the client."""
        index, self._taken = self._taken, self._taken + 1
        await self.until(lambda: len(self.connections) > index, "a connection")
        return self.connections[index]

    async def ready(self, **more: Any) -> ClientConnection:
        """The first connection, whose handshake is complete."""
        connection = await self.connection()
        asked = await connection.initialize(self.session_id, **more)
        if asked["params"].get("resumeSessionId") is not None:
            raise ClientMistake(f"a new client resumes a session: {asked['params']!r:.200}")
        return connection

    async def resumed(self) -> ClientConnection:
        """The next connection, which resumes the session."""
        connection = await self.connection()
        asked = await connection.initialize(self.session_id)
        if asked["params"].get("resumeSessionId") != self.session_id:
            raise ClientMistake(f"another session than the lost one: {asked['params']!r:.200}")
        return connection

    def sent(self, method: str) -> list[Message]:
        """The parameters of all messages of a method, on all connections."""
        return [
            message.get("params") or {}
            for connection in self.connections
            for message in connection.history
            if message.get("method") == method
        ]
