"""Denials as users of the client see them."""

from __future__ import annotations

import asyncio

import pytest

import exec_server
from exec_server import sync
from exec_server.errors import InvalidRequest, MethodNotFound
from exec_server.protocol.sandbox import read_only
from exec_server.sandbox.supervisor.orders import obstacle
from tests.requirements import requirement
from tests.sandbox.test_processes import needs_bubblewrap
from tests.support.fake_server import Talk, fake_server

pytestmark = [
    pytest.mark.one_loop,
    needs_bubblewrap,
    pytest.mark.skipif(obstacle() is not None, reason=f"no supervisor here: {obstacle()}"),
]


@requirement("denials/client:records")
async def test_a_client_hears_of_denials_and_grants_them(place):
    target = place.outside / "by-client"
    heard: asyncio.Queue[exec_server.Denial] = asyncio.Queue()
    async with exec_server.connect(place.server.url) as client:
        process = await client.start(
            ["sh", "-c", f"echo new > {target}; mkdir {target}; exit 3"],
            sandbox=read_only(),
            denials=True,
            denial_hold=30,
            on_denied=heard.put_nowait,
        )
        async with asyncio.timeout(60):
            denial = await heard.get()
        assert (denial.kind, denial.target, denial.held) == ("write", str(target), True)
        assert (await process.grant(denial)).released == 1
        assert await process.wait() == 3
        assert target.read_text() == "new\n"
        found = await process.denials()
        assert [each.operation for each in found.denials] == ["open"]
        assert found.denials[0].held is False
        with pytest.raises(InvalidRequest, match="no record of this process"):
            await process.grant("write=/etc/passwd", "session")


@requirement("denials/client:records")
async def test_a_process_is_started_again_and_attached_to(place):
    script = f"chmod 600 {place.outside}/old || exit 7; echo changed"
    async with exec_server.connect(place.server.url) as client:
        process = await client.start(["sh", "-c", script], sandbox=read_only(), denials=True)
        assert await process.wait() == 7
        (denial,) = (await process.denials()).denials
        process_id = process.process_id
        await process.communicate()
        result = await client.grant_denied(process_id, denial, "process", restart=True)
        assert result.restarted == process_id
        again = await client.attach(process_id, 0)
        assert (await again.communicate())[0] == b"changed\n"
        assert again.returncode == 0


@requirement("denials/client:records")
async def test_an_observer_has_to_be_a_plain_function(place):
    async def waits(denial: exec_server.Denial) -> None: ...

    async with exec_server.connect(place.server.url) as client:
        for wrong in (3, waits):
            with pytest.raises(TypeError, match="on_denied must be a"):
                await client.start(["true"], sandbox=read_only(), on_denied=wrong)  # type: ignore[arg-type]


@requirement("denials/client:records")
async def test_a_hold_alone_records_and_holds(place):
    script = f"echo new > {place.outside}/held || exit 7"
    async with exec_server.connect(place.server.url) as client:
        process = await client.start(["sh", "-c", script], sandbox=read_only(), denial_hold=0.1)
        assert await process.wait() == 7
        (denial,) = (await process.denials()).denials
        assert denial.target == f"{place.outside}/held"


@requirement("denials/client:records")
async def test_an_observer_that_fails_disturbs_nothing(place):
    def fails(denial: exec_server.Denial) -> None:
        raise RuntimeError(denial.target)

    async with exec_server.connect(place.server.url) as client:
        process = await client.start(
            ["sh", "-c", f"echo new > {place.outside}/x; exit 3"],
            sandbox=read_only(),
            on_denied=fails,
        )
        assert process.denials_unavailable is None
        assert await process.wait() in (2, 3)
        assert (await process.denials()).total == 1


@requirement("denials/client:sync")
def test_the_synchronous_client_can_do_the_same(place):
    with sync.connect(place.server.url) as client:
        process = client.start(
            ["sh", "-c", f"echo new > {place.outside}/x"], sandbox=read_only(), denials=True
        )
        process.wait()
        (denial,) = process.denials().denials
        assert process.grant(denial, "session").in_place is False


@requirement("denials/client:other-servers")
async def test_another_server_is_not_asked():
    async def script(talk: Talk) -> None:
        facts = {"capabilities": {}, "shell": {"name": "sh", "path": "/bin/sh"}}
        await talk.shake_hands({"sessionId": "s", "environmentInfo": facts})
        request = await talk.receive()
        assert request["method"] == "environment/info"
        await talk.answer(request, facts)
        await talk.gone()

    async with fake_server(script) as url, exec_server.connect(url) as client:
        with pytest.raises(MethodNotFound, match="does not record what a sandbox refuses"):
            await client.start(["true"], cwd="/", denials=True)
