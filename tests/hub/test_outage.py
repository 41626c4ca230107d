"""A registry whose database goes away: open streams continue, new requests are refused."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from msgspec.structs import replace

from exec_server.hub.registry_service import HubOptions, serve_hub
from exec_server.limits import DEFAULT_LIMITS
from exec_server.relay.frame import Data, RelayFrame, StreamId, encode
from tests.hub.conftest import Visitor, bring_online
from tests.requirements import requirement

pytestmark = pytest.mark.one_loop

LIMITS = replace(DEFAULT_LIMITS, hub_store_timeout=1.5, hub_revocation_seconds=0.01)


@pytest.fixture
async def pair(mortal_postgres):
    """An environment that is online, at a registry with a database of its own."""
    options = HubOptions(state=mortal_postgres.create_database())
    async with serve_hub(options, limits=LIMITS) as hub, aiohttp.ClientSession() as web:
        pair = await bring_online(Visitor(hub, web))
        yield pair
        pair.visitor.drop_all()


def frame(number):
    return encode(RelayFrame(StreamId("s"), Data(number, b"x" * 1000)))


async def exchange(harness, executor, numbers):
    """Send frames in both directions, and check that all arrive."""
    async with asyncio.timeout(60):
        for number in numbers:
            await harness.send_bytes(frame(number))
            assert (await executor.receive()).data == frame(number)
            await executor.send_bytes(frame(number))
            assert (await harness.receive()).data == frame(number)


async def events_of(pair, wanted, count):
    """The event names, the oldest first, once *wanted* is the newest and there *count* times.

    The count matters: just after an outage the store has only the first of the waiting events.
    """
    _, secret = await pair.visitor.token("observe")
    async with asyncio.timeout(60):
        while True:
            answer = await pair.visitor.ask("GET", "/api/events", secret)
            names = [event["name"] for event in answer.body]
            if names[0] == wanted and names.count(wanted) >= count:
                return names[::-1]


@requirement("hub/store:streams-go-on")
async def test_streams_go_on_while_the_database_is_away(pair, mortal_postgres, caplog):
    first, second = await pair.open_harness(), await pair.open_harness()
    await exchange(first, pair.executor, range(5))
    # No event is being written, because it would be written twice.
    await events_of(pair, "harness online", 2)
    mortal_postgres.kill()
    # Long enough for several rounds of housekeeping to fail.
    for start in (5, 10):
        assert (await pair.visitor.connect("build", pair.harness)).status == 503
        await exchange(first, pair.executor, range(start, start + 5))
    # A harness can leave as always.
    await second.close()
    await first.close()
    async with asyncio.timeout(60):
        reset = await pair.executor.receive()
    assert b"s" in reset.data
    mortal_postgres.start()
    harness = await pair.open_harness()
    await exchange(harness, pair.executor, range(5))
    await harness.close()
    names = await events_of(pair, "harness offline", 3)
    assert names.count("harness online") == names.count("harness offline") == 3
    assert sorted(names[:2]) == ["executor online", "registered"]
    assert caplog.text.count("the registry's state is away") == 1
    assert "Traceback" not in caplog.text


@requirement("hub/store:streams-go-on", "hub/store:outage")
async def test_requests_are_put_off_while_the_database_is_away(pair, mortal_postgres):
    visitor = pair.visitor
    bundle = (await visitor.connect("build", pair.harness)).body
    mortal_postgres.kill()
    registration, *others = await asyncio.gather(
        visitor.register("other", pair.enrolment),
        visitor.connect("build", pair.harness),
        visitor.validate("build", pair.enrolment, bundle),
        visitor.ask("GET", "/api/environments", pair.harness),
        visitor.ask("GET", "/readyz"),
    )
    # Executors of the reference register again only after this; they exit after a 503.
    assert registration.status == 502
    assert registration.code == "authentication_service_unavailable"
    for answer in others:
        assert (answer.status, answer.code) == (503, "state_unavailable")
        assert 1 <= int(answer.headers["Retry-After"]) <= 3
    for url in (bundle["url"], pair.registration["url"]):
        assert await visitor.refusal(url) == (503, "route_unavailable")
    assert (await visitor.ask("GET", "/healthz")).status == 200
    mortal_postgres.start()
    async with asyncio.timeout(60):
        while (await visitor.ask("GET", "/readyz")).status != 200:
            pass
    # Nothing was used up.
    assert (await visitor.validate("build", pair.enrolment, bundle)).body == {"valid": True}
    assert not (await visitor.open(bundle["url"])).closed


@requirement("hub/store:outage")
async def test_it_stops_in_time_without_its_database(mortal_postgres):
    async with aiohttp.ClientSession() as web:
        options = HubOptions(state=mortal_postgres.create_database())
        async with serve_hub(options, limits=LIMITS) as hub:
            pair = await bring_online(Visitor(hub, web))
            mortal_postgres.kill()
        # The database does not come back, so a stop that waited for it would not end.
        assert not mortal_postgres.is_running
        pair.visitor.drop_all()
