"""A grant starts a process again within the floors and quotas of its principal, never beyond."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exec_server.access.principal import Quotas, SandboxFloor
from exec_server.protocol.sandbox import read_only
from exec_server.sandbox.supervisor.orders import obstacle
from tests.requirements import requirement
from tests.support.backends import needs_bubblewrap
from tests.support.tenants import principal, serving
from tests.support.wire import Wire, start_params

pytestmark = [
    pytest.mark.one_loop,
    pytest.mark.skipif(obstacle() is not None, reason=f"no supervisor here: {obstacle()}"),
]
INHERIT = {
    "inherit": "all",
    "ignoreDefaultExcludes": True,
    "exclude": [],
    "set": {},
    "includeOnly": [],
}


def command(target: Path) -> dict[str, Any]:
    """A start whose command is refused *target*, and then waits."""
    argv = ["sh", "-c", 'echo "<$FLOOR_SECRET>"; touch "$0"; sleep 60', str(target)]
    policy = {"envPolicy": INHERIT, "env": {}, "sandbox": read_only().wire}
    return start_params("p", argv, denials=True, **policy)


async def started(wire: Wire, target: Path) -> str:
    """Start the command; returns the grant for what it was refused."""
    await wire.call("process/start", command(target))
    assert b"<>" in await wire.output_until("p", b">\n")
    grant: str = (await wire.event("p", "process/denied"))["denial"]["grant"]
    return grant


async def start_again(wire: Wire, grant: str) -> bytes:
    params = {"processId": "p", "grant": grant, "scope": "process", "restart": True}
    assert (await wire.call("process/grant", params))["restarted"] == "p"
    await wire.event("p", "process/closed")
    return await wire.output_until("p", b">\n")


@needs_bubblewrap
@requirement("floors/grants:restart")
async def test_a_process_that_is_started_again_keeps_floors_and_counts(place, monkeypatch):
    monkeypatch.setenv("FLOOR_SECRET", "of the operator")
    who = principal(hide_env=("FLOOR_SEC*",), quotas=Quotas(max_processes=1))
    async with serving(who) as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        grant = await started(wire, place / "other" / "new")
        assert b"<>" in await start_again(wire, grant)
        error = await wire.error("process/start", start_params("q", ["true"]))
        assert error["code"] == -32022


@needs_bubblewrap
@requirement("floors/grants:restart")
async def test_an_admin_starts_it_again_under_the_terms_of_its_first_start(place, monkeypatch):
    monkeypatch.setenv("FLOOR_SECRET", "of the operator")
    async with serving(principal(hide_env=("FLOOR_SEC*",))) as (running, tenants, _):
        async with Wire(running.url) as wire:
            session = (await wire.initialize())["sessionId"]
            grant = await started(wire, place / "other" / "new")
        tenants.who = None
        async with Wire(running.url) as wire:
            await wire.initialize(resumeSessionId=session)
            assert b"<>" in await start_again(wire, grant)


@requirement("floors/grants:refused")
async def test_neither_a_grant_nor_learning_lifts_a_floor(place):
    who = principal(sandbox=SandboxFloor(kind="workspace-write", folders=(str(place / "app"),)))
    async with serving(who) as (running, _, refusals), Wire(running.url) as wire:
        await wire.initialize()
        for more in ({"learn": True, "denials": True}, {"granted": ["write=/srv"]}):
            params = {**start_params("p", ["true"]), **more}
            assert (await wire.error("process/start", params))["code"] == -32021
        for scope in ("once", "process", "session"):
            asked = {"processId": "p", "grant": "write=/", "scope": scope}
            assert (await wire.error("process/grant", asked))["code"] == -32021
    assert [method for _, method, _ in refusals] == 2 * ["process/start"] + 3 * ["process/grant"]
