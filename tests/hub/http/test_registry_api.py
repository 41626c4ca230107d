"""The three requests, in the shapes that the reference sends and expects."""

from __future__ import annotations

import pytest

from exec_server.relay.frame import Data, RelayFrame, StreamId, encode
from tests.hub.conftest import PROFILE, bring_online
from tests.requirements import requirement


@requirement("hub/register:answer")
async def test_an_executor_registers(visitor):
    _, secret = await visitor.token("enrol", patterns=("build-*",))
    answer = await visitor.register("build-1", secret)
    assert answer.status == 200
    assert answer.body["environment_id"] == "build-1"
    assert answer.body["security_profile"] == PROFILE
    assert answer.body["executor_registration_id"]
    assert answer.body["url"].startswith(visitor.hub.url.replace("http", "ws") + "/rendezvous/")


@requirement("hub/connect:answer")
async def test_a_harness_gets_six_values(pair):
    answer = await pair.visitor.connect(pair.name, pair.harness)
    assert answer.status == 200
    assert answer.body.keys() == {
        "environment_id",
        "security_profile",
        "url",
        "executor_registration_id",
        "executor_public_key",
        "harness_key_authorization",
    }
    assert answer.body["executor_registration_id"] == pair.registration["executor_registration_id"]
    assert answer.body["executor_public_key"] == pair.visitor.key.public.to_object()
    assert len(answer.body["harness_key_authorization"]) <= 4096


@requirement("hub/errors:codes")
async def test_every_no_has_a_status_and_a_code(pair):
    visitor = pair.visitor
    _, narrow = await visitor.token("connect", patterns=("other-*",))
    assert (await visitor.connect("build", None)).status == 401
    wrong = await visitor.connect("build", "exs_wrong")
    assert (wrong.status, wrong.code) == (401, "invalid_token")
    assert (await visitor.connect("build", narrow)).code == "forbidden"
    assert (await visitor.connect("build", pair.enrolment)).status == 403
    unknown = await visitor.connect("elsewhere", pair.harness)
    assert (unknown.status, unknown.code) == (404, "environment_not_found")
    await pair.executor.close()
    offline = await visitor.connect("build", pair.harness)
    while offline.status == 200:
        offline = await visitor.connect("build", pair.harness)
    assert (offline.status, offline.code) == (409, "environment_offline")
    assert (await visitor.ask("POST", "/nowhere")).code == "not_found"
    assert (await visitor.ask("GET", "/cloud/environment/a/connect")).status == 405


@requirement("hub/errors:bodies")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ([1], "invalid_request"),
        ({"security_profile": "other"}, "unsupported_profile"),
        ({"security_profile": PROFILE}, "invalid_public_key"),
        (
            {"security_profile": PROFILE, "executor_public_key": {"suite": "x"}},
            "invalid_public_key",
        ),
    ],
)
async def test_bodies_that_are_none_are_refused(visitor, body, code):
    _, secret = await visitor.token("enrol")
    answer = await visitor.post("build", "register", secret, body)
    assert (answer.status, answer.code) == (400, code)


@requirement("hub/errors:bodies")
async def test_a_body_beyond_the_limit_is_refused(visitor):
    _, secret = await visitor.token("enrol")
    answer = await visitor.register("build", secret, more="x" * (1 << 17))
    assert answer.status == 413


@pytest.mark.parametrize("name", ["a b", "a%2Fb", "ä", "x" * 129])
async def test_names_that_urls_would_change_are_refused(visitor, name):
    _, secret = await visitor.token("enrol")
    assert (await visitor.register(name, secret)).code == "invalid_environment_id"


@requirement("hub/validate:single-use")
async def test_an_authorization_is_good_once(pair):
    bundle = (await pair.visitor.connect(pair.name, pair.harness)).body
    first = await pair.visitor.validate(pair.name, pair.enrolment, bundle)
    assert (first.status, first.body) == (200, {"valid": True})
    second = await pair.visitor.validate(pair.name, pair.enrolment, bundle)
    assert (second.status, second.body) == (200, {"valid": False})


@requirement("hub/validate:bound")
async def test_an_authorization_is_bound_to_key_registration_and_environment(pair):
    visitor = pair.visitor
    bundle = (await visitor.connect(pair.name, pair.harness)).body
    other = await bring_online(visitor, "other")
    stranger = other.registration["executor_registration_id"]
    another_key = {**visitor.key.public.to_object(), "x25519_public_key": "A" * 42 + "E="}

    async def is_valid(name, **more):
        answer = await visitor.validate(name, pair.enrolment, bundle, **more)
        return answer.body["valid"]

    assert not await is_valid(pair.name, executor_registration_id="other")
    assert not await is_valid(pair.name, harness_public_key=another_key)
    assert not await is_valid("other", executor_registration_id=stranger)
    assert not await is_valid(pair.name, harness_key_authorization="guess")
    # None of these attempts has used it.
    assert await is_valid(pair.name)


