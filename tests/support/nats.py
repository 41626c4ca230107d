"""Real NATS servers with JetStream: one, or a cluster, each in a folder and on ports of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from types import TracebackType

import pytest
from nats.aio.client import Client
from nats.errors import Error

from tests.support.servers import tied

# A cluster elects its leader in a second or two; a busy machine takes longer.
READY_SECONDS = 30.0
_ATTEMPT_SECONDS = 1.0
_PAUSE = 0.05


def nats_server() -> str:
    """The program; the test is skipped when it is not installed."""
    # Debian keeps it where only root looks.
    found = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")
    if found is None:
        pytest.skip("nats-server is not installed")
    return found


class NatsCluster:
    """`with NatsCluster(folder, 3) as cluster: await cluster.ready()`; all are killed at the end.

    A server keeps its ports and its store when it is killed and started again, and ends with the
    thread that started it.
    """

    def __init__(
        self, folder: Path, size: int = 1, *, config: str = "", store: bool = True
    ) -> None:
        """*config* is added to the configuration of each; without *store* there is no JetStream."""
        self._program = nats_server()
        self._folder = folder
        self._config = config
        self._store = store
        self._ports = free_ports(2 * size)
        self.size = size
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> NatsCluster:
        for index in range(self.size):
            self.start(index)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for index in list(self._children):
            self.kill(index)

    @property
    def hosts(self) -> list[str]:
        """`host:port` of each server, where clients connect."""
        return [f"127.0.0.1:{port}" for port in self._ports[: self.size]]

    @property
    def url(self) -> str:
        return "nats://" + ",".join(self.hosts)

    @property
    def running(self) -> list[int]:
        return sorted(self._children)

    def pid(self, index: int) -> int:
        return self._children[index].pid

    def start(self, index: int) -> None:
        config = self._folder / f"nats-{index}.conf"
        config.write_text(self._configuration(index))
        with (self._folder / f"nats-{index}.log").open("ab") as log:
            self._children[index] = subprocess.Popen(
                [*tied(), self._program, "-c", str(config)], stdout=log, stderr=log
            )

    def kill(self, index: int) -> None:
        """As a crash or a lost machine does it; returns when it is gone."""
        child = self._children.pop(index)
        child.kill()
        child.wait()

    def pause(self, index: int) -> None:
        """It lives and says nothing more, until `resume`; returns when all of it has stopped."""
        child = self._children[index]
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)

    def resume(self, index: int) -> None:
        self._children[index].send_signal(signal.SIGCONT)

    def lose_disk(self, index: int) -> None:
        """Of a server that does not run."""
        assert index not in self._children
        shutil.rmtree(self._folder / f"nats-{index}")

    async def ready(self) -> None:
        """Returns when every server that runs takes clients and JetStream has its leader."""
        async with asyncio.timeout(READY_SECONDS):
            for index in self.running:
                while not await self._is_ready(index):
                    assert self._children[index].poll() is None, self.log(index)
                    await asyncio.sleep(_PAUSE)

    def log(self, index: int) -> str:
        return (self._folder / f"nats-{index}.log").read_text()

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
            # Who asks for passwords is asked no more than whether it listens.
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
    """What is not ready yet is asked again."""


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
