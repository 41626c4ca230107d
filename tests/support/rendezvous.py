"""A registry and its rendezvous on the loopback, which fail when they are told to.

It stands for another party's service: it knows frames, and nothing of what is in them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from aiohttp import WSMsgType, web

from exec_server.errors import RelayError
from exec_server.relay.frame import RelayFrame, Reset, StreamId, decode, encode

PROFILE = "noise_hybrid_ik_v1"
TOKEN = "registry-token"


class Asked(NamedTuple):
    """A request to the registry."""

    operation: str
    path: str
    headers: dict[str, str]
    body: Any


class Scripted(NamedTuple):
    """What the registry says instead of the truth; None as status hangs up."""

    status: int | None = 200
    body: Any = None
    headers: dict[str, str] | None = None

    @staticmethod
    def error(status: int, code: str | None = None) -> Scripted:
        return Scripted(status, {"error": {"code": code, "message": "scripted"}})


# Gives the frames to pass on instead of one; the direction is "up" to the executor or "down".
Tamper = Callable[[str, bytes], Iterable[bytes]]


class Socket:
    """One WebSocket, and what waits to be sent on it."""

    def __init__(self, role: str, environment: str, ws: web.WebSocketResponse) -> None:
        self.role = role
        self.environment = environment
        self.ws = ws
        self.outbox: asyncio.Queue[bytes | str] = asyncio.Queue()
        self.streams: set[StreamId] = set()
        self.transport: Any = None

    async def pump(self) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):
            while True:
                data = await self.outbox.get()
                await (
                    self.ws.send_str(data) if isinstance(data, str) else self.ws.send_bytes(data)
                )

    def cut(self) -> None:
        """Drop the line without a word."""
        if self.transport is not None:
            self.transport.abort()


class Rendezvous:
    """Both services; everything that passes is remembered."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.upgrades: list[tuple[str, dict[str, str]]] = []
        # What the next requests of an operation, and upgrades of a role, are answered with.
        self.scripts: dict[str, deque[Scripted]] = {}
        self.refusals: dict[str, deque[int]] = {}
        self.seen = bytearray()
        self.is_capturing = False
        self.tamper: Tamper | None = None
        # How many frames the executors have sent.
        self.answered = 0
        self.sockets: list[Socket] = []
        self.changed = asyncio.Event()
        self.port = 0
        self._executors: dict[str, Socket] = {}
        self._harnesses: dict[str, Socket] = {}
        self._registrations: dict[str, dict[str, Any]] = {}
        self._authorizations: dict[str, dict[str, Any]] = {}
        self._numbers = itertools.count(1)
        self._signatures: set[str] = set()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def noise_url(self, environment: str = "env-1") -> str:
        return f"noise+{self.url}/{environment}"

    # Life.

    async def start(self) -> None:
        """Listen, the second time on the same port."""
        app = web.Application(client_max_size=1 << 24)
        app.router.add_post("/cloud/{kind}/{environment}/{operation}", self._on_request)
        app.router.add_get("/ws/{environment}", self._on_upgrade)
        self._runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Drop everybody and listen no more; what was registered is remembered."""
        for socket in tuple(self.sockets):
            socket.cut()
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def until(self, is_so: Callable[[], object], seconds: float = 60.0) -> None:
        """Until something that happened here makes *is_so* true."""
        async with asyncio.timeout(seconds):
            while not is_so():
                self.changed.clear()
                await self.changed.wait()

    def _note(self) -> None:
        self.changed.set()

    # Faults.

    def script(self, operation: str, *answers: Scripted) -> None:
        self.scripts.setdefault(operation, deque()).extend(answers)

    def refuse(self, role: str, *statuses: int) -> None:
        self.refusals.setdefault(role, deque()).extend(statuses)

    def expire_urls(self) -> None:
        """No URL that was given out is good any more."""
        self._signatures.clear()

    def cut(self, role: str) -> int:
        """Drop the sockets of a role; how many there were."""
        found = [socket for socket in self.sockets if socket.role == role]
        for socket in found:
            socket.cut()
        return len(found)

    def operations(self, operation: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.operation == operation]

    def count(self, role: str) -> int:
        """Upgrades that were asked for, successful or not."""
        return sum(1 for each, _ in self.upgrades if each == role)

    def send_to_executor(self, data: bytes | str, environment: str = "env-1") -> None:
        """Say something that no harness has said."""
        self._executors[environment].outbox.put_nowait(data)

    def executor_socket(self, environment: str = "env-1") -> Socket:
        return self._executors[environment]

    def is_online(self, environment: str = "env-1") -> bool:
        return environment in self._executors

    # The registry.

    async def _on_request(self, request: web.Request) -> web.StreamResponse:
        operation = request.match_info["operation"]
        raw = await request.read()
        body = msgspec.json.decode(raw) if raw else None
        self.asked.append(Asked(operation, request.path_qs, _headers(request), body))
        self._note()
        if scripted := self.scripts.get(operation):
            answer = scripted.popleft()
            if answer.status is None:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            text = answer.body if isinstance(answer.body, str) else None
            text = msgspec.json.encode(answer.body).decode() if text is None else text
            return web.Response(status=answer.status, text=text, headers=answer.headers)
        handler = getattr(self, f"_{operation}", self._unknown)
        status, found = handler(request.match_info["environment"], body, request.match_info["kind"])
        return web.Response(
            status=status, body=msgspec.json.encode(found), content_type="application/json"
        )

    def _sign(self, environment: str, role: str) -> str:
        signature = f"s{next(self._numbers)}"
        self._signatures.add(signature)
        query = f"role={role}&signature={signature}"
        return f"ws://127.0.0.1:{self.port}/ws/{environment}?{query}"

    def _register(self, environment: str, body: Any, kind: str) -> tuple[int, Any]:
        registration = {
            f"{kind}_id": environment,
            "security_profile": PROFILE,
            "url": self._sign(environment, "environment"),
            "executor_registration_id": f"reg-{next(self._numbers)}",
            "future_member": {},
        }
        self._registrations[environment] = {**registration, **(body or {})}
        return 200, registration

    def _connect(self, environment: str, body: Any, kind: str) -> tuple[int, Any]:
        registration = self._registrations.get(environment)
        if registration is None:
            return 404, {"error": {"code": "environment_not_found", "message": "unknown"}}
        if environment not in self._executors:
            return 409, {"error": {"code": "environment_offline", "message": "offline"}}
        authorization = f"authorization-{next(self._numbers)}"
        self._authorizations[authorization] = {
            "executor_registration_id": registration["executor_registration_id"],
            "harness_public_key": body["harness_public_key"],
        }
        return 200, {
            "environment_id": environment,
            "security_profile": PROFILE,
            "url": self._sign(environment, "harness"),
            "executor_registration_id": registration["executor_registration_id"],
            "executor_public_key": registration["executor_public_key"],
            "harness_key_authorization": authorization,
        }

    def _unknown(self, environment: str, body: Any, kind: str) -> tuple[int, Any]:
        """Another registry does not know the requests that only ours answers."""
        return 404, {}

    def _validate(self, environment: str, body: Any, kind: str) -> tuple[int, Any]:
        # Each is good once.
        known = self._authorizations.pop(body["harness_key_authorization"], None)
        given = {name: body[name] for name in ("executor_registration_id", "harness_public_key")}
        return 200, {"valid": known == given}

    # The rendezvous.

    async def _on_upgrade(self, request: web.Request) -> web.StreamResponse:
        role = request.query.get("role", "?")
        self.upgrades.append((role, _headers(request)))
        self._note()
        if refused := self.refusals.get(role):
            return web.Response(status=refused.popleft())
        if request.query.get("signature") not in self._signatures:
            headers = {"x-codex-rendezvous-rejection-reason": "expired"}
            return web.Response(status=401 if role == "harness" else 403, headers=headers)
        ws = web.WebSocketResponse(compress=False, max_msg_size=0, autoclose=False)
        await ws.prepare(request)
        socket = Socket(role, request.match_info["environment"], ws)
        socket.transport = request.transport
        await self._serve(socket)
        return ws

    async def _serve(self, socket: Socket) -> None:
        self.sockets.append(socket)
        if socket.role == "environment":
            self._executors[socket.environment] = socket
        pump = asyncio.ensure_future(socket.pump())
        self._note()
        try:
            async for message in socket.ws:
                if message.type == WSMsgType.BINARY:
                    self._pass_on(socket, message.data)
        finally:
            pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pump
            self._leave(socket)

    def _leave(self, socket: Socket) -> None:
        self.sockets.remove(socket)
        if self._executors.get(socket.environment) is socket:
            del self._executors[socket.environment]
            # Frames for it would be lost, and their streams wait for ever.
            for each in self.sockets:
                if each.environment == socket.environment:
                    each.cut()
        executor = self._executors.get(socket.environment)
        for stream_id in socket.streams:
            self._harnesses.pop(stream_id, None)
            if executor is not None and executor is not socket:
                executor.outbox.put_nowait(encode(RelayFrame(stream_id, Reset("harness_gone"))))
        self._note()

    def _pass_on(self, socket: Socket, data: bytes) -> None:
        if self.is_capturing:
            self.seen += data
        direction = "down" if socket.role == "environment" else "up"
        self.answered += direction == "down"
        self._note()
        frames = [data] if self.tamper is None else self.tamper(direction, data)
        for frame in frames:
            self._route(socket, frame)

    def _route(self, socket: Socket, data: bytes) -> None:
        stream_id = _stream_id(data)
        if stream_id is None:
            return
        if socket.role == "environment":
            target = self._harnesses.get(stream_id)
        else:
            self._harnesses[stream_id] = socket
            socket.streams.add(stream_id)
            target = self._executors.get(socket.environment)
        if target is not None:
            target.outbox.put_nowait(data)


def _headers(request: web.Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def _stream_id(data: bytes) -> StreamId | None:
    """The id at the head of a frame: version, then a string of up to 127 bytes."""
    if data[:3] == b"\x08\x01\x12" and len(data) > 4 and data[3] < 128:
        return StreamId(data[4 : 4 + data[3]].decode("utf-8", "replace"))
    with contextlib.suppress(RelayError):
        return decode(data, segmented=True).stream_id
    return None


@contextlib.asynccontextmanager
async def rendezvous() -> AsyncIterator[Rendezvous]:
    """Both services for the length of a block."""
    made = Rendezvous()
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
