"""A registry in this process, and the clients that tests use."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from exec_server.access.token_secrets import digest_of
from exec_server.hub.access.tokens import new_token
from exec_server.hub.registry_service import HubOptions, RunningHub, serve_hub
from exec_server.hub.store.entities import AccessToken, Right
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.relay.keys import SEED_BYTES, KeyPair
from tests.support import postgres
from tests.support.postgres import Postgres

PROFILE = "noise_hybrid_ik_v1"


class Clock:
    """Wall time that a test can move."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class Answer(NamedTuple):
    status: int
    body: Any
    headers: Any

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"])


class Visitor:
    """A client of a registry over HTTP, with tokens."""

    def __init__(self, hub: RunningHub, web: aiohttp.ClientSession) -> None:
        self.hub = hub
        self.web = web
        self.key = KeyPair(os.urandom(SEED_BYTES))
        # Keeps sockets referenced, so that none is closed by accident.
        self._sockets: list[aiohttp.ClientWebSocketResponse] = []

    async def token(
        self, *rights: Right, patterns: Sequence[str] = ("*",), **options: Any
    ) -> tuple[AccessToken, str]:
        options.setdefault("now", time.time())
        principal = options.pop("principal", "tester")
        token, secret = new_token(principal, rights, patterns, **options)
        await self.hub.store.add_token(token, digest_of(secret))
        return token, secret

    async def ask(
        self, method: str, path: str, secret: str | None = None, *, body: Any = None, **options: Any
    ) -> Answer:
        headers = {**options.pop("headers", {})}
        if secret is not None:
            headers["Authorization"] = f"Bearer {secret}"
        if body is not None:
            options["json"] = body
        url = self.hub.url + path
        async with self.web.request(method, url, headers=headers, **options) as response:
            is_json = response.content_type == "application/json"
            content = await (response.json() if is_json else response.text())
            return Answer(response.status, content, response.headers)

    async def post(self, name: str, operation: str, secret: str | None, body: Any) -> Answer:
        return await self.ask("POST", f"/cloud/environment/{name}/{operation}", secret, body=body)

    async def register(self, name: str, secret: str | None, **more: Any) -> Answer:
        body = {"security_profile": PROFILE, "executor_public_key": self.key.public.to_object()}
        return await self.post(name, "register", secret, {**body, **more})

    async def connect(self, name: str, secret: str | None) -> Answer:
        body = {"harness_public_key": self.key.public.to_object()}
        return await self.post(name, "connect", secret, body)

    async def validate(self, name: str, secret: str | None, bundle: Any, **more: Any) -> Answer:
        body = {
            "executor_registration_id": bundle["executor_registration_id"],
            "harness_public_key": self.key.public.to_object(),
            "harness_key_authorization": bundle["harness_key_authorization"],
        }
        return await self.post(name, "validate", secret, {**body, **more})

    async def open(self, url: str, **options: Any) -> aiohttp.ClientWebSocketResponse:
        socket: aiohttp.ClientWebSocketResponse = await self.web.ws_connect(
            url, autoping=False, max_msg_size=0, **options
        )
        self._sockets.append(socket)
        return socket

    def drop_all(self) -> None:
        for socket in self._sockets:
            socket._response.close()

    async def refusal(self, url: str, **options: Any) -> tuple[int, str | None]:
        """The status and reason of a refused socket."""
        try:
            await self.open(url, **options)
        except aiohttp.WSServerHandshakeError as exc:
            assert exc.headers is not None
            return exc.status, exc.headers.get("x-codex-rendezvous-rejection-reason")
        raise AssertionError("it was opened")


class Pair(NamedTuple):
    """An executor's socket, and the token and keys of its harness."""

    visitor: Visitor
    name: str
    executor: aiohttp.ClientWebSocketResponse
    enrolment: str
    harness: str
    harness_token: AccessToken
    registration: Any

    async def open_harness(self) -> aiohttp.ClientWebSocketResponse:
        answer = await self.visitor.connect(self.name, self.harness)
        assert answer.status == 200, answer
        return await self.visitor.open(answer.body["url"])


def transport_of(socket: aiohttp.ClientWebSocketResponse) -> Any:
    """A raw connection, for clients that are slow or break the protocol."""
    connection: Any = socket._response.connection
    return connection.transport


async def bring_online(visitor: Visitor, name: str = "build") -> Pair:
    _, enrolment = await visitor.token("enrol")
    token, harness = await visitor.token("connect", "list")
    registration = (await visitor.register(name, enrolment)).body
    executor = await visitor.open(registration["url"])
    return Pair(visitor, name, executor, enrolment, harness, token, registration)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def visit(tmp_path: Path, clock: Clock, no_leaks: None) -> AsyncIterator[Callable[..., Any]]:
    """A function that starts a registry with the test's options and limits."""
    async with AsyncExitStack() as stack:

        @asynccontextmanager
        async def visiting(*, limits: Limits = DEFAULT_LIMITS, **options: Any) -> Any:
            options.setdefault("state", str(tmp_path / "registry.sqlite3"))
            async with (
                serve_hub(HubOptions(**options), limits=limits, clock=clock) as hub,
                aiohttp.ClientSession() as web,
            ):
                visitor = Visitor(hub, web)
                yield visitor
                visitor.drop_all()

        async def start(**options: Any) -> Visitor:
            return await stack.enter_async_context(visiting(**options))

        yield start


@pytest.fixture
async def visitor(visit: Callable[..., Awaitable[Visitor]]) -> Visitor:
    return await visit()


@pytest.fixture
async def pair(visitor: Visitor) -> Pair:
    """An environment that is online."""
    return await bring_online(visitor)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One server for all tests, with a database for each."""
    with postgres.running() as server:
        yield server or pytest.skip("PostgreSQL is not installed (see scripts/system.sh)")


@pytest.fixture
def mortal_postgres(postgres_server: Postgres) -> Iterator[Postgres]:
    """A server that the test may kill or pause."""
    yield postgres_server
    postgres_server.revive()


@pytest.fixture(params=["sqlite", "postgres"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The state of a registry: a new file, then a new database."""
    if request.param == "sqlite":
        return str(tmp_path / "state")
    server: Postgres = request.getfixturevalue("postgres_server")
    return server.create_database()
