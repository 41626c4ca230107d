"""A registry of several nodes as it is run: processes, a NATS cluster and a PostgreSQL.

Every component has a name: `node-0`, `nats-0`, ..., `postgres`. Each keeps its ports and its files
when it is killed and started again. None of them survives this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import aiohttp
import pytest

from exec_server.access.token_secrets import digest_of
from exec_server.hub.access.tokens import new_token
from exec_server.hub.store.entities import Right
from exec_server.hub.store.open_store import open_store
from tests.support.daemon import ClosesAtExit, Daemon
from tests.support.durable import end_jobs
from tests.support.nats import NatsCluster
from tests.support.ports import free_ports
from tests.support.postgres import Postgres, binaries
from tests.support.servers import OURS

READY_SECONDS = 30.0
_PAUSE = 0.02


class Cluster(ClosesAtExit):
    """`with Cluster(folder) as cluster:` begins once all components answer.

    Enter the block in the main thread, outside of any loop. The methods may be called in a loop.
    """

    def __init__(
        self, folder: Path, *, nodes: int = 3, servers: int = 3, public_url: str | None = None
    ) -> None:
        """Skip the test if NATS or PostgreSQL is not installed."""
        programs = binaries()
        if programs is None:
            pytest.skip("PostgreSQL is not installed (see scripts/system.sh)")
        self.folder = folder
        self.nats = NatsCluster(folder, servers)
        self.postgres = Postgres(programs)
        self._count = nodes
        self._public_url = public_url
        self._stack = contextlib.ExitStack()
        self._nodes: list[Daemon] = []
        self.ports = free_ports(nodes)
        self.state = ""

    def __enter__(self) -> Self:
        with self._stack as stack:
            self.nats = stack.enter_context(self.nats)
            stack.enter_context(self.postgres)
            self.state = self.postgres.create_database()
            asyncio.run(self.nats.ready())
            self._nodes = [self._new_node(index) for index in range(self._count)]
            for node in self._nodes:
                stack.callback(node.kill)
                node.start()
            asyncio.run(self.ready())
            self._stack = stack.pop_all()
        return self

    def close(self) -> None:
        self._stack.close()

    def _new_node(self, index: int) -> Daemon:
        words = ["registry", "--listen", f"ws://127.0.0.1:{self.ports[index]}"]
        words += ["--state", self.state, "--bus", self.nats.url]
        if self._public_url is not None:
            words += ["--public-url", self._public_url]
        return self._program(f"node-{index}", words)

    def _program(self, name: str, words: list[str]) -> Daemon:
        """A command of ours, with a state folder of its own."""
        environ = {**os.environ, "XDG_STATE_HOME": str(self.folder / "state")}
        return Daemon(self.folder, name, [*OURS, *words], env=environ)

    # Components, by name.

    @property
    def nodes(self) -> list[str]:
        return [f"node-{index}" for index in range(self._count)]

    @property
    def servers(self) -> list[str]:
        return [f"nats-{index}" for index in range(self.nats.size)]

    @property
    def names(self) -> list[str]:
        return [*self.nodes, *self.servers, "postgres"]

    def kill(self, name: str) -> None:
        """Send SIGKILL, and return when the component is gone."""
        kind, index = _parts(name)
        if kind == "node":
            self._nodes[index].kill()
        elif kind == "nats":
            self.nats.kill(index)
        else:
            self.postgres.kill()

    def start(self, name: str) -> None:
        """Start a component that was killed; `ready` waits for it."""
        kind, index = _parts(name)
        if kind == "node":
            self._nodes[index].start()
        elif kind == "nats":
            self.nats.start(index)
        else:
            self.postgres.begin()

    def pause(self, name: str) -> None:
        """Stop a component until `resume`."""
        kind, index = _parts(name)
        if kind == "node":
            self._nodes[index].pause()
        elif kind == "nats":
            self.nats.pause(index)
        else:
            self.postgres.pause()

    def resume(self, name: str) -> None:
        kind, index = _parts(name)
        if kind == "node":
            self._nodes[index].resume()
        elif kind == "nats":
            self.nats.resume(index)
        else:
            self.postgres.resume()

    async def ready(self) -> None:
        """Return when all components that run answer."""
        async with asyncio.timeout(READY_SECONDS):
            if self.postgres.is_running:
                while not await asyncio.to_thread(self.postgres.answers):
                    assert self.postgres.is_running, self.postgres.log()
            await self.nats.ready()
            for node, port in zip(self._nodes, self.ports, strict=True):
                await _until_accepts(node, port)

    def revive(self) -> list[str]:
        """Start the nodes that have ended by themselves, as a supervisor does; return their names.

        A node that finds no state or no bus when it starts logs that and ends.
        """
        ended = [name for name, node in zip(self.nodes, self._nodes, strict=True) if node.has_ended]
        for name in ended:
            self.start(name)
        return ended

    def log(self, name: str) -> str:
        kind, index = _parts(name)
        if kind == "node":
            return self._nodes[index].log()
        return self.nats.log(index) if kind == "nats" else self.postgres.log()

    # Users of the registry.

    async def token(self, *rights: Right) -> str:
        """A new token for all environments."""
        store = await open_store(self.state)
        try:
            token, secret = new_token("tester", rights, ("*",), now=time.time())
            await store.add_token(token, digest_of(secret))
        finally:
            await store.close()
        return secret

    async def until_online(self, name: str, token: str) -> None:
        """Return once the environment is online; *token* may list."""
        headers = {"Authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{self.ports[0]}/api/environments"
        async with asyncio.timeout(READY_SECONDS), aiohttp.ClientSession(headers=headers) as web:
            while True:
                async with web.get(url) as response:
                    found = await response.json()
                if any(each["name"] == name and each["isOnline"] for each in found):
                    return

    @contextlib.contextmanager
    def executor(
        self, url: str, name: str, token: str, *, state: Path | None = None
    ) -> Iterator[Daemon]:
        """Run `exec-server --remote URL`, which may not be connected yet; kill it at the end.

        Durable jobs are kept in *state*, and end as well.
        """
        file = self.folder / f"{name}.token"
        file.write_text(token)
        file.chmod(0o600)
        words = ["--remote", url, "--environment-id", name, "--registry-token-file", str(file)]
        words += ["--state", str(state)] if state is not None else []
        process = self._program(f"executor-{name}", words)
        process.start()
        try:
            yield process
        finally:
            process.kill()
            if state is not None:
                end_jobs(state)


def _parts(name: str) -> tuple[str, int]:
    kind, _, index = name.partition("-")
    if kind not in ("node", "nats", "postgres"):
        raise ValueError(f"no component is called {name}")
    return kind, int(index or 0)


async def _until_accepts(node: Daemon, port: int) -> None:
    while node.is_wanted and not await _accepts(port):
        assert not node.has_ended, node.log()
        await asyncio.sleep(_PAUSE)


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
