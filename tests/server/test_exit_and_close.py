"""The exit of a program, the close of its streams, and what comes between them."""

from __future__ import annotations

import os
import signal

import pytest

from tests.requirements import requirement
from tests.support.wire import decoded


@pytest.fixture
def gate(tmp_path):
    """A FIFO; `cat` of it prints nothing until a writer writes."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@requirement("exit:status")
async def test_the_exit_code_is_the_status(wire):
    for code in (0, 1, 2, 127, 128, 255):
        finished = await wire.run(str(code), ["sh", "-c", f"exit {code}"])
        assert finished.exit_code == code


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGKILL,
        signal.SIGSEGV,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGRTMIN,
    ],
)
@requirement("exit:signal", "oddity:terminal-exit-code")
async def test_a_signal_counts_from_128_on_pipes_and_is_1_on_a_terminal(wire, number):
    argv = ["sh", "-c", f"ulimit -c 0; kill -{int(number)} $$"]
    assert (await wire.run("pipes", argv)).exit_code == 128 + number
    assert (await wire.run("tty", argv, tty=True)).exit_code == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@requirement("extension/exit-signals")
async def test_a_client_can_ask_for_the_signal_that_ended_a_terminal(wire, number):
    argv = ["sh", "-c", f"kill -{int(number)} $$"]
    for name, tty in (("pipes", False), ("terminal", True)):
        finished = await wire.run(name, argv, tty=tty, exitSignals=True)
        assert finished.exit_code == 128 + number
    finished = await wire.run("status", ["sh", "-c", "exit 7"], tty=True, exitSignals=True)
    assert finished.exit_code == 7


@pytest.mark.parametrize("tty", [False, True])
@requirement("exit:terminal-status")
async def test_a_status_is_the_same_on_a_terminal(wire, tty):
    assert (await wire.run("p", ["sh", "-c", "exit 42"], tty=tty)).exit_code == 42


@requirement("events:exit-and-close-once")
async def test_exit_and_close_come_once_each_and_close_has_the_highest_number(wire):
    finished = await wire.run("p", ["sh", "-c", "seq 1 5000; seq 1 5000 >&2"])
    methods = [event["method"] for event in finished.events]
    assert methods.count("process/exited") == methods.count("process/closed") == 1
    assert methods[-1] == "process/closed"
    assert finished.seqs == sorted(finished.seqs)
    # This is a barrier: no event follows.
    await wire.call("environment/status")
    assert wire.unread == []


@requirement("close:waits-for-the-streams", "close:late-output")
async def test_a_background_process_keeps_it_open_and_may_still_speak(wire, gate):
    await wire.start("p", ["sh", "-c", f"echo now; cat {gate} & exit 0"])
    first = await wire.event("p", "process/output")
    exited = await wire.event("p", "process/exited")
    assert (first["seq"], exited["seq"]) == (1, 2)
    page = await wire.call("process/read", {"processId": "p", "afterSeq": 2})
    assert (page["exited"], page["closed"], page["nextSeq"]) == (True, False, 3)
    gate.write_bytes(b"late\n")
    late, closed = await wire.events_until_closed("p")
    assert (late["params"]["seq"], decoded(late["params"])) == (3, b"late\n")
    assert closed["params"]["seq"] == 4


@pytest.mark.parametrize("redirect", [">&2 2>/dev/null", "2>&1 >/dev/null"])
@requirement("close:both-streams")
async def test_either_stream_alone_keeps_it_open(wire, gate, redirect):
    await wire.start("p", ["sh", "-c", f"cat {gate} {redirect} & exit 0"])
    await wire.event("p", "process/exited")
    page = await wire.call("process/read", {"processId": "p", "afterSeq": 1})
    assert page["closed"] is False
    gate.write_bytes(b"")
    assert (await wire.event("p", "process/closed"))["seq"] == 2


@requirement("close:streams-may-end-first")
async def test_streams_that_end_first_do_not_close_it(wire, gate):
    await wire.start("p", ["sh", "-c", f"exec >/dev/null 2>&1; cat {gate}; exit 6"])
    page = await wire.call("process/read", {"processId": "p"})
    assert (page["exited"], page["closed"], page["nextSeq"]) == (False, False, 1)
    gate.write_bytes(b"")
    exited, closed = await wire.events_until_closed("p")
    assert (exited["params"]["exitCode"], closed["params"]["seq"]) == (6, 2)


@requirement("exit:output-before-it")
async def test_what_a_program_wrote_before_it_ended_is_never_lost(wire):
    for number in range(100):
        finished = await wire.run(str(number), ["echo", "the last word"])
        assert finished.stdout == b"the last word\n"
        # Only our server does this: output from before the exit has a lower number.
        assert [event["method"] for event in finished.events] == [
            "process/output",
            "process/exited",
            "process/closed",
        ]


@requirement("exit:output-before-it")
async def test_a_large_last_word_is_complete(wire):
    finished = await wire.run("p", ["sh", "-c", "head -c 3000000 /dev/zero; exit 1"])
    assert len(finished.stdout) == 3_000_000
    assert finished.exit_code == 1


@requirement("exit:not-sandboxed")
async def test_an_unsandboxed_process_was_never_denied(wire):
    finished = await wire.run("p", ["sh", "-c", "echo Operation not permitted >&2; exit 1"])
    (exited,) = [e["params"] for e in finished.events if e["method"] == "process/exited"]
    assert exited["sandboxDenied"] is False
    assert (await wire.call("process/read", {"processId": "p"}))["sandboxDenied"] is False


@requirement("exit:reaped")
async def test_exited_programs_leave_no_zombies(wire):
    await wire.run("p", ["sh", "-c", "echo $$"])
    (process,) = (await wire.call("process/list"))["processes"]
    assert process["state"] == "closed"
    assert not os.path.exists(f"/proc/{process['pid']}/cwd")
