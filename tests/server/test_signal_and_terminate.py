"""process/signal and process/terminate: process groups, and children that leave them."""

from __future__ import annotations

import os
import signal

import pytest

from tests.requirements import requirement
from tests.support.children import Watched
from tests.support.tether import Tether
from tests.support.wire import Wire, decoded

# A shell and a second one in its group; both react to an interrupt.
TRAPS = """
trap 'echo leader; exit 9' INT
sh -c 'trap "echo child; exit" INT; echo ready; while :; do sleep 0.01; done'
"""


async def terminate(wire: Wire, process_id: str = "p") -> bool:
    result = await wire.call("process/terminate", {"processId": process_id})
    assert result.keys() == {"running"}
    running: bool = result["running"]
    return running


async def interrupt(wire: Wire, process_id: str = "p") -> None:
    params = {"processId": process_id, "signal": "interrupt"}
    assert await wire.call("process/signal", params) == {}


@pytest.mark.parametrize("tty", [False, True])
@requirement("process/signal:group")
async def test_an_interrupt_reaches_the_whole_group(wire, tty):
    await wire.start("p", ["sh", "-c", TRAPS], tty=tty)
    await wire.output_until("p", b"ready")
    await interrupt(wire)
    assert (await wire.output_until("p", b"leader")).split() == [b"child", b"leader"]
    assert (await wire.event("p", "process/exited"))["exitCode"] == 9


@requirement("process/signal:exit-code")
async def test_an_interrupted_program_exits_with_130(wire):
    await wire.start("p", ["sleep", "60"])
    await interrupt(wire)
    assert (await wire.event("p", "process/exited"))["exitCode"] == 130


@requirement("process/signal:nobody-there")
async def test_a_signal_for_an_unknown_process_is_no_error(wire):
    await interrupt(wire, "nobody")
    await wire.run("p", ["true"])
    await interrupt(wire)


@requirement("process/signal:nobody-there")
async def test_background_processes_of_an_exited_one_are_not_signalled(wire):
    await wire.start("p", ["sh", "-c", "sleep 60 & echo $!; exit 0"])
    background = Watched(int(decoded(await wire.event("p", "process/output"))))
    await wire.event("p", "process/exited")
    await interrupt(wire)
    # A signal would have ended it before the answer to a later request.
    assert (await wire.run("q", ["sh", "-c", f"kill -0 {background.pid}"])).exit_code == 0
    os.kill(background.pid, signal.SIGKILL)
    await background.ended()
    await wire.event("p", "process/closed")


@pytest.mark.parametrize(
    "value", ["kill", "Interrupt", "INTERRUPT", "", "SIG", "2", 2, None, [], {"x": 1}, "SIGNOSUCH"]
)
@requirement("process/signal:values")
async def test_another_value_is_refused(wire, value):
    await wire.start("p", ["sleep", "60"])
    params = {"processId": "p", "signal": value}
    assert (await wire.error("process/signal", params))["code"] == -32602
    # The signal's name is checked before the process, so an unknown process does not matter.
    params = {"processId": "nobody", "signal": value}
    assert (await wire.error("process/signal", params))["code"] == -32602


@requirement("process/signal:params", "process/terminate:params")
async def test_members_are_required(wire):
    for method, params in (
        ("process/signal", {"processId": "p"}),
        ("process/signal", {"signal": "interrupt"}),
        ("process/signal", {"processId": 1, "signal": "interrupt"}),
        ("process/terminate", {}),
        ("process/terminate", {"processId": None}),
        ("process/terminate", None),
    ):
        assert (await wire.error(method, params))["code"] == -32602


@pytest.mark.parametrize(("tty", "code"), [(False, 137), (True, 1)])
@requirement(
    "process/terminate:running", "process/terminate:exit-code", "oddity:terminal-exit-code"
)
async def test_terminate_kills_without_a_word(wire, tty, code):
    script = "trap 'echo handled' TERM HUP INT; echo ready; while :; do sleep 1; done"
    await wire.start("p", ["sh", "-c", script], tty=tty)
    await wire.output_until("p", b"ready")
    assert await terminate(wire) is True
    events = await wire.events_until_closed("p")
    assert events[-2]["params"]["exitCode"] == code
    said = b"".join(decoded(e["params"]) for e in events if "chunk" in e["params"])
    assert b"handled" not in said


@requirement("process/terminate:group")
async def test_terminate_kills_the_whole_group(wire, tmp_path):
    with Tether(tmp_path) as tether:
        script = f"exec 9>{tether.path}; sleep 60 & (sleep 60 & wait) & echo ready; wait"
        await wire.start("p", ["sh", "-c", script])
        await wire.output_until("p", b"ready")
        assert await terminate(wire) is True
        await tether.released()
    await wire.event("p", "process/closed")


@requirement("process/terminate:repeatable")
async def test_terminate_may_be_repeated(wire):
    await wire.start("p", ["sleep", "60"])
    requests = [await wire.request("process/terminate", {"processId": "p"}) for _ in range(3)]
    answers = [(await wire.answer(request_id))["result"]["running"] for request_id in requests]
    assert answers[0] is True
    # True until the exit is noticed, false from then on.
    assert answers == sorted(answers, reverse=True)
    await wire.event("p", "process/closed")
    assert await terminate(wire) is False


@requirement("process/terminate:readers-stop", "process/terminate:escaped")
async def test_an_escaped_process_does_not_hold_up_the_close(wire):
    script = "echo before; setsid sh -c 'echo $$; trap \"\" HUP; sleep 60; echo late' & wait"
    await wire.start("p", ["sh", "-c", script])
    seen = b""
    while seen.count(b"\n") < 2:
        seen += decoded(await wire.event("p", "process/output"))
    escaped = Watched(next(int(word) for word in seen.split() if word.isdigit()))
    assert await terminate(wire) is True
    events = await wire.events_until_closed("p")
    assert [event["method"] for event in events] == ["process/exited", "process/closed"]
    # The child survives; its later output is lost.
    assert (await wire.run("q", ["sh", "-c", f"kill -0 {escaped.pid}"])).exit_code == 0
    # Output that was read before is kept.
    page = await wire.call("process/read", {"processId": "p"})
    assert b"before\n" in b"".join(decoded(chunk) for chunk in page["chunks"])
    os.killpg(escaped.pid, signal.SIGKILL)
    await escaped.ended()


@requirement("process/terminate:not-running")
async def test_terminate_answers_false_for_a_process_that_does_not_run(wire):
    assert await terminate(wire, "nobody") is False
    await wire.run("p", ["true"])
    assert await terminate(wire) is False


@requirement("process/terminate:background-left-alone")
async def test_background_processes_of_an_exited_one_are_left_alone(wire):
    await wire.start("p", ["sh", "-c", "sleep 60 & echo $!; exit 4"])
    background = Watched(int(decoded(await wire.event("p", "process/output"))))
    await wire.event("p", "process/exited")
    assert await terminate(wire) is False
    page = await wire.call("process/read", {"processId": "p", "afterSeq": 2})
    assert (page["exited"], page["closed"]) == (True, False)
    os.kill(background.pid, signal.SIGKILL)
    await background.ended()
    await wire.event("p", "process/closed")


@requirement("process/terminate:stopped")
async def test_a_stopped_process_is_killed_too(wire):
    await wire.start("p", ["sh", "-c", "echo ready; kill -STOP $$"])
    await wire.output_until("p", b"ready")
    assert await terminate(wire) is True
    assert (await wire.event("p", "process/exited"))["exitCode"] == 137
