"""A small client that does everything right, and one thing wrong if it is told to."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from exec_server.conformance.clients.client_check import ClientEnd

# Each mistake, and the check that has to find it.
MISTAKES = {
    "takes events as they come": "client.reordered-events",
    "takes an event as often as it comes": "client.repeated-events",
    "is done at the exit": "client.late-output",
    "takes events of all processes": "client.other-processes",
    "fails at unknown notifications": "client.unknown-messages",
    "takes no binary messages": "client.binary",
    "does not answer the server": "client.server-request",
    "needs facts": "client.no-facts",
    "does not reconnect": "client.resume",
    "starts again after a loss": "client.resume",
    "forgets the session": "client.resume",
    "does not read after a loss": "client.resume-ended",
    "gives up if the session is held": "client.resume-attached",
    "gives up at the second loss": "client.resume-twice",
    "asks for an unknown session again": "client.session-unknown",
    "takes any session": "client.session-swapped",
    "jumps over a gap": "client.gap",
    "ignores malformed messages": "client.malformed",
    "ignores malformed events": "client.malformed-event",
    "skips output that is gone": "client.output-gone",
    "leaves a process that it cannot read": "client.read-refused",
    "always ends well": "client.command",
    "drops early events": "client.early-events",
    "uses an id again": "client.ids",
    "repeats a start": "client.start-lost",
    "skips initialized": "client.handshake",
}


class Lost(Exception):
    """The connection is lost."""


class GivenUp(Exception):
    """The command cannot be finished."""


class NaiveClient:
    def __init__(self, url: str, mistake: str = "") -> None:
        self._url = url
        self._mistake = mistake
        self._socket: ClientConnection | None = None
        self._last_id = 0
        self._session: str | None = None
        self._process = str(uuid.uuid4())
        self._is_started = False
        # Events by their numbers, and the last one that was taken.
        self._ahead: dict[int, dict[str, Any]] = {}
        self._taken = 0
        self._output = b""
        self._status: int | None = None
        self._is_closed = False
        self._losses = 0

    async def run(self) -> ClientEnd:
        try:
            async with asyncio.timeout(60):
                await self._until_closed()
        except (GivenUp, TimeoutError, OSError, InvalidHandshake):
            status = 1
        else:
            status = self._status if self._status is not None else 1
        finally:
            await self._leave()
        return ClientEnd(0 if self._does("always ends well") else status, self._output)

    def _does(self, mistake: str) -> bool:
        return self._mistake == mistake

    async def _until_closed(self) -> None:
        while not self._is_closed:
            try:
                await self._connect()
                if not self._is_started:
                    await self._start()
                while not self._is_closed:
                    await self._take(await self._receive())
            except Lost:
                self._lose()

    def _lose(self) -> None:
        self._losses += 1
        if self._does("does not reconnect") or (
            self._does("gives up at the second loss") and self._losses > 1
        ):
            raise GivenUp
        if self._does("starts again after a loss"):
            self._is_started = False
        elif not self._is_started and not self._does("repeats a start"):
            raise GivenUp

    async def _leave(self) -> None:
        if self._socket is not None:
            await self._socket.close()

    async def _connect(self) -> None:
        while True:
            await self._leave()
            self._socket = await connect(self._url, compression=None, proxy=None)
            self._last_id = 0
            wanted = None if self._does("forgets the session") else self._session
            params = {"clientName": "naive", "resumeSessionId": wanted}
            answer = await self._call("initialize", params)
            code = answer.get("error", {}).get("code")
            if code is None:
                break
            is_tried_again = code == -32010 and not self._does("gives up if the session is held")
            if not is_tried_again and not self._does("asks for an unknown session again"):
                raise GivenUp
        told = answer["result"]["sessionId"]
        if self._session not in (None, told) and not self._does("takes any session"):
            raise GivenUp
        if self._does("needs facts") and "environmentInfo" not in answer["result"]:
            raise GivenUp
        if not self._does("skips initialized"):
            await self._send({"method": "initialized", "params": {}})
        is_resumed, self._session = self._session is not None, told
        if is_resumed and self._is_started and not self._does("does not read after a loss"):
            await self._recover()

    async def _start(self) -> None:
        if self._does("repeats a start"):
            self._is_started = True
        params = {"processId": self._process, "argv": ["true"], "cwd": "file:///tmp", "env": {}}
        answer = await self._call("process/start", params)
        if "error" in answer:
            raise GivenUp
        self._is_started = True

    async def _recover(self) -> None:
        if self._does("repeats a start"):
            await self._start()
        params = {"processId": self._process, "afterSeq": self._taken, "waitMs": 0}
        answer = await self._call("process/read", params)
        if "error" in answer:
            await self._terminate()
        page: dict[str, Any] = answer["result"]
        for chunk in page["chunks"]:
            event = {"method": "process/output", "params": {**chunk, "processId": self._process}}
            await self._take(event)
        if self._taken + 1 + 2 * page["closed"] < page["nextSeq"]:
            if not self._does("skips output that is gone"):
                await self._terminate()
            self._taken = page["nextSeq"] - 1
            self._status = 0
            self._is_closed = True
        if page["exited"]:
            self._status = page["exitCode"]
        self._is_closed = self._is_closed or page["closed"]

    async def _terminate(self) -> None:
        if not self._does("leaves a process that it cannot read"):
            await self._call("process/terminate", {"processId": self._process})
        raise GivenUp

    # Messages.

    async def _send(self, message: Any) -> None:
        assert self._socket is not None
        try:
            await self._socket.send(json.dumps(message))
        except ConnectionClosed as exc:
            raise Lost from exc

    async def _receive(self) -> dict[str, Any]:
        assert self._socket is not None
        try:
            text = await self._socket.recv()
            if isinstance(text, bytes) and self._does("takes no binary messages"):
                raise GivenUp
            message: dict[str, Any] = json.loads(text)
        except ConnectionClosed as exc:
            raise Lost from exc
        except ValueError as exc:
            if self._does("ignores malformed messages"):
                return await self._receive()
            raise Lost from exc
        return message

    async def _call(self, method: str, params: Any) -> dict[str, Any]:
        if not (self._does("uses an id again") and self._last_id):
            self._last_id += 1
        await self._send({"id": self._last_id, "method": method, "params": params})
        while True:
            message = await self._receive()
            if "method" not in message and message.get("id") == self._last_id:
                return message
            if not (self._does("drops early events") and method == "process/start"):
                await self._take(message)

    async def _take(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params") or {}
        if method is None:
            return
        if "id" in message:
            if not self._does("does not answer the server"):
                error = {"code": -32601, "message": "unknown"}
                await self._send({"id": message["id"], "error": error})
        elif not str(method).startswith("process/"):
            if self._does("fails at unknown notifications"):
                raise GivenUp
        elif params["processId"] == self._process or self._does("takes events of all processes"):
            self._take_event(message)

    def _take_event(self, event: dict[str, Any]) -> None:
        number = event["params"]["seq"]
        if not isinstance(number, int):
            if self._does("ignores malformed events"):
                return
            raise Lost
        if self._does("takes events as they come"):
            self._apply(event)
            return
        if number <= self._taken:
            if self._does("takes an event as often as it comes"):
                self._apply(event)
            return
        self._ahead[number] = event
        if self._does("jumps over a gap"):
            self._taken = min(self._ahead) - 1
        while self._taken + 1 in self._ahead:
            self._taken += 1
            self._apply(self._ahead.pop(self._taken))

    def _apply(self, event: dict[str, Any]) -> None:
        if event["method"] == "process/output":
            self._output += base64.b64decode(event["params"]["chunk"])
        elif event["method"] == "process/exited":
            self._status = event["params"]["exitCode"]
            self._is_closed = self._does("is done at the exit")
        else:
            self._is_closed = True
