"""A code, typed once."""

from __future__ import annotations

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
    # Here a right one has to wait as well: otherwise the answer would tell.
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
