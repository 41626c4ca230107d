"""The facts that executors report."""

from __future__ import annotations

import asyncio
import platform
import sys

import pytest

import exec_server
from exec_server.errors import ConfigurationError
from exec_server.remote.credentials.credentials import ApiKey, BearerToken
from exec_server.remote.registry_client import Registration, Registry
from exec_server.remote.registry_http import Http
from tests.requirements import requirement

FACTS = {"version": "9", "platform": "plan9", "sandbox": "none", "labels": {"gpu": "2"}}


async def listed(visitor):
    _, secret = await visitor.token("list")
    (found,) = (await visitor.ask("GET", "/api/environments", secret)).body
    return found


async def tell(visitor, secret, registration_id, facts=FACTS):
    body = {"executor_registration_id": registration_id, "facts": facts}
    return await visitor.post("build", "facts", secret, body)


@requirement("hub/facts:told")
async def test_the_newest_registration_says_what_it_is(visitor):
    _, secret = await visitor.token("enrol")
    first = (await visitor.register("build", secret)).body["executor_registration_id"]
    assert (await tell(visitor, secret, first)).status == 200
    found = await listed(visitor)
    assert {name: found[name] for name in FACTS} == FACTS
    second = (await visitor.register("build", secret)).body["executor_registration_id"]
    assert (await listed(visitor))["version"] is None
    assert (await tell(visitor, secret, first)).code == "superseded"
    assert (await tell(visitor, secret, second, facts=[])).status == 200
    assert (await listed(visitor))["labels"] == {}


@requirement("hub/facts:told")
async def test_only_who_may_enrol_it_says_what_it_is(visitor):
    _, secret = await visitor.token("enrol")
    registration = (await visitor.register("build", secret)).body["executor_registration_id"]
    _, harness = await visitor.token("connect", "list")
    _, other = await visitor.token("enrol", patterns=("other",))
    for wrong, status in ((None, 401), (harness, 403), (other, 403)):
        assert (await tell(visitor, wrong, registration)).status == status
    assert (await tell(visitor, secret, 5)).code == "invalid_request"


async def serve(visitor, credentials, **options):
    config = exec_server.RemoteEnvironmentConfig(
        registry_url=visitor.hub.url, environment_id="build", credentials=credentials, **options
    )
    await exec_server.run_remote_environment(config)


async def once_online(visitor, credentials, **options):
    """The listed environment of one of our executors."""
    serving = asyncio.ensure_future(serve(visitor, credentials, **options))
    async with asyncio.timeout(60):
        while not await visitor.hub.store.environments("*", limit=1):
            pass
        while not (found := await listed(visitor))["isOnline"]:
            pass
    serving.cancel()
    await asyncio.wait([serving])
    return found


@requirement("hub/facts:executor")
async def test_our_executor_tells_its_own_registry_what_it_is(visitor):
    _, secret = await visitor.token("enrol")
    found = await once_online(visitor, BearerToken(secret), labels={"gpu": "2"})
    assert found["version"] == exec_server.__version__
    assert found["platform"] == f"{sys.platform} {platform.machine()}"
    assert found["sandbox"] in ("bubblewrap", "landlock", "seccomp", "none")
    assert found["labels"] == {"gpu": "2"}


@requirement("hub/facts:executor")
async def test_with_a_credential_of_codex_it_says_no_more_than_codex(visitor):
    _, secret = await visitor.token("enrol")
    assert (await once_online(visitor, ApiKey(secret)))["version"] is None


@requirement("hub/facts:executor")
async def test_a_registry_that_does_not_want_to_know_does_no_harm(visitor):
    http = Http()
    for url in (f"{visitor.hub.url}/elsewhere", visitor.hub.url, "http://127.0.0.1:1"):
        registry = Registry(url, "build", BearerToken("wrong"), http=http)
        await registry.tell_facts(Registration("ws://nowhere", "id"), FACTS)
    await http.close()


@requirement("hub/facts:executor")
async def test_labels_are_not_for_the_registries_of_others(visitor):
    with pytest.raises(ConfigurationError, match="labels"):
        await serve(visitor, ApiKey("key"), labels={"gpu": "2"})
    assert await visitor.hub.store.environments("*", limit=1) == []
