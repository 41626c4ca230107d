"""Durable processes outlive the server, and the next server goes on with them at the same byte."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import ServerProcess, start_server
from tests.support.wire import Wire, decoded

pytestmark = pytest.mark.one_loop


class Restarted:
    """A server on a state directory, which can be killed and started again."""

    def __init__(self, state: Path, *options: str) -> None:
        self.state = state
        self._options = options
        self._stack = contextlib.ExitStack()
        self.server: ServerProcess
        self.start()

    def start(self) -> None:
        self.server = self._stack.enter_context(
            start_server("--listen", "ws://127.0.0.1:0", "--state", str(self.state), *self._options)
        )

    @property
    def url(self) -> str:
        return self.server.url

    def kill(self, signum: int = signal.SIGKILL) -> None:
        self.server.signal(signum)
        self.server.wait()

    def close(self) -> None:
        """End everything, the keeper included."""
        self._stack.close()


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[Restarted]:
    servers = Restarted(tmp_path / "state")
    yield servers
    servers.close()


async def read_all(wire: Wire, process_id: str) -> tuple[bytes, dict[str, Any]]:
    """All output of a process and the last answer, once it has closed."""
    data, after = b"", 0
    while True:
        answer = await wire.call(
            "process/read", {"processId": process_id, "afterSeq": after, "waitMs": 10_000}
        )
        data += b"".join(decoded(chunk) for chunk in answer["chunks"])
        after = answer["nextSeq"] - 1
        if answer["closed"]:
            return data, answer


async def test_a_durable_process_outlives_a_killed_server(restarted):
    async with Wire(restarted.url) as wire:
        session = (await wire.initialize())["sessionId"]
        started = await wire.start(
            "a",
            ["sh", "-c", "echo one; read line; echo $line; exit 7"],
            pipeStdin=True,
            durable=True,
        )
        assert started["durable"] is True
        await wire.output_until("a", b"one")
        restarted.kill()
    restarted.start()
    async with Wire(restarted.url) as wire:
        await wire.initialize(resumeSessionId=session)
        assert await wire.write("a", b"two\n", "w1") == "accepted"
        data, answer = await read_all(wire, "a")
        assert data == b"one\ntwo\n"
        assert answer["exitCode"] == 7
        jobs = (await wire.call("job/list", {}))["jobs"]
        assert [job["state"] for job in jobs] == ["closed"]
        assert (await wire.call("job/prune", {})) == {"removed": 1}
