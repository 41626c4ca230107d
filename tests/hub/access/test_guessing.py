"""Guesses at the same moment, and addresses that a client claims to have."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.hub.access.throttle import SharedThrottle, Throttle, forwarded_address
from exec_server.hub.store.sql_store import SqlStore
from exec_server.transport.refusal_log import network_of
from tests.requirements import requirement

GUESSES = 600


# The requests that name a code, and the statement that looks for it.
WAYS = {"/api/pair": "take_pairing", "/api/pair/reply": "reply_to_pairing"}


async def looked_up(visitor, monkeypatch, headers, path="/api/pair") -> tuple[int, list]:
    """How many of the wrong codes that come at the same moment the store is asked for."""
    count, original = 0, getattr(SqlStore, WAYS[path])

    async def counted(self, *words, **options):
        nonlocal count
        count += 1
        return await original(self, *words, **options)

    monkeypatch.setattr(SqlStore, WAYS[path], counted)

    async def guess(web, number: int) -> int:
        url = f"{visitor.hub.url}{path}"
        body = {"code": f"WRNG-{number:04}", "state": "refused"}
        async with web.post(url, json=body, headers=headers(number)) as response:
            return int(response.status)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=100)) as web:
        statuses = await asyncio.gather(*(guess(web, number) for number in range(GUESSES)))
    return count, statuses


@requirement("security/registry:guesses")
@pytest.mark.parametrize("path", WAYS)
async def test_wrong_codes_at_the_same_moment_are_not_all_looked_up(visitor, monkeypatch, path):
    count, statuses = await looked_up(visitor, monkeypatch, lambda number: {}, path)
    assert 1 <= count <= 11
    assert statuses.count(404) == count and statuses.count(429) == GUESSES - count


@requirement("security/registry:guesses")
@pytest.mark.parametrize("path", WAYS)
async def test_wrong_codes_of_many_addresses_are_not_all_looked_up(visit, monkeypatch, path):
    visitor = await visit(is_behind_proxy=True)
    count, _ = await looked_up(
        visitor,
        monkeypatch,
        lambda number: {"X-Forwarded-For": f"10.0.{number // 250}.{number % 250}"},
        path,
    )
    assert 1 <= count <= 32


@requirement("security/registry:guesses")
async def test_good_codes_do_not_count_as_guesses(visitor):
    _, secret = await visitor.token("enrol")
    for number in range(40):
        code = (await visitor.ask("POST", f"/api/pairings/m{number}", secret)).body["code"]
        answer = await visitor.ask("POST", "/api/pair", body={"code": code})
        assert answer.status == 200, number


@given(good=st.integers(0, 30), bad=st.integers(0, 3))
def test_a_failure_that_is_taken_back_leaves_no_trace(good, bad):
    throttle = SharedThrottle(each=(4, 5.0), together=(9, 5.0), remembered=10)
    for _ in range(good):
        throttle.failed("a", now=0)
        throttle.take_back("a")
    for _ in range(bad):
        throttle.failed("a", now=0)
    assert throttle.retry_after("a", now=0) == 0
    # An address that was forgotten meanwhile has nothing to take back.
    Throttle(at_once=1, seconds_each=1.0, remembered=1).take_back("b")


@requirement("security/registry:forwarded")
@pytest.mark.parametrize(
    ("lines", "address"),
    [
        (["192.0.2.1"], "192.0.2.1"),
        (["203.0.113.7, 192.0.2.1"], "192.0.2.1"),
        (["203.0.113.7", "192.0.2.1"], "192.0.2.1"),
        (["203.0.113.7, 1.1.1.1", "2.2.2.2, 192.0.2.1"], "192.0.2.1"),
        (["192.0.2.1:4711"], "192.0.2.1"),
        (["::ffff:192.0.2.1"], "192.0.2.1"),
        (["[::FFFF:c000:201]:4711"], "192.0.2.1"),
        (["fe80::1%eth0"], "fe80::1"),
        (["2001:DB8::1"], "2001:db8::1"),
        (["[2001:db8::1]:4711"], "2001:db8::1"),
        (['"[2001:db8::1]"'], "2001:db8::1"),
        (["192.0.2.1,"], None),
        (["192.0.2.1", "unknown"], None),
        (["192.0.2.1, forged\tline"], None),
        ([""], None),
        ([], None),
    ],
)
def test_the_last_address_of_all_lines_counts(lines, address):
    assert forwarded_address(lines) == address


@requirement("security/registry:networks")
@given(st.ip_addresses(v=4), st.ip_addresses(v=4))
def test_two_addresses_of_ipv4_never_share_a_limit(one, other):
    def mapped(address):
        return f"::ffff:{address}"

    assert network_of(mapped(one)) == network_of(str(one))
    if one != other:
        assert network_of(mapped(one)) != network_of(mapped(other))


@requirement("security/registry:networks")
def test_a_zone_makes_no_other_owner():
    assert len({network_of(f"fe80::{n}%eth{n}") for n in range(1, 5)}) == 1


@requirement("security/registry:forwarded")
@given(st.lists(st.text(max_size=20), max_size=4))
def test_whatever_a_client_sends_before_it_the_proxys_address_counts(lines):
    assert forwarded_address([*lines, "192.0.2.1"]) == "192.0.2.1"
    assert forwarded_address([",".join([*lines, " 192.0.2.1"])]) == "192.0.2.1"


@requirement("security/registry:forwarded")
@pytest.mark.parametrize("is_behind_proxy", [True, False])
async def test_the_first_of_two_lines_is_not_believed(visit, is_behind_proxy):
    visitor = await visit(is_behind_proxy=is_behind_proxy)
    _, secret = await visitor.token("enrol")
    key = visitor.key.public.to_object()
    headers = [
        ("Authorization", f"Bearer {secret}"),
        ("X-Forwarded-For", "203.0.113.7"),
        ("X-Forwarded-Proto", "ws"),
        ("X-Forwarded-For", "192.0.2.1"),
        ("X-Forwarded-Proto", "https"),
    ]
    body = {"security_profile": "noise_hybrid_ik_v1", "executor_public_key": key}
    url = f"{visitor.hub.url}/cloud/environment/a/register"
    async with visitor.web.post(url, json=body, headers=headers) as response:
        registered = await response.json()
    (event,) = await visitor.hub.store.events()
    assert event.address == ("192.0.2.1" if is_behind_proxy else "127.0.0.1")
    assert registered["url"].startswith("wss://" if is_behind_proxy else "ws://")
