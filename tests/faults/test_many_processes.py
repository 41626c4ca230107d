"""Two hundred processes at once, in one session and in many."""

from __future__ import annotations

import asyncio

import pytest

from tests.requirements import requirement
from tests.support import leaks
from tests.support.wire import Wire, start_params

COUNT = 200


@requirement("faults:two-hundred-processes")
@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
async def test_two_hundred_processes_live_at_once_and_end(server, tty):
    async with Wire(server.url) as wire:
        await wire.initialize(concurrentRequests=16)
        names = [str(number) for number in range(COUNT)]
        starts = [
            await wire.request("process/start", start_params(name, ["sleep", "60"], tty=tty))
            for name in names
        ]
        for request_id in starts:
            assert "result" in await wire.answer(request_id)
        assert leaks.remembered(server.core)["processes"] == COUNT
        listed = (await wire.call("process/list"))["processes"]
        assert {entry["state"] for entry in listed} == {"running"}
        assert len({entry["pid"] for entry in listed}) == COUNT
        for name in names:
            assert await wire.call("process/terminate", {"processId": name}) == {"running": True}
        for name in names:
            exited = await wire.event(name, "process/exited")
            assert exited["exitCode"] == (1 if tty else 137)
            await wire.event(name, "process/closed")
    assert leaks.remembered(server.core)["processes"] == 0


@requirement("faults:two-hundred-processes")
async def test_two_hundred_processes_that_talk_are_all_heard(server):
    async with Wire(server.url) as wire:
        await wire.initialize(concurrentRequests=64)
        names = [str(number) for number in range(COUNT)]
        for name in names:
            argv = ["sh", "-c", f"echo {name}; cat; exit {int(name) % 256}"]
            await wire.request("process/start", start_params(name, argv, pipeStdin=True))
        for name in names:
            assert await wire.output_until(name, b"\n") == name.encode() + b"\n"
        for name in names:
            await wire.write(name, b"hello\n")
            await wire.call("process/closeStdin", {"processId": name})
        for name in names:
            events = await wire.events_until_closed(name)
            assert [event["params"]["seq"] for event in events] == [2, 3, 4]
            assert events[1]["params"]["exitCode"] == int(name) % 256


@requirement("faults:two-hundred-processes")
async def test_two_hundred_clients_run_one_each(server):
    async def one(number: int) -> None:
        async with Wire(server.url) as wire:
            await wire.initialize()
            ran = await wire.run("p", ["sh", "-c", f"echo {number}"])
            assert (ran.stdout, ran.exit_code) == (b"%d\n" % number, 0)

    await asyncio.gather(*(one(number) for number in range(COUNT)))
    assert leaks.remembered(server.core)["processes"] == 0
