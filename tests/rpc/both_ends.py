"""A Peer under test at one end of a connection in memory, and a test at the other."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from exec_server.errors import ProtocolError
from exec_server.limits import Limits
from exec_server.protocol.method import Encoded, Event, Method
from exec_server.rpc.peer import Peer
from exec_server.rpc.router import Route
from exec_server.transport.memory_connection import MemoryConnection, memory_pair
from tests.support.turns import turn


class Numbered(msgspec.Struct):
    number: int
    text: str = ""


ECHO = Method("test/echo", Numbered, Numbered, family="test")
HOLD = Method("test/hold", Numbered, Numbered, family="test")
RAISE = Method("test/raise", Numbered, Numbered, family="test")
PIECES = Method("test/pieces", Numbered, Numbered, family="test")
STOP = Method("test/stop", Numbered, Numbered, family="test", is_control=True)
HOLD_STOP = Method("test/holdStop", Numbered, Numbered, family="test", is_control=True)
NEWS = Event("test/news", Numbered)


class ScriptedService:
    """What the peer speaks for: handlers that wait for the test, and a record of what they saw."""

    def __init__(self) -> None:
        self.routes = {
            route.method.name: route
            for route in (
                Route(ECHO, self._echo),
                Route(STOP, self._echo),
                Route(HOLD, self._hold),
                Route(HOLD_STOP, self._hold),
                Route(RAISE, self._raise),
                Route(PIECES, self._in_pieces),
            )
        }
        # Everything that was seen, in order: numbers of requests, and notifications.
        self.seen: list[Any] = []
        # The handlers that wait, by the numbers of their requests.
        self.held: dict[int, asyncio.Future[Numbered]] = {}
        # What `test/raise` raises.
        self.error: Exception = ValueError("a secret of the server")
        self.refuses_notifications = False
        self.paused: list[bool] = []
        self.times_lost = 0

    def release(self, number: int) -> None:
        """Let the handler of request *number* return."""
        self.held[number].set_result(Numbered(number))

    def _echo(self, context: Any, params: Numbered) -> Numbered:
        self.seen.append(params.number)
        return params

    def _hold(self, context: Any, params: Numbered) -> asyncio.Future[Numbered]:
        self.seen.append(params.number)
        future: asyncio.Future[Numbered] = asyncio.get_running_loop().create_future()
        self.held[params.number] = future
        return future

    def _raise(self, context: Any, params: Numbered) -> Numbered:
        raise self.error

    def _in_pieces(self, context: Any, params: Numbered) -> Encoded:
        return Encoded((b'{"number":', b"%d" % params.number, b"}"))

    def notification_received(self, method: str, params: Any) -> None:
        if self.refuses_notifications:
            raise ProtocolError(f"no such notification: {method}")
        self.seen.append((method, params))

    def writing_paused(self) -> None:
        self.paused.append(True)

    def writing_resumed(self) -> None:
        self.paused.append(False)

    def connection_lost(self) -> None:
        self.times_lost += 1


class FarEnd:
    """The other end of the peer's connection: sends anything, keeps everything that arrives."""

    def __init__(self, connection: MemoryConnection) -> None:
        self.connection = connection
        self.received: list[dict[str, Any]] = []
        self.is_lost = False
        connection.attach(self)

    def send(self, message: dict[str, Any] | str) -> int:
        """Send *message*; the number of its bytes."""
        data = (message if isinstance(message, str) else json.dumps(message)).encode()
        self.connection.send(data)
        return len(data)

    def ask(self, number: int, method: Method[Any, Any], text: str = "") -> int:
        """Request *method*; *number* is its id and its parameter."""
        params = {"number": number, "text": text}
        return self.send({"id": number, "method": method.name, "params": params})

    @property
    def answered(self) -> list[Any]:
        """The ids of the answers so far, in the order of their arrival."""
        return [message["id"] for message in self.received if "id" in message]

    def message_received(self, data: bytes) -> None:
        self.received.append(json.loads(data))

    def writing_paused(self) -> None: ...

    def writing_resumed(self) -> None: ...

    def connection_lost(self) -> None:
        self.is_lost = True


class Ends:
    """Both ends, and the service that the peer speaks for."""

    def __init__(self, *, is_strict: bool = True, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        near, far = memory_pair(limits=limits)
        self.service = ScriptedService()
        self.peer = Peer(near, self.service, limits=limits, is_strict=is_strict)
        self.far = FarEnd(far)


async def settle() -> None:
    """Until everything that was sent has been delivered and acted on."""
    for _ in range(20):
        await turn()
