"""A line that is cut and taken up again: the output goes on where it was."""

from __future__ import annotations

from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.wire import Wire, decoded


class Reader:
    """What one client has seen of a process, over any number of connections."""

    def __init__(self) -> None:
        self.output = b""
        self.seq = 0

    def _see(self, chunk: dict[str, Any]) -> None:
        assert chunk["seq"] == self.seq + 1
        self.seq = chunk["seq"]
        self.output += decoded(chunk)

    async def catch_up(self, wire: Wire, *, wait_ms: int = 0) -> None:
        """Fetch what was missed."""
        poll = {"processId": "p", "afterSeq": self.seq, "waitMs": wait_ms}
        for chunk in (await wire.call("process/read", poll))["chunks"]:
            self._see(chunk)

    async def listen(self, wire: Wire, text: bytes) -> None:
        """Take pushed events until *text* has come; those already fetched are skipped."""
        while text not in self.output:
            event = await wire.event("p", "process/output")
            if event["seq"] > self.seq:
                self._see(event)


@requirement("faults:resume-continues")
@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
async def test_output_goes_on_after_each_of_several_cuts(server, tty):
    quiet = "stty -echo -onlcr; " if tty else ""
    count = "i=0; while read x; do i=$((i+1)); echo line $i; done"
    reader, session_id = Reader(), None
    for round_ in range(5):
        async with Wire(server.url) as wire:
            session_id = (await wire.initialize(resumeSessionId=session_id))["sessionId"]
            if round_ == 0:
                argv = ["sh", "-c", f"{quiet}echo ready; {count}"]
                await wire.start("p", argv, tty=tty, pipeStdin=True)
                await reader.listen(wire, b"ready\n")
            await reader.catch_up(wire)
            for number in range(10):
                await wire.write("p", b"\n", f"{round_}-{number}")
            # Half of it is pushed here; the rest is written while no client is connected.
            await reader.listen(wire, b"line %d\n" % (10 * round_ + 5))
            wire.cut()
    async with Wire(server.url) as wire:
        await wire.initialize(resumeSessionId=session_id)
        while b"line 50\n" not in reader.output:
            await reader.catch_up(wire, wait_ms=5000)
    lines = [b"line %d\n" % number for number in range(1, 51)]
    assert reader.output == b"ready\n" + b"".join(lines)


@requirement("faults:detach-flood")
async def test_a_flood_goes_on_while_nobody_is_there(server):
    async with Wire(server.url) as wire:
        session_id = (await wire.initialize())["sessionId"]
        await wire.start("p", ["sh", "-c", "yes | head -c 20000000; echo done; exit 3"])
        await wire.event("p", "process/output")
        wire.cut()
    # More than a pipe, a socket and the retained output hold: it ends only if a client reads.
    async with Wire(server.url) as wire:
        await wire.initialize(resumeSessionId=session_id)
        cursor, ended = 0, False
        while not ended:
            poll = {"processId": "p", "afterSeq": cursor, "waitMs": 5000}
            page = await wire.call("process/read", poll)
            cursor, ended = page["nextSeq"] - 1, page["closed"]
        page = await wire.call("process/read", {"processId": "p"})
    output = b"".join(map(decoded, page["chunks"]))
    assert page["exitCode"] == 3
    assert output.endswith(b"y\ndone\n")
    assert page["droppedBytes"] + len(output) == 20_000_005


@requirement("faults:detach-flood")
async def test_floods_of_many_processes_end_while_nobody_is_there(server):
    names = [str(number) for number in range(8)]
    async with Wire(server.url) as wire:
        session_id = (await wire.initialize(concurrentRequests=8))["sessionId"]
        for name in names:
            await wire.start(name, ["head", "-c", "5000000", "/dev/zero"])
        wire.cut()
    async with Wire(server.url) as wire:
        await wire.initialize(resumeSessionId=session_id)
        for name in names:
            cursor, page = 0, {"closed": False}
            while not page["closed"]:
                poll = {"processId": name, "afterSeq": cursor, "waitMs": 5000}
                page = await wire.call("process/read", poll)
                cursor = page["nextSeq"] - 1
            assert page["exitCode"] == 0
