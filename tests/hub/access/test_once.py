"""A token with `--once` is for one environment, however many requests come at the same moment."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.hub.conftest import bring_online
from tests.requirements import requirement

NAMES = [f"build-{number}" for number in range(3)]
REQUESTS = 12


@pytest.fixture
async def visitor(state, visit):
    """A registry on SQLite, then one on PostgreSQL."""
    return await visit(state=state, allows_plaintext=True)


async def once(visitor, *rights) -> str:
    _, secret = await visitor.token(*rights, is_once=True)
    return str(secret)


async def at_once(request) -> list:
    """The names for which one of twelve requests at the same moment succeeded."""
    names = [NAMES[number % len(NAMES)] for number in range(REQUESTS)]
    are_good = await asyncio.gather(*map(request, names))
    return sorted({name for name, is_good in zip(names, are_good, strict=True) if is_good})


@requirement("security/registry:once")
async def test_connects_at_the_same_moment_reach_one_environment(visitor):
    for name in NAMES:
        await bring_online(visitor, name)
    for _ in range(3):
        secret = await once(visitor, "connect", "list")

        async def connect(name: str, secret: str = secret) -> bool:
            answer = await visitor.connect(name, secret)
            assert answer.status == 200 or answer.code == "forbidden"
            return bool(answer.status == 200)

        (name,) = await at_once(connect)
        # The token stays good for this environment, and for no other one.
        assert [await connect(each) for each in NAMES] == [each == name for each in NAMES]


@requirement("security/registry:once")
async def test_sockets_of_the_older_relay_reach_one_environment(visitor):
    _, enrolment = await visitor.token("enrol")
    for name in NAMES:
        path = f"/cloud/environment/{name}/register"
        await visitor.open((await visitor.ask("POST", path, enrolment)).body["url"])
    secret = await once(visitor, "connect")

    async def connect(name: str) -> bool:
        url = f"{visitor.hub.url}/rendezvous/{name}?role=harness"
        try:
            await visitor.open(url, headers={"Authorization": f"Bearer {secret}"})
        except aiohttp.WSServerHandshakeError as exc:
            assert exc.status == 403
            return False
        return True

    assert len(await at_once(connect)) == 1


@requirement("security/registry:once")
async def test_executors_enrol_one_environment(visitor):
    secret = await once(visitor, "enrol")

    async def register(name: str) -> bool:
        return bool((await visitor.register(name, secret)).status == 200)

    assert len(await at_once(register)) == 1


@requirement("security/registry:once")
async def test_pairing_codes_are_for_one_environment(visitor):
    secret = await once(visitor, "enrol")

    async def offer(name: str) -> bool:
        return bool((await visitor.ask("POST", f"/api/pairings/{name}", secret)).status == 200)

    assert len(await at_once(offer)) == 1
