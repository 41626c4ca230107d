"""Our extensions of the protocol; a client that does not ask for them never sees them."""

from __future__ import annotations

import os
import signal

import pytest

from tests.requirements import requirement
from tests.support.children import Watched, child
from tests.support.local import connected, resumed, server_with
from tests.support.wire import Wire, decoded, start_params

WRONG_CELLS = [0, -1, 65536, 2**64, 1.5, "80", [], True]


@requirement("extension/capabilities")
async def test_extensions_are_advertised(wire):
    capabilities = (await wire.call("environment/info"))["capabilities"]
    ours = {
        "processResize",
        "processCloseStdin",
        "processSignals",
        "processExitSignals",
        "processList",
        "processReadDroppedBytes",
        "processFlow",
        "concurrentRequests",
    }
    assert {name for name, value in capabilities.items() if value} >= ours


# process/resize, rows and cols.


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ({}, b"24 80"),
        ({"rows": 50, "cols": 132}, b"50 132"),
        ({"rows": 1}, b"1 80"),
        ({"cols": 65535}, b"24 65535"),
        ({"rows": None, "cols": None}, b"24 80"),
    ],
)
@requirement("extension/resize:start")
async def test_a_terminal_starts_with_the_size_asked_for(wire, size, shown):
    finished = await wire.run("p", ["stty", "size"], tty=True, **size)
    assert finished.stream("pty") == shown + b"\r\n"


@requirement("extension/resize:start")
async def test_a_size_means_nothing_without_a_terminal(wire):
    finished = await wire.run("p", ["echo", "pipes"], rows=5, cols=5)
    assert finished.stdout == b"pipes\n"


@requirement("extension/resize:start")
async def test_an_impossible_size_is_refused(wire):
    for member in ("rows", "cols"):
        for value in WRONG_CELLS:
            params = start_params("p", ["true"], tty=True, **{member: value})
            assert (await wire.error("process/start", params))["code"] == -32602, value


@requirement("extension/resize")
async def test_a_terminal_can_be_resized_and_the_program_is_told(wire):
    await wire.start("p", child("says_its_size.py"), tty=True)
    assert await wire.output_until("p", b"\n") == b"24 80\r\n"
    for rows, cols in ((30, 100), (65535, 1), (1, 65535)):
        params = {"processId": "p", "rows": rows, "cols": cols}
        assert await wire.call("process/resize", params) == {}
        assert await wire.output_until("p", b"\n") == b"%d %d\r\n" % (rows, cols)


@requirement("extension/resize:errors")
async def test_only_a_terminal_can_be_resized(wire):
    size = {"rows": 30, "cols": 100}
    error = await wire.error("process/resize", {"processId": "nobody", **size})
    assert error == {"code": -32600, "message": "unknown process id nobody"}
    await wire.start("p", ["sleep", "60"])
    error = await wire.error("process/resize", {"processId": "p", **size})
    assert error == {"code": -32600, "message": "process p has no terminal"}


@requirement("extension/resize:errors")
async def test_a_terminal_that_has_closed_is_left_alone(wire):
    await wire.run("p", ["true"], tty=True)
    assert await wire.call("process/resize", {"processId": "p", "rows": 30, "cols": 100}) == {}


@requirement("extension/resize:errors")
async def test_a_resize_needs_a_possible_size(wire):
    await wire.start("p", ["sleep", "60"], tty=True)
    good = {"processId": "p", "rows": 30, "cols": 100}
    for member in ("rows", "cols"):
        for value in (None, *WRONG_CELLS):
            error = await wire.error("process/resize", {**good, member: value})
            assert error["code"] == -32602, value
    for gone in good:
        params = {name: value for name, value in good.items() if name != gone}
        assert (await wire.error("process/resize", params))["code"] == -32602


# process/closeStdin.


async def close_stdin(wire: Wire, process_id: str = "p") -> str:
    result = await wire.call("process/closeStdin", {"processId": process_id})
    assert result.keys() == {"status"}
    status: str = result["status"]
    return status


@requirement("extension/close-stdin")
async def test_a_child_sees_the_end_of_its_input_after_what_was_written(wire):
    await wire.start("p", ["wc", "-c"], pipeStdin=True)
    for number in range(20):
        assert await wire.write("p", bytes(100_000), str(number)) == "accepted"
    assert await close_stdin(wire) == "accepted"
    assert await wire.output_until("p", b"\n") == b"2000000\n"
    assert (await wire.event("p", "process/exited"))["exitCode"] == 0


@requirement("extension/close-stdin:afterwards")
async def test_nothing_can_be_written_afterwards(wire):
    await wire.start("p", ["sh", "-c", "cat; echo end; sleep 60"], pipeStdin=True)
    assert await wire.write("p", b"x", "1") == "accepted"
    assert await close_stdin(wire) == "accepted"
    assert await close_stdin(wire) == "accepted"
    assert await wire.write("p", b"y", "2") == "stdinClosed"
    # A write that was accepted in time stays accepted, also for a client that lost the answer.
    assert await wire.write("p", b"x", "1") == "accepted"
    assert await wire.output_until("p", b"end\n") == b"xend\n"


@requirement("extension/close-stdin:statuses")
async def test_who_has_no_input_is_told(wire):
    assert await close_stdin(wire, "nobody") == "unknownProcess"
    await wire.start("p", ["sleep", "60"])
    assert await close_stdin(wire) == "stdinClosed"
    assert (await wire.error("process/closeStdin", {}))["code"] == -32602


@requirement("extension/close-stdin:terminal")
async def test_on_a_terminal_the_end_is_typed(wire):
    await wire.start("p", ["cat"], tty=True)
    assert await close_stdin(wire) == "accepted"
    assert (await wire.event("p", "process/exited"))["exitCode"] == 0


