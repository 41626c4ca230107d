"""The rights of tokens, and the limit of failed attempts."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.hub.access.throttle import Throttle
from exec_server.hub.access.tokens import allows, new_token
from exec_server.transport.refusal_log import network_of
from tests.requirements import requirement


def token(rights=("enrol",), patterns=("*",), **options):
    return new_token("alice", rights, patterns, now=0.0, **options)[0]


@requirement("hub/access:scopes")
@pytest.mark.parametrize(
    ("patterns", "name", "is_allowed"),
    [
        (("*",), "anything", True),
        (("build-*",), "build-1", True),
        (("build-*",), "rebuild-1", False),
        (("a", "b?"), "b1", True),
        (("a", "b?"), "b", False),
        ((), "a", False),
        (("Build",), "build", False),
    ],
)
def test_a_token_is_for_the_names_it_names(patterns, name, is_allowed):
    assert allows(token(patterns=patterns), "enrol", name) is is_allowed


@requirement("hub/access:scopes")
def test_a_token_has_the_rights_it_has_and_no_others():
    reader = token(rights=("list",))
    assert allows(reader, "list", "a")
    assert not allows(reader, "connect", "a")
    assert not allows(reader, "enrol")


@pytest.mark.parametrize(("principal", "pattern"), [("", "*"), ("a\n", "*"), ("a", "["), ("a", "")])
def test_names_that_are_none_are_refused(principal, pattern):
    with pytest.raises(ValueError, match=r"principal|matches"):
        new_token(principal, ("enrol",), (pattern,), now=0.0)


def test_secrets_are_long_and_never_the_same():
    made = {new_token("a", (), (), now=0.0)[1] for _ in range(100)}
    assert len(made) == 100
    assert all(len(secret) >= 43 for secret in made)


@requirement("hub/access:expiry")
async def test_an_expired_token_is_refused(visitor, clock):
    _, secret = await visitor.token("enrol", lifetime=100.0)
    assert (await visitor.register("a", secret)).status == 200
    clock.ahead = 101
    assert (await visitor.register("a", secret)).status == 401


@requirement("hub/access:once")
async def test_a_one_time_token_enrols_one_environment_and_keeps_it(visitor):
    _, secret = await visitor.token("enrol", is_once=True)
    assert (await visitor.register("one", secret)).status == 200
    assert (await visitor.register("two", secret)).code == "forbidden"
    # The machine that slept registers again with the same token.
    assert (await visitor.register("one", secret)).status == 200


@requirement("hub/access:ownership")
async def test_a_name_belongs_to_the_principal_who_enrolled_it(visitor, clock):
    first, secret = await visitor.token("enrol", principal="farm")
    _, same = await visitor.token("enrol", principal="farm")
    _, thief = await visitor.token("enrol", principal="thief")
    assert (await visitor.register("a", secret)).status == 200
    taken = await visitor.register("a", thief)
    assert (taken.status, taken.code) == (409, "environment_taken")
    assert (await visitor.hub.store.environment("a")).token_id == first.id
    assert (await visitor.register("a", same)).status == 200
    # A name whose token has ended is free again.
    again = (await visitor.hub.store.environment("a")).token_id
    await visitor.hub.store.revoke_token(again, now=clock())
    assert (await visitor.register("a", thief)).status == 200


@requirement("hub/access:rate-limit")
async def test_who_guesses_has_to_wait_and_neighbours_do_not(visitor):
    _, secret = await visitor.token("enrol")
    statuses = [(await visitor.register("a", f"exs_{n}")).status for n in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    refused = await visitor.register("a", "exs_more")
    assert int(refused.headers["Retry-After"]) >= 1
    assert (await visitor.register("a", secret)).status == 200


@requirement("hub/access:rate-limit")
@given(
    gaps=st.lists(st.floats(0, 30), max_size=60),
    at_once=st.integers(1, 5),
    each=st.floats(0.5, 10),
)
def test_no_address_fails_more_often_than_allowed(gaps, at_once, each):
    throttle = Throttle(at_once=at_once, seconds_each=each, remembered=10)
    now, tries = 0.0, []
    for gap in gaps:
        now += gap
        if throttle.retry_after("a", now=now) <= 0:
            tries.append(now)
        throttle.failed("a", now=now)
    for index, start in enumerate(tries):
        for count, end in enumerate(tries[index:], start=1):
            assert count <= at_once + (end - start) / each + 1e-6


def test_addresses_are_forgotten_the_oldest_first():
    throttle = Throttle(at_once=1, seconds_each=10, remembered=2)
    for address in ("a", "b", "c"):
        throttle.failed(address, now=0.0)
    waits = [throttle.retry_after(address, now=0.0) > 0 for address in ("a", "b", "c")]
    assert waits == [False, True, True]


def test_the_addresses_of_one_household_count_together():
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1")
    assert network_of("2001:db8::1") != network_of("2001:db8:0:1::1")
    assert network_of("10.0.0.1") != network_of("10.0.0.2")


@requirement("hub/page:token")
@pytest.mark.parametrize("credential", ["{}:", "admin:{}"])
async def test_a_browser_shows_the_token_as_a_password(visitor, credential):
    _, secret = await visitor.token("observe")
    basic = base64.b64encode(credential.format(secret).encode()).decode()
    answer = await visitor.ask("GET", "/", headers={"Authorization": f"Basic {basic}"})
    assert answer.status == 200


@pytest.mark.parametrize("header", ["", "Basic", "Basic !!!", "Basic /w==", "Digest x", "Bearer"])
async def test_a_header_that_says_nothing_is_no_token(visitor, header):
    answer = await visitor.ask("GET", "/", headers={"Authorization": header})
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"].startswith("Basic")
