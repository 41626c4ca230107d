"""Servers on a state directory, which tests kill and start again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from exec_server.process.durable.durable_spawner import kill_marked
from tests.support.servers import OURS, ServerProcess, start_server
from tests.support.wire import Wire, decoded

PATIENCE = 60.0


class StateServers:
    """One server after another on the same state directory."""

    def __init__(self, state: Path, *options: str, command: list[str] | None = None) -> None:
        self.state = state
        self.options = options
        self.command = command or OURS
        self._stack = contextlib.ExitStack()
        self.server: ServerProcess
        self.start()

    def start(self) -> None:
        listen = () if "--listen" in self.options else ("--listen", "ws://127.0.0.1:0")
        self.server = self._stack.enter_context(
            start_server(*listen, "--state", str(self.state), *self.options, command=self.command)
        )

    @property
    def url(self) -> str:
        return self.server.url

    def kill(self, signum: int = signal.SIGKILL) -> int:
        """End the server with a signal; its exit status."""
        self.server.signal(signum)
        return self.server.wait()

    def restart(self, signum: int = signal.SIGKILL) -> None:
        self.kill(signum)
        self.start()

    @property
    def keeper_pid(self) -> int:
        return int((self.state / "keeper.lock").read_text())

    @property
    def jobs(self) -> list[Path]:
        """The folders of all jobs."""
        return sorted((self.state / "jobs").iterdir()) if self.state.exists() else []

    def kill_keeper(self) -> None:
        os.kill(self.keeper_pid, signal.SIGKILL)

    def close(self) -> None:
        """End the server, the keeper and everything that they have started."""
        self._stack.close()
        end_jobs(self.state)


def end_jobs(state: Path) -> None:
    """End the keeper of *state*, and everything that it has started; it need not run."""
    lock = state / "keeper.lock"
    if lock.exists() and is_running(keeper := int(lock.read_text())):
        os.kill(keeper, signal.SIGKILL)
        files = (state / "jobs").glob("*/job.json")
        kill_marked([json.loads(file.read_text())["mark"] for file in files])


def is_running(pid: int) -> bool:
    """True if *pid* is a process that has not ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 :][:1] != b"Z"


@contextlib.contextmanager
def state_servers(state: Path, *options: str) -> Iterator[StateServers]:
    servers = StateServers(state, *options)
    try:
        yield servers
    finally:
        servers.close()


async def until(is_so: Callable[[], object], what: str = "it did not come to be") -> None:
    """Wait for something that other processes do, also on a slow machine."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    while not is_so():
        assert loop.time() < deadline, what
        await asyncio.sleep(0.02)


async def read_all(wire: Wire, process_id: str) -> tuple[bytes, dict[str, Any]]:
    """All output of a process, and the last answer, once it has closed."""
    data, after = b"", 0
    while True:
        answer = await wire.call(
            "process/read", {"processId": process_id, "afterSeq": after, "waitMs": 10_000}
        )
        data += b"".join(map(decoded, answer["chunks"]))
        after = answer["nextSeq"] - 1
        if answer["closed"] and not answer.get("hasMore"):
            return data, answer


async def jobs_of(wire: Wire) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await wire.call("job/list", {}))["jobs"]
    return found