# process/signal with other names.


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("SIGTERM", 143),
        ("TERM", 143),
        ("SIGKILL", 137),
        ("SIGHUP", 129),
        ("USR1", 138),
        ("SIGQUIT", 131),
        ("interrupt", 130),
        ("SIGINT", 130),
    ],
)
@requirement("extension/signals")
async def test_any_signal_can_be_sent_by_its_name(wire, name, code):
    await wire.start("p", ["sh", "-c", "ulimit -c 0; echo ready; exec sleep 60"])
    await wire.output_until("p", b"ready")
    assert await wire.call("process/signal", {"processId": "p", "signal": name}) == {}
    assert (await wire.event("p", "process/exited"))["exitCode"] == code


@requirement("extension/signals")
async def test_a_process_can_be_stopped_and_continued(wire):
    await wire.start("p", ["cat"], pipeStdin=True)
    (process,) = (await wire.call("process/list"))["processes"]
    await wire.call("process/signal", {"processId": "p", "signal": "SIGSTOP"})
    state = b""
    while state != b"T":
        with open(f"/proc/{process['pid']}/stat", "rb") as file:
            state = file.read().rpartition(b") ")[2][:1]
        await wire.call("environment/status")
    await wire.call("process/signal", {"processId": "p", "signal": "CONT"})
    assert await wire.write("p", b"awake", "1") == "accepted"
    assert await wire.output_until("p", b"awake") == b"awake"


@requirement("extension/signals")
async def test_names_are_exact(wire):
    for name in ("sigterm", "term", "SIGSIGTERM", " TERM", "9", "SIGKILL ", "SIG_DFL"):
        params = {"processId": "p", "signal": name}
        assert (await wire.error("process/signal", params))["code"] == -32602


# process/list.


@requirement("extension/list")
async def test_a_list_has_every_process_in_the_order_of_its_start(wire):
    assert await wire.call("process/list") == {"processes": []}
    await wire.start("running", ["sh", "-c", "echo $$; exec sleep 60"], tty=True)
    running = int(decoded(await wire.event("running", "process/output")))
    await wire.start("open", ["sh", "-c", "sleep 60 & echo $!; exit 3"])
    background = Watched(int(decoded(await wire.event("open", "process/output"))))
    await wire.event("open", "process/exited")
    await wire.run("closed", ["sh", "-c", "exit 4"])
    processes = (await wire.call("process/list"))["processes"]
    assert [process.pop("pid") for process in processes].index(running) == 0
    assert processes == [
        {
            "processId": "running",
            "state": "running",
            "argv": ["sh", "-c", "echo $$; exec sleep 60"],
            "tty": True,
            "exitCode": None,
            "nextSeq": 2,
        },
        {
            "processId": "open",
            "state": "exited",
            "argv": ["sh", "-c", "sleep 60 & echo $!; exit 3"],
            "tty": False,
            "exitCode": 3,
            "nextSeq": 3,
        },
        {
            "processId": "closed",
            "state": "closed",
            "argv": ["sh", "-c", "exit 4"],
            "tty": False,
            "exitCode": 4,
            "nextSeq": 3,
        },
    ]
    os.kill(background.pid, signal.SIGKILL)
    await background.ended()


# concurrentRequests in initialize.


@pytest.mark.parametrize(
    ("asked", "granted"), [(1, 1), (2, 2), (64, 64), (65, 64), (2**40, 64), (None, None)]
)
@requirement("extension/concurrent-requests")
async def test_a_client_gets_the_concurrency_it_asks_for_up_to_a_limit(server, asked, granted):
    async with Wire(server.url) as wire:
        result = await wire.initialize(concurrentRequests=asked)
        assert result.get("concurrentRequests") == granted
        assert ("concurrentRequests" in result) == (asked is not None)


@requirement("extension/concurrent-requests")
async def test_a_client_never_gets_less_than_everybody():
    async with server_with(concurrent_requests=4, max_concurrent_requests=4) as server:
        async with Wire(server.url) as wire:
            assert (await wire.initialize(concurrentRequests=2))["concurrentRequests"] == 4


@pytest.mark.parametrize("asked", [0, -1, "2", 1.5, True, [], 2**64])
@requirement("extension/concurrent-requests")
async def test_an_impossible_concurrency_is_refused(server, asked):
    async with Wire(server.url) as wire:
        params = {"clientName": "x", "concurrentRequests": asked}
        if asked == 2**64:
            assert (await wire.call("initialize", params))["concurrentRequests"] == 64
            return
        assert (await wire.error("initialize", params))["code"] == -32602
        # The refused request has had no effect.
        assert "sessionId" in await wire.initialize()


@requirement("extension/concurrent-requests", "scheduling:serial")
async def test_only_who_asked_for_it_is_served_concurrently(server):
    async with connected(server.url, concurrentRequests=2) as wire:
        await wire.start("p", ["cat"], pipeStdin=True)
        poll = await wire.request("process/read", {"processId": "p", "waitMs": 600_000})
        # The poll of the same client does not delay this.
        assert await wire.write("p", b"x", "1") == "accepted"
        assert (await wire.answer(poll))["result"]["nextSeq"] == 2


@requirement("extension/concurrent-requests")
async def test_a_resuming_client_asks_again(server):
    async with Wire(server.url) as first:
        result = await first.initialize(concurrentRequests=2)
        first.cut()
    second = await resumed(server.url, result["sessionId"])
    await second.start("p", ["sleep", "60"])
    # This client has not asked for it, so a poll delays the requests behind it.
    poll = await second.request("process/read", {"processId": "p", "waitMs": 100})
    status = await second.request("environment/status")
    assert [(await second.receive())["id"] for _ in range(2)] == [poll, status]
    second.cut()
