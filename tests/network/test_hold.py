"""A sandboxed command that waits for its proxy: it ends with a reason, or never begins."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from exec_server.network import bridge
from exec_server.sandbox.backends import HERE
from tests.requirements import requirement
from tests.support.children import Watched
from tests.support.leaks import children
from tests.support.local import wire_with
from tests.support.proxied import wanted
from tests.support.sandbox_cases import ROOT_READ, at, context, entry, managed
from tests.support.servers import start_server
from tests.support.wire import PATIENCE, Finished, Wire, start_params

pytestmark = pytest.mark.skipif(
    not HERE.bubblewrap_report.works, reason=f"{HERE.bubblewrap_report.obstacle}"
)
PREFIX = "failed to prepare host proxy routing bridge: "

# A server whose bridges are never ready, and that says so.
STUCK = """
import asyncio, os, sys
from exec_server.network import bridge
async def never(pid, ports, *, seconds):
    with open(os.environ["HELD"], "x") as file:
        file.write(str(pid))
    await asyncio.Event().wait()
bridge.listen_inside = never
from exec_server.cli.main import main
sys.exit(main())
"""


def start(tmp_path, *, tty=False):
    """process/start of a command that leaves a file behind if it runs."""
    permissions = managed(ROOT_READ, entry(at(f"file://{tmp_path}"), "write"))
    return start_params(
        "p",
        ["sh", "-c", f": > {tmp_path}/ran"],
        tty=tty,
        sandbox=context(permissions),
        enforceManagedNetwork=True,
        networkProxy=wanted(),
    )


async def outcome(wire, params):
    await wire.call("process/start", params)
    done = Finished(await wire.events_until_closed("p"))
    return (done.stderr + done.stream("pty")).decode(), done.exit_code


@pytest.mark.parametrize("tty", [False, True])
@requirement("network/enforced:hold", "network/enforced:fails-closed")
async def test_a_bridge_that_fails_ends_the_command_with_the_reason(
    wire, tmp_path, monkeypatch, tty
):
    async def failing(pid, ports, *, seconds):
        raise bridge.BridgeFailed("it was refused")

    monkeypatch.setattr(bridge, "listen_inside", failing)
    text, code = await outcome(wire, start(tmp_path, tty=tty))
    assert (text, code) == (
        f"{PREFIX}it was refused\r\n" if tty else f"{PREFIX}it was refused\n",
        101,
    )
    assert not (tmp_path / "ran").exists()


@requirement("network/enforced:hold", "network/enforced:fails-closed")
async def test_a_sandbox_that_says_nothing_of_itself_is_ended(tmp_path, monkeypatch):
    """Its report goes to another descriptor, so that the server never gets it."""
    gate = bridge.Bridge.hold

    def deaf(self, on_failure):
        blocked, _ = gate(self, on_failure)
        return blocked, 2

    monkeypatch.setattr(bridge.Bridge, "hold", deaf)
    async with wire_with(proxy_connect_timeout=0.2) as wire:
        text, code = await outcome(wire, start(tmp_path))
    assert (text, code) == (f"{PREFIX}the sandbox did not report its network in time\n", 101)
    assert not (tmp_path / "ran").exists()


@requirement("network/enforced:hold", "network/enforced:fails-closed")
async def test_a_report_that_makes_no_sense_ends_the_command(wire, tmp_path, monkeypatch):
    """The report may come before the answer to the start, when there is nothing yet to kill."""
    hold = bridge.Bridge.hold

    def told_nonsense(self, on_failure):
        blocked, told = hold(self, on_failure)
        os.write(told, b"nonsense")
        return blocked, told

    monkeypatch.setattr(bridge.Bridge, "hold", told_nonsense)
    text, code = await outcome(wire, start(tmp_path))
    assert (text, code) == (f"{PREFIX}the sandbox did not report its network\n", 101)
    assert not (tmp_path / "ran").exists()


@pytest.mark.one_loop
@requirement("network/enforced:hold")
async def test_a_held_command_never_runs_when_the_server_is_killed(tmp_path):
    told = tmp_path / "held"
    command = [sys.executable, "-c", STUCK]
    with start_server(command=command, env={"HELD": str(told)}) as server:
        async with Wire(server.url) as wire, asyncio.timeout(PATIENCE):
            await wire.initialize()
            await wire.call("process/start", start(tmp_path))
            while not (told.exists() and told.read_text()):
                await wire.call("environment/status")
            held = Watched(int(told.read_text()))
            (pid,) = children(server.pid)
            keeper = Watched(pid)
            server.signal(signal.SIGKILL)
        await held.ended()
        await keeper.ended()
    assert not (tmp_path / "ran").exists()
