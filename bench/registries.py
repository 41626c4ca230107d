"""Registries to measure: nodes, NATS and PostgreSQL, and clients that load them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import aiohttp

from bench import proc
from bench.relay_ends import End, Way
from exec_server.access.token_secrets import digest_of
from exec_server.hub.access.tokens import new_token
from exec_server.hub.store import Store
from exec_server.hub.store.entities import Right
from exec_server.hub.store.open_store import open_store
from exec_server.relay.keys import SEED_BYTES, KeyPair
from tests.support.nats import NatsCluster
from tests.support.postgres import running
from tests.support.servers import OURS, ServerProcess, start_server

_AT_ONCE = 64
_RETRY_SECONDS = 0.05
_PROFILE = "noise_hybrid_ik_v1"
_T = TypeVar("_T")
_HARNESS_RIGHTS: tuple[Right, ...] = ("connect", "list")


class Spent(NamedTuple):
    """Elapsed seconds, and processor seconds of each group of processes."""

    seconds: float
    cpu: dict[str, float]

    def per(self, count: float) -> dict[str, float]:
        return {name: seconds / max(count, 1) for name, seconds in self.cpu.items()}


class Meter:
    """Measures the processor time of groups of processes from now on."""

    def __init__(self, groups: dict[str, Sequence[int]]) -> None:
        self._groups = groups
        self._began = time.perf_counter()
        self._before = self._read()

    def spent(self) -> Spent:
        seconds = time.perf_counter() - self._began
        cpu = {name: after - self._before[name] for name, after in self._read().items()}
        return Spent(seconds, cpu)

    def _read(self) -> dict[str, float]:
        return {
            name: sum(proc.cpu_seconds(proc.family(pid)) for pid in pids)
            for name, pids in self._groups.items()
        }


class Node:
    """One registry process, and the requests of executors and harnesses to it."""

    def __init__(self, server: ServerProcess, *, enrolments: Sequence[str], token: str) -> None:
        self._server = server
        self._enrolments, self._token = enrolments, token
        self._key = KeyPair(os.urandom(SEED_BYTES)).public.to_object()

    @property
    def pid(self) -> int:
        return self._server.pid

    @property
    def memory(self) -> int:
        """The private memory of the process, in bytes."""
        return proc.memory([proc.Identity(self.pid, 0)]).private

    def kill(self) -> None:
        self._server.process.kill()
        self._server.process.wait()

    async def register(self, web: aiohttp.ClientSession, number: int) -> str:
        """The URL of an executor's socket on this node."""
        body = {"security_profile": _PROFILE, "executor_public_key": self._key}
        token = self._enrolments[number % len(self._enrolments)]
        return str((await self._post(web, f"idle-{number}/register", token, body))["url"])

    async def connect(self, web: aiohttp.ClientSession, number: int) -> str:
        """The URL of a harness's socket to that executor."""
        body = {"harness_public_key": self._key}
        return str((await self._post(web, f"idle-{number}/connect", self._token, body))["url"])

    async def executor(self, web: aiohttp.ClientSession, number: int) -> End:
        return await End.dial(await self.register(web, number))

    async def harness(self, web: aiohttp.ClientSession, number: int) -> End:
        return await End.dial(await self.connect(web, number))

    async def online(self, web: aiohttp.ClientSession) -> int:
        """The number of executors that are served by any node, as this node sees it."""
        headers = {"Authorization": f"Bearer {self._token}"}
        url: Any = f"{self._server.url}/api/environments"
        online: int = 0
        while True:
            async with web.get(url, headers=headers) as response:
                online += sum(each["isOnline"] for each in await response.json())
                if "next" not in response.links:
                    return online
                url = response.links["next"]["url"]

    def here(self, url: str) -> str:
        """The same URL at this node."""
        base = self._server.url.replace("http", "ws", 1)
        return base + url[url.index("/", len("ws://")) :]

    async def _post(self, web: aiohttp.ClientSession, path: str, token: str, body: Any) -> Any:
        url = f"{self._server.url}/cloud/environment/{path}"
        headers = {"Authorization": f"Bearer {token}"}
        while True:
            async with web.post(url, json=body, headers=headers) as response:
                if response.status == 200:
                    return await response.json()
                # The socket of an executor is open a moment before the executor is served.
                assert response.status == 409, await response.text()
            await asyncio.sleep(_RETRY_SECONDS)


