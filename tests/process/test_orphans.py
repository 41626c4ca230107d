"""However the server ends, every process tree it started ends too."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exec_server.limits import DEFAULT_LIMITS
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.children import Watched, child
from tests.support.leaks import children
from tests.support.servers import OURS, ServerProcess, start_server
from tests.support.tether import Tether
from tests.support.wire import Wire, start_params

CRASHES = [signal.SIGKILL, signal.SIGHUP, signal.SIGQUIT]
STOPS = [signal.SIGTERM, signal.SIGINT]

pytestmark = pytest.mark.one_loop


@pytest.fixture
def server_process() -> Iterator[ServerProcess]:
    with start_server() as running:
        yield running


@pytest.fixture
def tethers(tmp_path: Path) -> Iterator[dict[str, Tether]]:
    with contextlib.ExitStack() as stack:
        names = ("pipes", "tty", "polite", "polite-tty", "stopped")
        yield {name: stack.enter_context(Tether(tmp_path, name)) for name in names}


async def start_all(wire: Wire, tethers: dict[str, Tether]) -> None:
    """Start one tree of each kind; return when all of them wait."""
    programs = {
        "pipes": child("stubborn_tree.py", tethers["pipes"].path),
        "tty": child("stubborn_tree.py", tethers["tty"].path),
        "polite": child("says_its_last_signal.py", tethers["polite"].path),
        "polite-tty": child("says_its_last_signal.py", tethers["polite-tty"].path, "SIGHUP"),
        "stopped": child("stops_itself.py", tethers["stopped"].path),
    }
    for name, argv in programs.items():
        await wire.start(name, argv, tty="tty" in name)
        await wire.output_until(name, b"ready")


def keeper_of(server: ServerProcess) -> Watched:
    (pid,) = children(server.pid)
    return Watched(pid)


@requirement(
    "orphans:crash",
    "orphans:crash-sigterm-first",
    "orphans:crash-stopped",
    "orphans:own-session",
    "orphans:signals-that-kill",
)
@pytest.mark.parametrize("signum", CRASHES)
async def test_after_a_crash_trees_are_asked_and_then_forced_to_end(
    server_process, tethers, signum
):
    async with Wire(server_process.url) as wire:
        await wire.initialize()
        await start_all(wire, tethers)
        keeper = keeper_of(server_process)
        assert all(tether.is_held for tether in tethers.values())
        server_process.signal(signum)
        assert server_process.wait() == -signum
    said = {name: await tether.released() for name, tether in tethers.items()}
    assert said == {
        "pipes": b"",
        "tty": b"",
        "polite": b"SIGTERM\n",
        "polite-tty": b"SIGTERM\n",
        "stopped": b"SIGTERM\n",
    }
    await keeper.ended()


@requirement("orphans:stop", "orphans:stop-status", "orphans:own-session")
@pytest.mark.parametrize("signum", STOPS)
async def test_an_orderly_stop_asks_trees_and_then_forces_them_to_end(
    server_process, tethers, signum
):
    async with Wire(server_process.url) as wire:
        await wire.initialize()
        await start_all(wire, tethers)
        keeper = keeper_of(server_process)
        server_process.signal(signum)
        # The client is told at once, not after the time of grace.
        await wire.closed()
        assert tethers["pipes"].is_held
        assert server_process.wait() == 0
    # All processes were gone before the server was.
    assert not any(tether.is_held for tether in tethers.values())
    assert {name: await tether.released() for name, tether in tethers.items()} == {
        "pipes": b"",
        "tty": b"",
        "polite": b"SIGTERM\n",
        "polite-tty": b"SIGTERM\n",
        "stopped": b"SIGTERM\n",
    }
    await keeper.ended()


@requirement("orphans:stop-hangup")
async def test_an_orderly_stop_hangs_up_terminals(server_process, tmp_path):
    with Tether(tmp_path) as tether:
        async with Wire(server_process.url) as wire:
            await wire.initialize()
            argv = child("says_its_last_signal.py", tether.path, "SIGTERM")
            await wire.start("p", argv, tty=True)
            await wire.output_until("p", b"ready")
            server_process.signal(signal.SIGTERM)
            assert server_process.wait() == 0
        assert await tether.released() == b"SIGHUP\n"


@requirement("orphans:second-signal")
@pytest.mark.parametrize("signum", STOPS)
async def test_a_second_signal_ends_everything_at_once(tmp_path, signum):
    with Tether(tmp_path) as tether, start_server() as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
            await wire.start("p", child("stubborn_tree.py", tether.path))
            await wire.output_until("p", b"ready")
            began = time.monotonic()
            server.signal(signum)
            await wire.closed()
            server.signal(signum)
            assert server.wait() == 0
        assert await tether.released() == b""
    # Without the second signal it takes the whole time of grace.
    assert time.monotonic() - began < DEFAULT_LIMITS.orphan_grace


@requirement("orphans:hangup")
async def test_a_crash_hangs_up_the_terminals(server_process, tmp_path):
    with Tether(tmp_path) as tether:
        async with Wire(server_process.url) as wire:
            await wire.initialize()
            argv = child("says_its_last_signal.py", tether.path, "SIGTERM")
            await wire.start("p", argv, tty=True)
            await wire.output_until("p", b"ready")
            server_process.signal(signal.SIGKILL)
            server_process.wait()
        assert await tether.released() == b"SIGHUP\n"


@requirement("orphans:forking")
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize(
    "program", [("forks_in_all_directions.py", 8), ("never_stays.py", 20_000)], ids=["many", "fast"]
)
async def test_a_tree_that_keeps_forking_ends(server_process, tmp_path, program, signum):
    name, size = program
    with Tether(tmp_path) as tether:
        async with Wire(server_process.url) as wire:
            await wire.initialize()
            await wire.start("p", child(name, tether.path, size))
            await wire.output_until("p", b"ready")
            server_process.signal(signum)
            server_process.wait()
        assert await tether.released() == b""


@requirement("orphans:mid-start")
@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
async def test_a_server_that_ends_in_the_middle_of_a_start_leaves_no_process(
    server_process, tmp_path, signum, tty
):
    with Tether(tmp_path) as tether:
        argv = child("stubborn_tree.py", tether.path)
        async with Wire(server_process.url) as wire:
            await wire.initialize(concurrentRequests=16)
            keeper = keeper_of(server_process)
            for number in range(16):
                await wire.request("process/start", start_params(str(number), argv, tty=tty))
            # One of them has begun; most have not.
            await wire.answer(2)
            server_process.signal(signum)
            server_process.wait()
        await keeper.ended()
        assert not tether.is_held


@requirement("orphans:background")
async def test_a_background_process_of_an_ended_one_does_not_outlive_the_server(
    server_process, tmp_path
):
    with Tether(tmp_path) as tether:
        async with Wire(server_process.url) as wire:
            await wire.initialize()
            argv = child("exits_before_its_child.py", tether.path, 3)
            await wire.start("p", argv, pipeStdin=True)
            assert (await wire.event("p", "process/exited"))["exitCode"] == 3
            assert tether.is_held
            server_process.signal(signal.SIGTERM)
            assert server_process.wait() == 0
        assert not tether.is_held


@requirement("orphans:stdio")
@pytest.mark.parametrize("end", ["end of input", "SIGTERM", "SIGKILL"])
async def test_a_server_on_stdio_leaves_no_process(tmp_path, end):
    with Tether(tmp_path) as tether:
        requests = [
            {"id": 1, "method": "initialize", "params": {"clientName": "stdio"}},
            {"method": "initialized"},
            {
                "id": 2,
                "method": "process/start",
                "params": start_params("p", child("stubborn_tree.py", tether.path), tty=True),
            },
        ]
        process = subprocess.Popen(
            [*OURS, "--listen", "stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"".join(json.dumps(r).encode() + b"\n" for r in requests))
            process.stdin.flush()
            lines = iter(process.stdout.readline, b"")
            # The tree prints its line when it is complete.
            assert any(b"process/output" in line for line in lines)
            if end == "end of input":
                process.stdin.close()
            else:
                process.send_signal(signal.Signals[end])
            status = process.wait(60)
        assert status == (-signal.SIGKILL if end == "SIGKILL" else 0)
        assert await tether.released() == b""


@requirement("orphans:embedded")
async def test_leaving_an_embedded_server_ends_what_it_started(no_leaks, tmp_path):
    with Tether(tmp_path) as tether:
        async with serve() as running, Wire(running.url) as wire:
            await wire.initialize()
            await wire.start("p", child("stubborn_tree.py", tether.path))
            await wire.output_until("p", b"ready")
        assert not tether.is_held


@requirement("orphans:many")
async def test_a_hundred_trees_end_together(server_process, tmp_path):
    with Tether(tmp_path) as tether:
        argv = child("says_its_last_signal.py", tether.path)
        async with Wire(server_process.url) as wire:
            await wire.initialize(concurrentRequests=64)
            names = [str(number) for number in range(100)]
            for name in names:
                await wire.request("process/start", start_params(name, argv))
            for name in names:
                await wire.output_until(name, b"ready")
            server_process.signal(signal.SIGKILL)
            server_process.wait()
        assert await tether.released() == b"SIGTERM\n" * 100


LAST_WORDS = """
trap '' HUP
trap 'head -c 300000 /dev/zero; echo bye; echo bye >&2; touch "$0"; exit' TERM
echo ready
while :; do sleep .05; done
"""


@requirement("orphans:last-words")
@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
async def test_a_child_of_a_crashed_server_can_say_its_last_words(server_process, tmp_path, tty):
    said = tmp_path / "said"
    async with Wire(server_process.url) as wire:
        await wire.initialize()
        await wire.start("a", ["sh", "-c", LAST_WORDS, str(said)], tty=tty)
        await wire.output_until("a", b"ready")
        keeper = keeper_of(server_process)
        server_process.signal(signal.SIGKILL)
        await keeper.ended()
    assert said.exists()


# A shell says which signal ended its child, and would die of SIGPIPE when it does.
QUIET = "trap 'touch \"$0\"; exit' TERM; echo ready; while :; do sleep .05; done"
# A program that prints all the time meets the moment of the crash itself.
BUSY = "trap 'touch \"$0\"; exit' TERM; echo ready; while :; do echo busy; echo busy >&2; done"
# A program whose output was not read waits for that; its handler runs afterwards.
FULL = "trap 'touch \"$0\"; exit' TERM; echo ready; while :; do head -c 100000 /dev/zero; done"


@requirement("orphans:last-words")
@pytest.mark.parametrize("script", [QUIET, BUSY, FULL], ids=["quiet", "busy", "full"])
async def test_the_handler_of_a_child_runs_after_a_crash(server_process, tmp_path, script):
    said = tmp_path / "said"
    async with Wire(server_process.url) as wire:
        await wire.initialize()
        await wire.start("a", ["sh", "-c", script, str(said)])
        await wire.output_until("a", b"ready")
        keeper = keeper_of(server_process)
        server_process.signal(signal.SIGKILL)
        await keeper.ended()
    assert said.exists()
