"""Order and concurrency beside the reference."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.comparing import ask, outcome, try_start
from tests.support.wire import Wire, start_params

pytestmark = pytest.mark.one_loop


async def answers(wire: Wire, count: int) -> list[tuple[Any, Any]]:
    """The next answers as they arrive, with their ids and outcomes."""
    found: list[tuple[Any, Any]] = []
    while len(found) < count:
        message = await wire.receive()
        if "method" not in message:
            found.append((message["id"], outcome(message)))
    return found


@requirement("scheduling:serial")
async def test_a_poll_holds_up_everything_behind_it(both):
    async def conversation(wire):
        await try_start(wire, "p", ["sleep", "60"])
        await wire.request("process/read", {"processId": "p", "waitMs": 100})
        await wire.request("environment/status")
        await wire.send("not JSON")
        await wire.request("no/such")
        await wire.request("process/read", {})
        await wire.request("process/terminate", {"processId": "p"})
        return await answers(wire, 6)

    found = await both.agree(conversation)
    assert [request_id for request_id, _ in found] == [3, 4, -1, 5, 6, 7]


@requirement("scheduling:control-lane", "scheduling:outside-the-lanes", "scheduling:slots")
async def test_lanes_are_the_same(both_concurrent):
    async def conversation(wire):
        await try_start(wire, "p", ["sleep", "60"])
        polls = [
            await wire.request("process/read", {"processId": "p", "waitMs": wait})
            for wait in (3000, 4000)
        ]
        behind = [
            await wire.request("process/write", {"processId": "p", "chunk": "", "writeId": "1"}),
            await wire.request("process/read", {}),
        ]
        passing = [
            await wire.request("no/such"),
            await wire.request("environment/status"),
            await wire.request("environment/info", {"a": 1}),
            await wire.request("process/signal", {"processId": "q", "signal": "interrupt"}),
            await wire.request("process/terminate", {"processId": "q"}),
        ]
        await wire.send("not JSON")
        found = await answers(wire, 10)
        ids = [request_id for request_id, _ in found]
        # Concurrent ones have no order among themselves.
        return (
            sorted(map(repr, found)),
            set(ids[:6]) == {*passing, -1},
            ids[6] == polls[0],
            set(ids[7:9]) == set(behind),
            ids[9] == polls[1],
        )

    found = await both_concurrent.agree(conversation)
    assert found[1:] == (True, True, True, True)


@requirement("process/start:starting", "process/terminate:starting")
async def test_a_start_with_a_terminate_behind_it_ends_in_one_of_two_ways(both_concurrent):
    async def conversation(wire):
        start = await wire.request("process/start", start_params("p", ["sleep", "60"]))
        terminate = await wire.request("process/terminate", {"processId": "p"})
        ended = outcome(await wire.answer(terminate))
        started = outcome(await wire.answer(start))
        if started == -32600:
            # Cancelled: the id is free at once, and there are no events.
            assert ended == {"running": True}
            assert await ask(wire, "process/read", {"processId": "p"}) == -32600
        elif ended["running"]:
            assert (await wire.event("p", "process/exited"))["exitCode"] == 137
        return started in (-32600, {"processId": "p", "sandboxType": "none"})

    assert await both_concurrent.agree(conversation) is True


@requirement("process/write:queue")
async def test_a_write_that_waits_for_room_is_answered_alike_when_the_child_ends(both_concurrent):
    async def conversation(wire):
        await try_start(wire, "p", ["sleep", "60"], pipeStdin=True)
        chunk = base64.b64encode(bytes(1 << 16)).decode()
        sent = [
            await wire.request(
                "process/write", {"processId": "p", "chunk": chunk, "writeId": str(number)}
            )
            for number in range(200)
        ]
        accepted = 0
        first = outcome(await wire.answer(sent[0]))
        ended = await ask(wire, "process/terminate", {"processId": "p"})
        outcomes = [outcome(await wire.answer(request_id)) for request_id in sent[1:]]
        accepted = outcomes.count({"status": "accepted"})
        return first, ended, accepted >= 128, set(map(repr, outcomes))

    theirs, mine = await both_concurrent.hear(conversation)
    assert mine[:3] == theirs[:3] == ({"status": "accepted"}, {"running": True}, True)
    # After a terminate a write fails; both ways of saying it are allowed.
    assert mine[3] | theirs[3] <= {repr({"status": "accepted"}), repr(-32603)}
