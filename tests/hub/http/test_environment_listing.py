"""Lists of any number of environments, a page at a time."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import aclosing

import pytest
from aiohttp import web

from exec_server.audit.event import AuditEvent
from exec_server.cli.registry import registry_options
from exec_server.cli.registry.registry_queries import list_environments
from exec_server.errors import RegistryError
from exec_server.hub.access.tokens import new_token
from exec_server.hub.bus import BusUnavailable
from exec_server.hub.cluster.registrations import Registrations
from exec_server.hub.http import status_page
from exec_server.hub.store import StoreUnavailable, sql_store
from exec_server.hub.store.entities import ExecutorFacts
from exec_server.hub.store.names import fits
from exec_server.hub.store.open_store import open_store
from tests.hub.conftest import bring_online
from tests.requirements import requirement

PATH = "/api/environments"


async def add(store, names, **facts):
    token, _ = new_token("farm", ("enrol",), ("*",), now=1.0)
    for name in names:
        await store.register(
            name,
            registration_id="r",
            executor_key="{}",
            token=token,
            facts=ExecutorFacts(**facts),
            now=2.0,
        )


async def pages_of(visitor, secret, query=""):
    """The names on each page, found by following the links."""
    found, url = [], visitor.hub.url + PATH + query
    while url is not None:
        async with visitor.web.get(url, headers={"Authorization": f"Bearer {secret}"}) as response:
            assert response.status == 200
            found.append([each["name"] for each in await response.json()])
            url = response.links["next"]["url"] if "next" in response.links else None
    return found


# The store.


@pytest.mark.one_loop
@requirement("hub/listing:patterns", "hub/store:two-engines")
async def test_a_page_is_what_fits_after_a_name_in_order(state, no_leaks):
    chance = random.Random(8)
    names = sorted({"".join(chance.choices("-._aAbB1", k=3)) for _ in range(120)})
    store = await open_store(state)
    await add(store, names)
    for _ in range(60):
        some = ["".join(chance.choices("-._aAb1**?", k=chance.randint(1, 4))) for _ in range(3)]
        after, limit = chance.choice(["", "a", *names]), chance.randint(1, 30)
        expected = [name for name in names if name > after and fits(name, some)][:limit]
        found = await store.environments(some, after=after, limit=limit)
        assert [each.id for each in found] == expected, (some, after, limit)
    assert await store.environments([], limit=5) == []
    # As many patterns as a token may have, each with another beginning.
    many = [f"{number:02}-*" for number in range(99)] + ["a*"]
    found = await store.environments(many, limit=500)
    assert [each.id for each in found] == [name for name in names if fits(name, many)]
    await store.close()


@requirement("hub/listing:patterns")
def test_a_token_has_a_limited_number_of_patterns():
    names = [f"e{number}" for number in range(101)]
    assert new_token("farm", ("list",), names[:100], now=1.0)
    with pytest.raises(ValueError, match="100"):
        new_token("farm", ("list",), names, now=1.0)


@pytest.mark.one_loop
@requirement("hub/audit:days")
async def test_old_events_are_dropped_some_at_a_time(state, no_leaks, monkeypatch):
    monkeypatch.setattr(sql_store, "_FORGOTTEN_AT_ONCE", 3)
    store = await open_store(state)
    await store.add_events([AuditEvent(at=float(at), name=f"{at}") for at in range(10)])
    await store.forget(now=0.0, events_before=8.0)
    assert [event.name for event in await store.events()] == ["9", "8"]
    await store.close()


# The registry.


@requirement("hub/listing:pages")
async def test_all_that_fits_is_one_list_and_more_of_it_is_linked(visitor):
    names = [f"e{number}" for number in range(5)]
    await add(visitor.hub.store, names)
    _, secret = await visitor.token("list")
    answer = await visitor.ask("GET", PATH, secret)
    assert [each["name"] for each in answer.body] == names and "Link" not in answer.headers
    assert await pages_of(visitor, secret, "?limit=5") == [names]
    assert await pages_of(visitor, secret, "?limit=2") == [names[:2], names[2:4], names[4:]]
    assert await pages_of(visitor, secret, "?after=e2") == [names[3:]]
    assert await pages_of(visitor, secret, "?after=e4") == [[]]
    asked = "?name=e1&name=e9&name=e3&limit=1"
    assert await pages_of(visitor, secret, asked) == [["e1"], ["e3"]]


@requirement("hub/listing:pages")
@pytest.mark.parametrize(
    "query", ["after=*", "after=%00", "limit=x", "limit=-1", "name=*", "name="]
)
async def test_a_page_that_cannot_exist_is_refused(visitor, query):
    _, secret = await visitor.token("list", "observe")
    for path in (PATH, "/"):
        assert (await visitor.ask("GET", f"{path}?{query}", secret)).code == "invalid_request"


@requirement("hub/listing:pages")
async def test_no_request_gets_more_than_a_page(visitor, monkeypatch):
    asked = []
    environments = type(visitor.hub.store).environments

    async def seen(self, patterns, *, after="", limit):
        asked.append(limit)
        return await environments(self, patterns, after=after, limit=limit)

    monkeypatch.setattr(type(visitor.hub.store), "environments", seen)
    _, secret = await visitor.token("list", "observe")
    for path in (PATH, f"{PATH}?limit=999999", f"{PATH}?limit=0", "/"):
        assert (await visitor.ask("GET", path, secret)).status == 200
    # One more tells whether there are more.
    assert asked == [1001, 1001, 2, 201]


@requirement("hub/listing:pages")
async def test_what_environments_say_of_themselves_makes_pages_shorter(visitor):
    """An answer is no larger than what our own client reads."""
    labels = {f"{number:0200}": "\1" * 200 for number in range(32)}
    names = [f"e{number:02}" for number in range(30)]
    await add(visitor.hub.store, names, labels=labels)
    _, secret = await visitor.token("list")
    found = await pages_of(visitor, secret)
    assert len(found) > 1 and [name for part in found for name in part] == names
    async with aclosing(registry_options.pages(visitor.hub.url, PATH, token=secret)) as parts:
        assert [len(part) async for part in parts] == [len(part) for part in found]


@requirement("hub/listing:patterns")
async def test_a_limited_token_gets_full_pages_and_hears_of_nothing_else(visitor):
    builds = [f"build-{number}" for number in range(6)]
    await add(visitor.hub.store, [*builds, "a", "bu", "build", "build.1", "z-build-1"])
    _, secret = await visitor.token("list", patterns=("build-*", "nobody"))
    assert await pages_of(visitor, secret, "?limit=3") == [builds[:3], builds[3:]]
    assert await pages_of(visitor, secret, "?name=a&name=build-1") == [["build-1"]]
    _, ends = await visitor.token("list", patterns=("*-1",))
    assert await pages_of(visitor, ends, "?limit=1") == [["build-1"], ["z-build-1"]]
    once, bound = await visitor.token("enrol", "list", is_once=True)
    await visitor.hub.store.bind_token(once, "build-2", now=3.0)
    assert await pages_of(visitor, bound) == [["build-2"]]
    _, blind = await visitor.token("list", patterns=())
    assert await pages_of(visitor, blind) == [[]]


@requirement("hub/listing:pages")
async def test_presence_is_asked_for_what_is_on_the_page(visitor, monkeypatch):
    asked = []
    census = Registrations.census

    async def seen(self, wanted):
        asked.append((wanted, found := await census(self, wanted)))
        return found

    monkeypatch.setattr(Registrations, "census", seen)
    for name in ("b-1", "b-2", "c-1"):
        await bring_online(visitor, name)
    _, secret = await visitor.token("list", patterns=("b-*", "c-*"))
    assert await pages_of(visitor, secret, "?limit=1") == [["b-1"], ["b-2"], ["c-1"]]
    assert [(wanted.after, wanted.until) for wanted, _ in asked] == [
        ("", "b-2"),
        ("b-1", "c-1"),
        ("b-2", "c-1"),
    ]
    assert [sorted(found) for _, found in asked] == [["b-1", "b-2"], ["b-2", "c-1"], ["c-1"]]


@requirement("hub/page:pages")
async def test_the_status_page_links_to_the_next_one(visitor, monkeypatch):
    monkeypatch.setattr(status_page, "ENVIRONMENTS", 2)
    await add(visitor.hub.store, ["e1", "e2", "e3", "e4"])
    _, secret = await visitor.token("observe")
    first = (await visitor.ask("GET", "/", secret)).body
    assert "0 of 2 environments on this page online" in first and "First page" not in first
    link = 'href="?after=e2&amp;limit=2"'
    assert link in first and "e3" not in first
    second = (await visitor.ask("GET", "/?after=e2&limit=2", secret)).body
    assert "e3" in second and 'href="./"' in second and "Next page" not in second
    assert "No more environments" in (await visitor.ask("GET", "/?after=e4", secret)).body


# The commands.


@pytest.mark.one_loop
@requirement("hub/listing:commands")
async def test_pages_are_printed_as_they_come(visitor, monkeypatch, capsys):
    """The commands print one table or one JSON list."""
    names = [f"e{number}" for number in range(1001)] + ["zz-with-a-longer-name"]
    await add(visitor.hub.store, sorted(names))
    _, secret = await visitor.token("list")
    url = visitor.hub.url
    assert await list_environments(url, secret, is_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", *sorted(names)]
    # The columns are wider from then on.
    assert lines[1].index("offline") < lines[-1].index("offline")
    assert await list_environments(url, secret, is_json=True) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == sorted(names)
    for chosen, status in ((["e1", "e1000"], 0), (["e1", "nobody"], 1), (names[:60], 0)):
        assert await list_environments(url, secret, chosen, is_json=True) == status
        found = [each["name"] for each in json.loads(capsys.readouterr().out)]
        assert found == sorted(set(chosen) & set(names))


@pytest.mark.one_loop
@requirement("hub/listing:commands")
@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ('<http://evil.example/x?after=a>; rel="next"', "do not advance"),
        ('<?limit=5>; rel="next"', "do not advance"),
        ("<?after=a>; rel=prev", None),
        ("nonsense", None),
    ],
)
async def test_pages_that_go_round_in_circles_end(no_leaks, link, problem):
    asked = []

    async def answer(request):
        asked.append((request.path, request.headers["Authorization"]))
        return web.json_response([], headers={"Link": link})

    application = web.Application()
    application.router.add_get(PATH, answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with asyncio.timeout(60):
            if problem is None:
                assert await list_environments(url, "t", is_json=True) == 0
            else:
                with pytest.raises(RegistryError, match=problem):
                    await list_environments(url, "t", is_json=True)
    finally:
        await runner.cleanup()
    # No other server was asked or got the token.
    assert 1 <= len(asked) <= 2 and set(asked) == {(PATH, "Bearer t")}


# Parts that are away.


@requirement("hub/rendezvous:away")
@pytest.mark.parametrize("kind", [StoreUnavailable, BusUnavailable])
async def test_a_socket_that_fails_for_what_is_away_is_one_line(visitor, monkeypatch, caplog, kind):
    async def leave(self, registration):
        raise kind("gone for lunch")

    monkeypatch.setattr(Registrations, "leave", leave)
    pair = await bring_online(visitor)
    await pair.executor.close()
    async with asyncio.timeout(60):
        while not (told := [each for each in caplog.records if "socket failed" in each.message]):
            await visitor.ask("GET", "/healthz")
    assert [(each.getMessage(), each.levelname, each.exc_info) for each in told] == [
        ("a rendezvous socket failed: gone for lunch", "WARNING", None)
    ]
