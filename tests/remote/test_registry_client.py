"""Requests to the registry, and the meaning of its answers."""

from __future__ import annotations

import asyncio
import os
import uuid

import msgspec
import pytest

from exec_server.errors import ConfigurationError, ConnectError, RegistryError
from exec_server.relay.keys import KeyPair
from exec_server.remote.credentials.credentials import BearerToken
from exec_server.remote.registry_client import Registry
from exec_server.remote.registry_http import Http
from tests.remote.conftest import LIMITS, connect, executor
from tests.requirements import requirement
from tests.support.http_target import target
from tests.support.rendezvous import PROFILE, TOKEN, Scripted

KEY = KeyPair(os.urandom(96)).public


@pytest.fixture
async def http():
    made = Http(limits=LIMITS)
    yield made
    await made.close()


@pytest.fixture
async def registry(relay, http):
    return Registry(relay.url, "env-1", BearerToken(TOKEN), http=http, limits=LIMITS)


@requirement("remote/registry:register")
async def test_registration_sends_the_key_and_remembers_the_answer(relay, registry):
    found = await registry.register(KEY)
    (asked,) = relay.asked
    assert asked.body == {"security_profile": PROFILE, "executor_public_key": KEY.to_object()}
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
    assert asked.headers["content-type"] == "application/json"
    assert {name.lower() for name in asked.headers} == {
        *("host", "accept", "authorization", "content-type", "content-length")
    }
    assert found.url.startswith("ws://")
    assert found.url not in repr(found)


@requirement("remote/registry:urls")
async def test_the_base_keeps_its_path_and_loses_blanks_and_slashes(relay, http):
    relay.script("register", Scripted(404, ""))
    registry = Registry(f" {relay.url}/a// ", " env-1 ", BearerToken(TOKEN), http=http)
    with pytest.raises(RegistryError):
        await registry.register(KEY)
    assert relay.asked == []
    registry = Registry(f" {relay.url}/// ", " env-1 ", BearerToken(TOKEN), http=http)
    with pytest.raises(RegistryError):
        await registry.register(KEY)
    assert relay.asked[0].path == "/cloud/environment/env-1/register"


@requirement("remote/registry:register")
async def test_a_blank_environment_is_refused_before_anything_is_sent(relay, http):
    with pytest.raises(ConfigurationError):
        Registry(relay.url, "  ", BearerToken(TOKEN), http=http)


GOOD = {
    "environment_id": "env-1",
    "security_profile": PROFILE,
    "url": "ws://x",
    "executor_registration_id": "",
}


@requirement("remote/registry:register")
@pytest.mark.parametrize(
    "change",
    [
        {"environment_id": "env-2"},
        {"security_profile": "none"},
        {"url": None},
        {"executor_registration_id": 7},
    ],
)
async def test_an_answer_for_something_else_is_refused(relay, registry, change):
    relay.script("register", Scripted(201, GOOD), Scripted(200, {**GOOD, **change}))
    assert (await registry.register(KEY)).id == ""
    with pytest.raises(RegistryError):
        await registry.register(KEY)


@requirement("remote/registry:errors")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Scripted.error(401, "x"), "environment registry authentication error: scripted"),
        (Scripted(403, ""), "environment registry authentication error: empty error body"),
        (
            Scripted.error(502, "other"),
            "environment registry request failed (502 Bad Gateway, other): scripted",
        ),
        (
            Scripted(500, " plain\nwords "),
            "environment registry request failed (500 Internal Server Error): plain words",
        ),
        (
            Scripted(503, ""),
            "environment registry request failed (503 Service Unavailable): "
            "empty or malformed error body",
        ),
        (Scripted(307, "", {"location": "/"}), "(307 Temporary Redirect)"),
        (Scripted(200, "no json"), "malformed"),
        (Scripted(None), "environment registry request failed: "),
        *(
            (Scripted.error(status, "authentication_service_unavailable"), "scripted")
            for status in (400, 401, 403, 408, 409, 425, 429, 500, 503, 504)
        ),
    ],
)
async def test_a_refusal_ends_the_executor_after_one_attempt(relay, answer, words):
    relay.script("register", answer)
    with pytest.raises(RegistryError) as caught:
        async with executor(relay):
            pass
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(relay.operations("register")) == 1


@requirement("remote/registry:errors")
async def test_registration_waits_for_an_authentication_service(relay):
    unavailable = Scripted.error(502, "authentication_service_unavailable")
    relay.script("register", *[unavailable] * 7)
    async with executor(relay):
        keys = [asked.body["executor_public_key"] for asked in relay.operations("register")]
        assert len(keys) == 8
        assert all(key == keys[0] for key in keys)


