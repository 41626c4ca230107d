"""Pairing codes: each is typed once."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from exec_server.limits import DEFAULT_LIMITS
from tests.requirements import requirement


async def offered(visitor, name="big-1"):
    _, secret = await visitor.token("enrol", patterns=("big-*",))
    return (await visitor.ask("POST", f"/api/pairings/{name}", secret)).body["code"]


async def claim(visitor, code):
    return await visitor.ask("POST", "/api/pair", body={"code": code})


@requirement("hub/pair:token")
async def test_a_code_is_good_for_a_token_of_that_environment(visitor):
    code = await offered(visitor)
    answer = await claim(visitor, code.lower().replace("-", " "))
    assert answer.body["environment_id"] == "big-1"
    token = answer.body["token"]
    assert (await visitor.connect("big-1", token)).code == "environment_not_found"
    assert (await visitor.connect("big-2", token)).code == "forbidden"
    assert (await visitor.register("big-1", token)).code == "forbidden"


@requirement("hub/pair:once")
async def test_a_code_is_good_once_and_for_minutes(visitor, clock):
    code = await offered(visitor)
    assert (await claim(visitor, code)).status == 200
    assert (await claim(visitor, code)).code == "unknown_code"
    late = await offered(visitor)
    clock.ahead = 301
    assert (await claim(visitor, late)).code == "unknown_code"


@requirement("hub/pair:guessing")
async def test_who_guesses_codes_has_to_wait(visitor):
    code = await offered(visitor)
    statuses = [(await claim(visitor, "AAAA-AAAA")).status for _ in range(11)]
    assert statuses == [404] * 10 + [429]
    # A correct code has to wait too, because the answer would reveal that it is correct.
    assert (await claim(visitor, code)).status == 429


async def test_only_who_may_enrol_offers_codes(visitor):
    _, harness = await visitor.token("connect")
    _, other = await visitor.token("enrol", patterns=("small-*",))
    for secret, status in ((None, 401), (harness, 403), (other, 403)):
        assert (await visitor.ask("POST", "/api/pairings/big-1", secret)).status == status


async def test_a_code_dies_with_the_token_behind_it(visitor, clock):
    code = await offered(visitor)
    (token,) = await visitor.hub.store.tokens()
    await visitor.hub.store.revoke_token(token.id, now=clock())
    assert (await claim(visitor, code)).code == "unknown_code"


async def test_what_is_no_code_is_refused(visitor):
    bodies: list[object] = [[], {}, {"code": 5}, {"code": "x" * 65}]
    for body in bodies:
        answer = await visitor.ask("POST", "/api/pair", body=body)
        assert answer.code == "invalid_request"


# Without a token.


@pytest.fixture
async def opened(visit):
    """A registry that gives codes to machines without a token."""
    return await visit(allows_open_pairing=True)


async def ask_for_code(visitor, name="big-1"):
    return await visitor.ask("POST", f"/api/pairings/{name}")


async def state_of(visitor, ticket, name="big-1"):
    return await visitor.ask("GET", f"/api/pairings/{name}", ticket)


async def enrolled(visitor, name="big-1"):
    """The tokens of a machine and of the client that typed its code."""
    offer = (await ask_for_code(visitor, name)).body
    return offer["ticket"], (await claim(visitor, offer["code"])).body["token"]


async def give_up(visitor, token):
    return await visitor.ask("DELETE", "/api/tokens/self", token)


@requirement("hub/pair:closed")
async def test_without_a_token_there_is_no_code_unless_the_registry_is_open(visitor):
    refused = await ask_for_code(visitor)
    assert (refused.status, refused.code) == (401, "invalid_token")
    message = refused.body["error"]["message"]
    assert "--open-pairing" in message and "registry token create enrol" in message


@requirement("hub/pair:open", "hub/pair:heard")
async def test_a_ticket_is_a_token_for_one_name_once_the_code_was_typed(state, visit):
    visitor = await visit(allows_open_pairing=True, state=state)
    offer = (await ask_for_code(visitor)).body
    ticket = offer["ticket"]
    waiting = await visitor.ask("GET", "/api/pairings/big-1", ticket)
    assert waiting.body["state"] == "waiting" and 0 < waiting.body["expires_in"] <= 300
    assert (await visitor.register("big-1", ticket)).status == 401
    assert await visitor.hub.store.tokens() == []

    laptop = (await claim(visitor, offer["code"])).body["token"]
    heard = await visitor.ask("GET", "/api/pairings/big-1", ticket)
    assert heard.body["state"] == "claimed"
    assert (await visitor.register("big-1", ticket)).status == 200
    assert (await visitor.register("big-2", ticket)).status == 403
    assert (await visitor.connect("big-1", ticket)).status == 403
    assert (await visitor.connect("big-1", laptop)).code == "environment_offline"


@requirement("hub/pair:open")
async def test_a_code_that_was_not_typed_expires(opened, clock):
    offer = (await ask_for_code(opened)).body
    assert (await ask_for_code(opened)).code == "environment_taken"
    clock.ahead = 301
    assert (await state_of(opened, offer["ticket"])).code == "unknown_pairing"
    assert (await claim(opened, offer["code"])).code == "unknown_code"
    assert (await opened.register("big-1", offer["ticket"])).status == 401
    assert (await ask_for_code(opened)).status == 200


@requirement("hub/pair:heard")
async def test_a_code_that_is_typed_in_the_last_second_is_heard_of_afterwards(opened, clock):
    offer = (await ask_for_code(opened)).body
    clock.ahead = 298
    assert (await claim(opened, offer["code"])).status == 200
    clock.ahead = 330
    assert (await state_of(opened, offer["ticket"])).body["state"] == "claimed"


@requirement("hub/pair:heard")
async def test_who_has_a_token_hears_of_its_own_code_alone(visitor):
    _, secret = await visitor.token("enrol")
    one, two = [(await visitor.ask("POST", "/api/pairings/big-1", secret)).body for _ in range(2)]
    await claim(visitor, one["code"])
    assert (await state_of(visitor, one["ticket"])).body["state"] == "claimed"
    assert (await state_of(visitor, two["ticket"])).body["state"] == "waiting"
    # The ticket is no token, before and after.
    assert (await visitor.register("big-1", one["ticket"])).status == 401


@requirement("hub/pair:withdrawn")
async def test_only_its_machine_withdraws_a_code(opened):
    offer = (await ask_for_code(opened)).body
    for ticket in (None, "exs_other", offer["code"]):
        wrong = await opened.ask("DELETE", "/api/pairings/big-1", ticket)
        assert wrong.code == "unknown_pairing"
    done = await opened.ask("DELETE", "/api/pairings/big-1", offer["ticket"])
    assert done.body == {"state": "withdrawn"}
    assert (await claim(opened, offer["code"])).code == "unknown_code"
    # The name is free at once.
    again = (await ask_for_code(opened)).body
    await claim(opened, again["code"])
    late = await opened.ask("DELETE", "/api/pairings/big-1", again["ticket"])
    assert late.body == {"state": "claimed"}


@requirement("hub/pair:once")
async def test_of_two_who_type_a_code_at_once_one_is_let_in(opened):
    code = (await ask_for_code(opened)).body["code"]
    answers = await asyncio.gather(claim(opened, code), claim(opened, code))
    assert sorted(answer.status for answer in answers) == [200, 404]
    assert len(await opened.hub.store.tokens()) == 2


# Names.


@requirement("hub/pair:fresh-name")
async def test_of_two_machines_that_want_a_name_at_once_no_two_get_it(visit):
    visitor = await visit(
        allows_open_pairing=True, limits=replace(DEFAULT_LIMITS, hub_open_offers=99)
    )
    for number in range(5):
        answers = await asyncio.gather(*(ask_for_code(visitor, f"n-{number}") for _ in range(4)))
        assert sum(answer.status == 200 for answer in answers) <= 1


@requirement("hub/pair:fresh-name")
async def test_a_machine_without_a_token_gets_no_name_in_use(opened):
    _, farm = await opened.token("enrol", patterns=("*",), principal="farm")
    await opened.register("taken", farm)
    await opened.token("enrol", patterns=("build-*",))
    await opened.token("connect", patterns=("other", "lab-?"))
    await opened.ask("POST", "/api/pairings/shown", farm)
    for name in ("taken", "build-7", "lab-1", "other", "shown"):
        assert (await ask_for_code(opened, name)).code == "environment_taken", name
    assert (await ask_for_code(opened, "lab-10")).status == 200


@requirement("hub/pair:fresh-name")
async def test_who_was_let_in_to_a_machine_is_not_let_in_to_its_namesake(opened, clock):
    _, laptop = await enrolled(opened)
    (token,) = [each for each in await opened.hub.store.tokens() if each.rights == ("enrol",)]
    # The operator revokes it: clients that were paired are still accepted.
    await opened.hub.store.revoke_token(token.id, now=clock())
    assert (await ask_for_code(opened)).code == "environment_taken"
    await give_up(opened, laptop)
    assert (await ask_for_code(opened)).status == 200


async def test_a_token_offers_no_name_that_a_stranger_has(opened):
    machine, _ = await enrolled(opened)
    await opened.register("big-1", machine)
    waiting = await ask_for_code(opened, "big-2")
    _, farm = await opened.token("enrol", principal="farm")
    for name in ("big-1", "big-2"):
        answer = await opened.ask("POST", f"/api/pairings/{name}", farm)
        assert answer.code == "environment_taken"
    # The machine itself shows a second code.
    assert (await opened.ask("POST", "/api/pairings/big-1", machine)).status == 200
    assert (await claim(opened, waiting.body["code"])).status == 200


# Giving up.


@requirement("hub/pair:give-up")
async def test_a_laptop_gives_up_its_own_token_alone(opened):
    machine, laptop = await enrolled(opened)
    assert len((await give_up(opened, laptop)).body["revoked"]) == 1
    assert (await opened.connect("big-1", laptop)).status == 401
    assert (await give_up(opened, laptop)).status == 401
    assert (await opened.register("big-1", machine)).status == 200


@requirement("hub/pair:give-up")
async def test_a_machine_gives_up_its_name_and_all_who_were_paired_with_it(opened):
    machine, laptop = await enrolled(opened)
    _, other = await enrolled(opened, "big-2")
    await opened.register("big-1", machine)
    assert len((await give_up(opened, machine)).body["revoked"]) == 2
    assert (await opened.connect("big-1", laptop)).status == 401
    assert (await opened.connect("big-2", other)).code == "environment_not_found"
    assert (await ask_for_code(opened)).status == 200


@requirement("hub/pair:give-up")
async def test_a_token_that_was_not_paired_ends_alone(opened):
    _, laptop = await enrolled(opened)
    _, farm = await opened.token("enrol", patterns=("big-1",), principal="farm")
    assert len((await give_up(opened, farm)).body["revoked"]) == 1
    assert (await opened.connect("big-1", laptop)).code == "environment_not_found"


# Too many.


@requirement("hub/pair:flood")
async def test_strangers_get_some_codes_at_once_and_then_one_now_and_then(opened, clock):
    statuses = [(await ask_for_code(opened, f"n-{number}")).status for number in range(11)]
    assert statuses == [200] * 10 + [429]
    refused = await ask_for_code(opened, "n-11")
    assert refused.code == "too_many_offers" and 0 < int(refused.headers["Retry-After"]) <= 31
    clock.ahead = 31
    assert (await ask_for_code(opened, "n-11")).status == 200
    # A machine with a token does not wait for them.
    _, farm = await opened.token("enrol", principal="farm")
    assert (await opened.ask("POST", "/api/pairings/farm-1", farm)).status == 200


@requirement("hub/pair:flood")
async def test_a_machine_that_came_without_a_token_is_slowed_down_with_it(visit):
    visitor = await visit(
        allows_open_pairing=True, limits=replace(DEFAULT_LIMITS, hub_open_offers=2)
    )
    machine, _ = await enrolled(visitor)
    offers = [await visitor.ask("POST", "/api/pairings/big-1", machine) for _ in range(2)]
    assert [offer.status for offer in offers] == [200, 429]


@requirement("hub/pair:flood")
async def test_all_addresses_together_are_limited(visit):
    limits = replace(DEFAULT_LIMITS, hub_all_open_offers=2)
    visitor = await visit(allows_open_pairing=True, limits=limits, is_behind_proxy=True)

    async def from_address(number):
        forwarded = {"X-Forwarded-For": f"192.0.2.{number}"}
        return await visitor.ask("POST", f"/api/pairings/n-{number}", headers=forwarded)

    assert [(await from_address(number)).status for number in range(3)] == [200, 200, 429]


@requirement("hub/pair:flood")
async def test_so_many_codes_wait_and_no_more(visit):
    limits = replace(DEFAULT_LIMITS, hub_pairings=1)
    visitor = await visit(allows_open_pairing=True, limits=limits)
    assert (await ask_for_code(visitor, "a")).status == 200
    assert (await ask_for_code(visitor, "b")).code == "too_many_pairings"