@requirement("hub/validate:expiry")
async def test_an_authorization_expires(pair, clock):
    bundle = (await pair.visitor.connect(pair.name, pair.harness)).body
    clock.ahead = 61
    answer = await pair.visitor.validate(pair.name, pair.enrolment, bundle)
    assert answer.body == {"valid": False}


@requirement("hub/validate:bound")
async def test_an_older_registration_validates_nothing(pair):
    bundle = (await pair.visitor.connect(pair.name, pair.harness)).body
    await pair.visitor.register(pair.name, pair.enrolment)
    answer = await pair.visitor.validate(pair.name, pair.enrolment, bundle)
    assert answer.body == {"valid": False}


@requirement("hub/access:revocation")
async def test_who_was_revoked_meanwhile_is_not_let_in(pair, clock):
    bundle = (await pair.visitor.connect(pair.name, pair.harness)).body
    await pair.visitor.hub.store.revoke_token(pair.harness_token.id, now=clock())
    answer = await pair.visitor.validate(pair.name, pair.enrolment, bundle)
    assert answer.body == {"valid": False}


@requirement("hub/plaintext:refused")
async def test_the_older_relay_is_served_only_where_it_was_asked_for(visitor):
    _, secret = await visitor.token("enrol")
    for path in ("/cloud/environment/old/register", "/cloud/executor/old/register"):
        answer = await visitor.ask("POST", path, secret)
        assert (answer.status, answer.code) == (400, "plaintext_not_allowed")


@requirement("hub/plaintext:register")
async def test_an_older_executor_registers_without_a_body(visit):
    visitor = await visit(allows_plaintext=True)
    _, secret = await visitor.token("enrol")
    first = await visitor.ask("POST", "/cloud/executor/old/register", secret)
    assert (first.status, first.body["executor_id"]) == (200, "old")
    second = await visitor.ask("POST", "/cloud/environment/old/register", secret)
    assert second.body["environment_id"] == "old"

    executor = await visitor.open(second.body["url"])
    _, harness = await visitor.token("connect")
    assert (await visitor.connect("old", harness)).code == "plaintext_environment"
    url = visitor.hub.url.replace("http", "ws") + "/rendezvous/old?role=harness"
    assert await visitor.refusal(url) == (403, "missing_version")
    bearer = {"Authorization": f"Bearer {harness}"}
    socket = await visitor.open(url, headers=bearer)
    # Larger than a frame of the encrypted relay, as whole messages are.
    message = encode(RelayFrame(StreamId("s"), Data(0, bytes(1 << 21))))
    await socket.send_bytes(message)
    assert (await executor.receive()).data == message


@requirement("hub/plaintext:refused")
async def test_an_older_registration_ends_with_the_permission(visit, tmp_path):
    before = await visit(allows_plaintext=True)
    _, secret = await before.token("enrol")
    url = (await before.ask("POST", "/cloud/executor/old/register", secret)).body["url"]
    after = await visit()
    moved = url.replace(before.hub.url.partition("//")[2], after.hub.url.partition("//")[2])
    assert await after.refusal(moved) == (403, "unexpected_executor_registration_id")


@requirement("hub/plaintext:refused")
async def test_an_encrypted_environment_has_no_plaintext_fallback(pair):
    url = pair.visitor.hub.url.replace("http", "ws") + f"/rendezvous/{pair.name}?role=harness"
    status, _ = await pair.visitor.refusal(url, headers={"Authorization": f"Bearer {pair.harness}"})
    assert status == 403


@requirement("hub/env:facts")
async def test_what_an_executor_says_of_itself_is_listed(visitor):
    _, secret = await visitor.token("enrol")
    facts = {
        "version": "1.2",
        "platform": "linux",
        "labels": {"gpu": "no"},
        "sandbox": "bubblewrap",
    }
    answer = await visitor.register("build", secret, facts=facts)
    await visitor.register("secret", secret)
    socket = await visitor.open(answer.body["url"])
    _, reader = await visitor.token("list", patterns=("b*",))
    (listed,) = (await visitor.ask("GET", "/api/environments", reader)).body
    assert listed["name"] == "build"
    assert listed["isOnline"] and listed["onlineSince"]
    assert {name: listed[name] for name in facts} == facts
    await socket.close()
    assert (await visitor.ask("GET", "/api/environments", secret)).status == 403


async def test_facts_that_are_nonsense_are_as_good_as_none(visitor):
    _, secret = await visitor.token("enrol")
    nonsense: list[object] = [5, [], {"version": {}}, {"labels": "x"}]
    for facts in nonsense:
        assert (await visitor.register("build", secret, facts=facts)).status == 200
