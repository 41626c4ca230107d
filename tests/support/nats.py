"""Real NATS servers with JetStream: one, or a cluster, each with a folder and ports of its own."""

from __future__ import annotations

import asyncio
import shutil
import socket
from pathlib import Path
from typing import Self

import pytest
from nats.aio.client import Client
from nats.errors import Error

from tests.support.daemon import ClosesAtExit, Daemon
from tests.support.ports import free_ports

# A cluster elects its leader in a second or two; a busy machine takes longer.
READY_SECONDS = 30.0
_ATTEMPT_SECONDS = 1.0
_PAUSE = 0.05


def nats_server() -> str:
    """The path of the program; the test is skipped if it is not installed."""
    # Debian installs it in a folder that is on the PATH of root only.
    found = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")
    if found is None:
        pytest.skip("nats-server is not installed")
    return found


class NatsCluster(ClosesAtExit):
    """`with NatsCluster(folder, 3) as cluster: await cluster.ready()`; it is killed at the end.

    A server keeps its ports and its store when it is killed and started again, and ends with the
    thread that started it.
    """

    def __init__(
        self, folder: Path, size: int = 1, *, config: str = "", store: bool = True
    ) -> None:
        """*config* is added to each configuration; without *store* there is no JetStream."""
        self._program = nats_server()
        self._folder = folder
        self._config = config
        self._store = store
        self._ports = free_ports(2 * size)
        self.size = size
        self._servers = [
            Daemon(folder, f"nats-{index}", [self._program, "-c", self._config_file(index)])
            for index in range(size)
        ]

    def __enter__(self) -> Self:
        for index in range(self.size):
            self.start(index)
        return self

    def close(self) -> None:
        for server in self._servers:
            server.kill()

    @property
    def hosts(self) -> list[str]:
        """`host:port` of each server, for clients."""
        return [f"127.0.0.1:{port}" for port in self._ports[: self.size]]

    @property
    def url(self) -> str:
        return "nats://" + ",".join(self.hosts)

    @property
    def running(self) -> list[int]:
        return [index for index, server in enumerate(self._servers) if server.is_wanted]

    def pid(self, index: int) -> int:
        return self._servers[index].pid

    def start(self, index: int) -> None:
        self._config_file(index).write_text(self._configuration(index))
        self._servers[index].start()

    def kill(self, index: int) -> None:
        """End a server as a crash or the loss of a machine does; return when it is gone."""
        self._servers[index].kill()

    def pause(self, index: int) -> None:
        """Stop a server until `resume`."""
        self._servers[index].pause()

    def resume(self, index: int) -> None:
        self._servers[index].resume()

    def lose_disk(self, index: int) -> None:
        """Remove the store of a server that does not run."""
        assert not self._servers[index].is_wanted
        shutil.rmtree(self._folder / f"nats-{index}")

    async def ready(self) -> None:
        """Return when every running server accepts clients and JetStream has a leader."""
        async with asyncio.timeout(READY_SECONDS):
            for index in self.running:
                while not await self._is_ready(index):
                    assert not self._servers[index].has_ended, self.log(index)
                    await asyncio.sleep(_PAUSE)

    def log(self, index: int) -> str:
        return self._servers[index].log()

    def _config_file(self, index: int) -> Path:
        return self._folder / f"nats-{index}.conf"

    def _configuration(self, index: int) -> str:
        lines = [f'server_name: "nats-{index}"', f'listen: "127.0.0.1:{self._ports[index]}"']
        if self._store:
            lines.append(f'jetstream {{ store_dir: "{self._folder / f"nats-{index}"}" }}')
        if self.size > 1:
            routes = self._ports[self.size :]
            others = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
            lines.append(
                f'cluster {{ name: "test", listen: "127.0.0.1:{routes[index]}", '
                f"routes: [{others}] }}"
            )
        return "\n".join([*lines, self._config, ""])

    async def _is_ready(self, index: int) -> bool:
        if self._config or not self._store:
            # A server that needs a password is only asked whether it listens.
            return _listens(self._ports[index])
        client = Client()
        try:
            await client.connect(
                [f"nats://{self.hosts[index]}"],
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=1,
                error_cb=_ignore,
            )
            await client.jetstream(timeout=_ATTEMPT_SECONDS).account_info()
            return True
        except (Error, OSError, TimeoutError):
            return False
        finally:
            await client.close()


async def _ignore(exc: Exception) -> None:
    """Ignore an error: a server that is not ready is asked again."""


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