@requirement("remote/registry:errors")
async def test_a_registry_that_says_nothing_is_given_up(no_leaks):
    is_over = asyncio.Event()
    hurried = msgspec.structs.replace(LIMITS, registry_timeout=0.2)

    async def say_nothing(_request, _line):
        await is_over.wait()

    async with target(say_nothing) as silent:
        http = Http(limits=hurried)
        registry = Registry(silent.url, "e", BearerToken(TOKEN), http=http, limits=hurried)
        with pytest.raises(RegistryError, match="no answer within"):
            await registry.register(KEY)
        await http.close()
        assert len(silent.received) == 1
        is_over.set()


@requirement("remote/registry:validate")
@pytest.mark.parametrize(
    "answer",
    [
        Scripted(200, {"valid": False}),
        Scripted(200, {}),
        Scripted(200, {"valid": "true"}),
        Scripted(200, {"valid": 1}),
        Scripted(200, "yes"),
        Scripted(302, {"valid": True}, {"location": "/"}),
        Scripted.error(401),
        Scripted.error(500),
        Scripted(None),
    ],
)
async def test_everything_but_a_clear_yes_is_a_no(relay, registry, answer, caplog):
    relay.script("validate", Scripted(202, {"valid": True}), answer)
    stream_id = str(uuid.uuid4())
    assert await registry.validate("reg", stream_id, KEY, "secret-word") is True
    assert await registry.validate("reg", stream_id, KEY, "secret-word") is False
    assert "secret-word" not in caplog.text


@requirement("remote/registry:validate")
@pytest.mark.parametrize(
    ("stream_id", "header"),
    [
        ("3F0C6C1E8A554B5E9D0E2A2A2A2A2A2A", "3f0c6c1e-8a55-4b5e-9d0e-2a2a2a2a2a2a"),
        ("{3f0c6c1e-8a55-4b5e-9d0e-2a2a2a2a2a2a}", "3f0c6c1e-8a55-4b5e-9d0e-2a2a2a2a2a2a"),
        ("stream", None),
    ],
)
async def test_the_stream_id_is_told_when_it_is_a_uuid(relay, registry, stream_id, header):
    relay.script("validate", Scripted(200, {"valid": True}))
    await registry.validate("reg", stream_id, KEY, "a")
    (asked,) = relay.asked
    assert asked.headers.get("x-codex-noise-stream-id") == header
    assert asked.body == {
        "executor_registration_id": "reg",
        "harness_public_key": KEY.to_object(),
        "harness_key_authorization": "a",
    }


BUNDLE = {
    "environment_id": "env-1",
    "security_profile": PROFILE,
    "url": "ws://x",
    "executor_registration_id": "r",
    "executor_public_key": KEY.to_object(),
    "harness_key_authorization": "a",
}


@requirement("remote/registry:connect")
@pytest.mark.parametrize(
    "change",
    [
        {"environment_id": "env-2"},
        {"security_profile": "x"},
        {"url": " "},
        {"executor_registration_id": ""},
        {"executor_public_key": {**KEY.to_object(), "more": 1}},
        {"executor_public_key": {**KEY.to_object(), "suite": "other"}},
        {"harness_key_authorization": " "},
        {"harness_key_authorization": None},
    ],
)
async def test_a_bundle_is_whole_or_none(relay, registry, change):
    relay.script("connect", Scripted(200, BUNDLE), Scripted(200, {**BUNDLE, **change}))
    found = await registry.connect(KEY, seconds=5)
    assert (found.executor_key, found.authorization) == (KEY, "a")
    with pytest.raises(RegistryError):
        await registry.connect(KEY, seconds=5)


@requirement("remote/registry:connect-retries")
@pytest.mark.parametrize(
    "answer",
    [
        Scripted.error(500),
        Scripted.error(503),
        Scripted.error(408),
        Scripted.error(429),
        Scripted.error(409, "environment_offline"),
        Scripted(None),
    ],
)
async def test_the_first_bundle_is_asked_for_five_times(online, answer):
    online.script("connect", *[answer] * 4)
    async with connect(online):
        assert len(online.operations("connect")) == 5
    online.script("connect", *[answer] * 5)
    with pytest.raises(ConnectError):
        async with connect(online):
            pass
    assert len(online.operations("connect")) == 10


@requirement("remote/registry:connect-retries")
@pytest.mark.parametrize(
    "answer",
    [
        Scripted.error(401),
        Scripted.error(403),
        Scripted.error(404),
        Scripted.error(409, "other"),
        Scripted(200, "{}"),
    ],
)
async def test_what_will_not_get_better_is_asked_once(online, answer):
    online.script("connect", answer)
    with pytest.raises(RegistryError):
        async with connect(online):
            pass
    assert len(online.operations("connect")) == 1
