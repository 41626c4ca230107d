"""Guesses at the same moment, and addresses that a client claims to have."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.hub.access.throttle import SharedThrottle, Throttle, forwarded_address
from exec_server.hub.store.sql_store import SqlStore
from tests.requirements import requirement

GUESSES = 600


async def looked_up(visitor, monkeypatch, headers) -> tuple[int, list]:
    """How many of the wrong codes that come at the same moment the store is asked for."""
    count, original = 0, SqlStore.take_pairing

    async def counted(self, digest, *, now):
        nonlocal count
        count += 1
        return await original(self, digest, now=now)

    monkeypatch.setattr(SqlStore, "take_pairing", counted)

    async def guess(web, number: int) -> int:
        url = f"{visitor.hub.url}/api/pair"
        body = {"code": f"WRNG-{number:04}"}
        async with web.post(url, json=body, headers=headers(number)) as response:
            return int(response.status)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=100)) as web:
        statuses = await asyncio.gather(*(guess(web, number) for number in range(GUESSES)))
    return count, statuses


@requirement("security/registry:guesses")
async def test_wrong_codes_at_the_same_moment_are_not_all_looked_up(visitor, monkeypatch):
    count, statuses = await looked_up(visitor, monkeypatch, lambda number: {})
    assert 1 <= count <= 11
    assert statuses.count(404) == count and statuses.count(429) == GUESSES - count


@requirement("security/registry:guesses")
async def test_wrong_codes_of_many_addresses_are_not_all_looked_up(visit, monkeypatch):
    visitor = await visit(is_behind_proxy=True)
    count, _ = await looked_up(
        visitor,
        monkeypatch,
        lambda number: {"X-Forwarded-For": f"10.0.{number // 250}.{number % 250}"},
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
