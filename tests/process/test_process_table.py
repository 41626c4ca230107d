"""The table of a session's processes, over a Peer and without a keeper."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

from exec_server.limits import DEFAULT_LIMITS
from exec_server.process.process_table import ProcessTable
from exec_server.process.pump import OutputGate
from exec_server.process.spawn import Launch, OnExit, Spawned, Spawner
from exec_server.protocol import process
from exec_server.protocol.base64 import encode_base64
from exec_server.rpc.peer import Peer
from exec_server.rpc.router import Route
from exec_server.state.window import WindowBudget
from exec_server.transport.memory_connection import memory_pair
from tests.requirements import requirement
from tests.support.turns import turn


class InstantSpawner(Spawner):
    """Programs that have said everything and ended by the time their start is reported."""

    def __init__(self) -> None:
        super().__init__(orphan_grace=0.0)

    def spawn(
        self, launch: Launch, on_exit: OnExit, *, session: int | None = None
    ) -> asyncio.Future[Spawned]:
        fds = []
        for output in (b"out\n", b"err\n"):
            reader, writer = os.pipe()
            os.write(writer, output)
            os.close(writer)
            fds.append(reader)
        spawned: asyncio.Future[Spawned] = asyncio.get_running_loop().create_future()
        spawned.set_result(Spawned(4711, fds))
        on_exit(0)
        return spawned


class Session:
    """What a server has for one connection: a peer, and a table whose events go out over it."""

    def __init__(self, *, width: int) -> None:
        near, far = memory_pair(limits=DEFAULT_LIMITS)
        self.routes = {process.START.name: Route(process.START, lambda _, p: self.table.start(p))}
        self.peer = Peer(near, self, limits=DEFAULT_LIMITS)
        self.peer.allow_concurrency(width)
        self._near = near
        self._far = far
        self.gate = OutputGate()
        self.is_attached = True
        self.table = ProcessTable(
            spawner=InstantSpawner(),
            outlet=self,
            limits=DEFAULT_LIMITS,
            login_shell="/bin/sh",
            server_env={},
            windows=WindowBudget(total_bytes=0, max_window=0, free_bytes=0),
        )
        self.sent: list[dict[str, Any]] = []
        far.attach(self)

    def ask(self, number: int) -> None:
        """Request the start of process *number*; the request has the same number."""
        params = {
            "processId": f"p{number}",
            "argv": ["x"],
            "cwd": "file:///",
            "env": {},
            "tty": False,
        }
        message = {"id": number, "method": process.START.name, "params": params}
        self._far.send(json.dumps(message).encode())

    def interrupt(self) -> None:
        raise AssertionError("no event may fail here")

    def push(self, *parts: bytes) -> None:
        self._near.send(*parts)

    def push_bulk(self, before: bytes, data: bytes, after: bytes) -> None:
        self._near.send(before, encode_base64(data), after)

    def message_received(self, data: bytes) -> None:
        self.sent.append(json.loads(data))

    def notification_received(self, method: str, params: Any) -> None: ...

    def writing_paused(self) -> None: ...

    def writing_resumed(self) -> None: ...

    def connection_lost(self) -> None: ...


@pytest.mark.parametrize("width", [1, 4])
@requirement("process/start:reply-before-events")
async def test_no_event_overtakes_the_answer_even_of_a_process_that_has_ended_at_once(width):
    session = Session(width=width)
    for number in (1, 2, 3):
        session.ask(number)
    async with asyncio.timeout(60):
        while sum(message.get("method") == "process/closed" for message in session.sent) < 3:
            await turn()
    for number in (1, 2, 3):
        told = [
            message.get("method", "answer")
            for message in session.sent
            if message.get("id") == number
            or message.get("params", {}).get("processId") == f"p{number}"
        ]
        assert told[0] == "answer"
        assert sorted(told[1:3]) == ["process/output", "process/output"]
        assert told[3:] == ["process/exited", "process/closed"]
    session.table.close()