class Registry(NamedTuple):
    nodes: list[Node]
    # The shared parts.
    nats: list[int]
    postgres: list[int]
    folder: Path

    def meter(self) -> Meter:
        """Processes of all nodes, all NATS servers and PostgreSQL."""
        return Meter(
            {
                "nodes": [node.pid for node in self.nodes],
                "nats": self.nats,
                "postgres": self.postgres,
            }
        )


@contextlib.asynccontextmanager
async def started(
    *, nodes: int = 1, servers: int = 0, is_shared: bool = False, tokens: int = 1
) -> AsyncIterator[Registry]:
    """Nodes with a SQLite file, or with PostgreSQL when *is_shared*; *servers* are of NATS.

    Executors have *tokens* enrolment tokens in turn.
    """
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="exec-bench-")))
        state, postgres = f"{folder}/state", None
        # Nodes on a bus have to share a database.
        if is_shared or servers:
            postgres = stack.enter_context(running())
            assert postgres is not None, "PostgreSQL is not installed"
            state = postgres.create_database()
        options = ["--state", state, "--log-level", "error"]
        nats: list[int] = []
        if servers:
            cluster = stack.enter_context(NatsCluster(folder, servers))
            await cluster.ready()
            options += ["--bus", cluster.url]
            nats = [cluster.pid(index) for index in range(servers)]
        enrolments, token = await make_tokens(state, tokens)
        command = [*OURS, "registry", *options]
        made = [stack.enter_context(start_server(command=command)) for _ in range(nodes)]
        yield Registry(
            [Node(server, enrolments=enrolments, token=token) for server in made],
            nats,
            [] if postgres is None else [postmaster(postgres.folder)],
            folder,
        )


def postmaster(folder: Path) -> int:
    """The first process of the PostgreSQL with that folder."""
    return int((folder / "data" / "postmaster.pid").read_text().split()[0])


async def make_tokens(state: str, enrolments: int) -> tuple[list[str], str]:
    store = await open_store(state)
    try:
        made = [await _make_token(store, ("enrol",)) for _ in range(enrolments)]
        return made, await _make_token(store, _HARNESS_RIGHTS)
    finally:
        await store.close()


async def _make_token(store: Store, rights: tuple[Right, ...]) -> str:
    token, secret = new_token("bench", rights, ["*"], now=time.time())
    await store.add_token(token, digest_of(secret))
    return secret


async def all_of(work: Iterable[Awaitable[_T]], *, at_once: int = _AT_ONCE) -> list[_T]:
    """The results in order; at most *at_once* run at any time."""
    numbered = enumerate(work)
    found: dict[int, _T] = {}

    async def some() -> None:
        for number, each in numbered:
            found[number] = await each

    await asyncio.gather(*(some() for _ in range(at_once)))
    return [found[number] for number in range(len(found))]


async def fill(nodes: Sequence[Node], web: aiohttp.ClientSession, count: int) -> list[End]:
    """Add *count* idle executors to these nodes in turn."""
    return await all_of(nodes[number % len(nodes)].executor(web, number) for number in range(count))


@contextlib.asynccontextmanager
async def joined(
    executors: Node, harnesses: Node, web: aiohttp.ClientSession, number: int
) -> AsyncIterator[Way]:
    """A stream whose executor is at *executors*, and whose harness may be elsewhere."""
    executor = await executors.executor(web, number)
    harness = await harnesses.harness(web, number)
    try:
        yield Way(harness, executor)
    finally:
        harness.drop()
        executor.drop()
