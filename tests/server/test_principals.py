"""Each principal sees its own durable jobs: by the subject of a JWT, a token, or a Unix user."""

from __future__ import annotations

import os
import time

import msgspec

from exec_server.limits import DEFAULT_LIMITS
from exec_server.server.authentication import CapabilityToken, SignedBearerToken
from exec_server.server.process_lists import list_jobs
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.server.test_authentication import SECRET, digest, jwt
from tests.support.durable import jobs_of
from tests.support.wire import Wire

LIMITS = msgspec.structs.replace(DEFAULT_LIMITS, orphan_grace=0.2)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def subject(name: str | None) -> dict[str, str]:
    claims: dict[str, object] = {"exp": int(time.time()) + 600}
    return bearer(jwt(claims if name is None else {**claims, "sub": name}))


async def finished_job(wire: Wire, name: str) -> None:
    await wire.initialize()
    await wire.start(name, ["true"], durable=True)
    await wire.event(name, "process/closed")


async def names(wire: Wire) -> list[str]:
    return [job["processId"] for job in await jobs_of(wire)]


@requirement("durable:principal")
async def test_subjects_of_tokens_do_not_see_one_another(no_leaks, tmp_path):
    serving = serve(
        limits=LIMITS, authenticator=SignedBearerToken(SECRET), state_directory=tmp_path / "state"
    )
    async with serving as running:
        async with (
            Wire(running.url, headers=subject("ann")) as ann,
            Wire(running.url, headers=subject("bob")) as bob,
            Wire(running.url, headers=subject(None)) as unnamed,
        ):
            await finished_job(ann, "a")
            await finished_job(bob, "b")
            await unnamed.initialize()
            assert await names(ann) == ["a"]
            assert await names(bob) == ["b"]
            assert await names(unnamed) == []
            assert await bob.call("job/prune", {"processId": "a"}) == {"removed": 0}
            assert await ann.call("job/prune", {}) == {"removed": 1}
            assert await names(bob) == ["b"]


@requirement("durable:principal")
async def test_the_bearers_of_one_token_are_one_principal(no_leaks, tmp_path):
    serving = serve(
        limits=LIMITS, authenticator=CapabilityToken(digest("t")), state_directory=tmp_path / "s"
    )
    async with serving as running:
        async with (
            Wire(running.url, headers=bearer("t")) as one,
            Wire(running.url, headers=bearer("t")) as two,
        ):
            await finished_job(one, "a")
            await two.initialize()
            assert await names(two) == ["a"]


@requirement("durable:principal")
async def test_a_unix_user_is_the_same_over_every_local_listener(no_leaks, tmp_path):
    state = tmp_path / "state"
    async with serve(f"unix://{tmp_path}/s", limits=LIMITS, state_directory=state) as running:
        async with Wire(running.url) as wire:
            await finished_job(wire, "a")
            listed = list_jobs(running.core.sessions, f"uid:{os.geteuid()}", every=False)
            assert [job.process_id for job in listed.jobs] == ["a"]
    async with serve(limits=LIMITS, state_directory=state) as running, Wire(running.url) as wire:
        await wire.initialize()
        assert await names(wire) == ["a"]
