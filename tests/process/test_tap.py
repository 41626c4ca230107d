"""Taps: told everything that happens to a process, beside its session."""

from __future__ import annotations

import asyncio

import pytest

import exec_server
from tests.requirements import requirement


class Listener:
    """Writes down what a tap is told."""

    def __init__(self) -> None:
        self.told: list[tuple] = []
        self.is_closed = asyncio.Event()

    def output(self, seq: int, stream: str, data: bytes) -> None:
        self.told.append(("output", seq, stream, data))

    def resized(self, rows: int, cols: int) -> None:
        self.told.append(("resized", rows, cols))

    def driven(self, name: str, kind: str) -> None:
        raise AssertionError("it is not shared")

    def exited(self, seq: int) -> None:
        self.told.append(("exited", seq))

    def closed(self) -> None:
        self.told.append(("closed",))
        self.is_closed.set()


@pytest.fixture
async def client(server):
    async with exec_server.connect(server.url) as opened:
        yield opened


def tapped(server, process) -> Listener:
    (session,) = server.core.sessions
    child = session.processes.find(process.process_id)
    listener = Listener()
    child.taps = (*child.taps, listener)
    return listener


@requirement("screen:tap")
async def test_a_tap_is_told_output_sizes_exit_and_close(server, client):
    argv = ["sh", "-c", "read x; stty size; exit 3"]
    async with await client.start(argv, tty=True, rows=5, cols=20) as process:
        listener = tapped(server, process)
        await process.resize(7, 30)
        await process.write(b"\n")
        read = b"".join([chunk.data async for chunk in process])
        await listener.is_closed.wait()
    told = listener.told
    assert told[0] == ("resized", 7, 30)
    outputs = [each for each in told if each[0] == "output"]
    assert b"".join(each[3] for each in outputs) == read and b"7 30" in read
    assert {each[2] for each in outputs} == {"pty"}
    numbers = [each[1] for each in told if each[0] in ("output", "exited")]
    assert numbers == sorted(set(numbers)) and told[-1] == ("closed",)


@requirement("screen:tap")
async def test_a_process_that_is_abandoned_closes_its_taps(server, client):
    process = await client.start(["sleep", "600"])
    listener = tapped(server, process)
    await process.terminate()
    await listener.is_closed.wait()
    assert [each[0] for each in listener.told] == ["exited", "closed"]
