"""Rows that many callers ask for at once."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from exec_server.hub.store import StoreUnavailable
from exec_server.hub.store.batching import MOST, Lookups
from exec_server.hub.store.sqlite import SqliteEngine
from tests.hub.conftest import bring_online
from tests.requirements import requirement


class Table:
    """Rows, and the statements that read them. Each statement waits for the test."""

    def __init__(self):
        self.rows = {}
        self.statements = []
        self.begun, self.may_answer = asyncio.Semaphore(0), asyncio.Semaphore(0)
        self.failure = None

    async def read(self, keys):
        self.statements.append([*keys])
        self.begun.release()
        rows = {key: self.rows[key] for key in keys if key in self.rows}
        await self.may_answer.acquire()
        if self.failure is not None:
            raise self.failure
        return rows


@pytest.fixture
def table():
    return Table()


@pytest.fixture
async def lookups(table, no_leaks):
    lookups = Lookups(table.read, seconds=30.0)
    yield lookups
    await lookups.close()


@requirement("hub/store:lookups")
async def test_who_asks_while_a_statement_runs_shares_the_next_one(table, lookups):
    table.rows = {f"{number}": number for number in range(10)}
    asking = [asyncio.create_task(lookups.find("0"))]
    await table.begun.acquire()
    asking += [asyncio.create_task(lookups.find(f"{number % 10}")) for number in range(20)]
    asking.append(asyncio.create_task(lookups.find("unknown")))
    await asyncio.sleep(0)
    table.may_answer.release()
    await table.begun.acquire()
    table.may_answer.release()
    answers = await asyncio.gather(*asking)
    assert answers == [0, *range(10), *range(10), None]
    assert len(table.statements) == 2 and len(set(table.statements[1])) == 11


@requirement("hub/store:lookups")
async def test_no_answer_is_older_than_its_question(table, lookups):
    table.rows = {"token": "good"}
    before = asyncio.create_task(lookups.find("token"))
    await table.begun.acquire()
    table.rows = {"token": "revoked"}
    after = asyncio.create_task(lookups.find("token"))
    await asyncio.sleep(0)
    for _ in range(2):
        table.may_answer.release()
    assert (await before, await after) == ("good", "revoked")


async def test_a_statement_has_only_so_many_keys(table, lookups):
    for _ in range(4):
        table.may_answer.release()
    await asyncio.gather(*(lookups.find(f"{number}") for number in range(2 * MOST + 1)))
    assert [len(keys) for keys in table.statements] == [MOST, MOST, 1]


@requirement("hub/store:outage")
async def test_a_failure_is_that_of_all_who_shared_the_statement(table, lookups):
    table.failure = StoreUnavailable("away")
    asking = [asyncio.create_task(lookups.find(f"{number}")) for number in range(3)]
    await table.begun.acquire()
    table.may_answer.release()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    table.failure = None
    table.may_answer.release()
    assert await lookups.find("0") is None


async def test_who_goes_takes_no_answer_with_it(table, lookups):
    table.rows = {"a": 1}
    first, second = (asyncio.create_task(lookups.find("a")) for _ in range(2))
    await table.begun.acquire()
    first.cancel()
    await asyncio.wait([first])
    table.may_answer.release()
    assert await second == 1


@requirement("hub/store:outage")
async def test_no_call_waits_beyond_the_deadline_of_a_statement_that_hangs(table, no_leaks):
    lookups = Lookups(table.read, seconds=0.05)
    answers = await asyncio.gather(
        *(lookups.find(f"{number}") for number in range(3)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    await lookups.close()


async def test_who_still_waits_at_the_end_is_refused(table, no_leaks):
    lookups = Lookups(table.read, seconds=30.0)
    asking = [asyncio.create_task(lookups.find("a"))]
    await table.begun.acquire()
    asking.append(asyncio.create_task(lookups.find("b")))
    await asyncio.sleep(0)
    await lookups.close()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 2


# The number of statements of each operation.


@pytest.fixture
def statements(monkeypatch):
    """The executed statements without housekeeping and audit events."""
    executed = []

    def counting(method):
        async def counted(engine, statement, values):
            if not statement.startswith(("WITH", "DELETE", "INSERT INTO events")):
                executed.append(statement)
            return await method(engine, statement, values)

        return counted

    for name in ("read", "write"):
        monkeypatch.setattr(SqliteEngine, name, counting(getattr(SqliteEngine, name)))
    return executed


@requirement("hub/store:lookups")
async def test_the_statements_of_each_operation_alone(statements, visitor):
    pair = await bring_online(visitor)
    # From now on the last use of the tokens is known.
    await visitor.connect("build", pair.harness)
    statements.clear()
    url = (await visitor.register("other", pair.enrolment)).body["url"]
    assert len(statements) == 2
    statements.clear()
    await visitor.open(url)
    while (bundle := await visitor.connect("other", pair.harness)).status != 200:
        statements[:] = [each for each in statements if "authorizations" not in each]
    # A socket takes three, one of them when the executor is served. A connect takes three, too.
    statements.clear()
    assert (await visitor.connect("other", pair.harness)).status == 200
    assert len(statements) == 3
    statements.clear()
    await visitor.open(bundle.body["url"])
    assert len(statements) == 3


@requirement("hub/store:lookups")
@pytest.mark.one_loop
async def test_many_who_come_at_once_share_their_statements(statements, visitor):
    _, enrolment = await visitor.token("enrol")
    urls = [(await visitor.register(f"e-{n}", enrolment)).body["url"] for n in range(90)]
    statements.clear()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as web:
        sockets = await asyncio.gather(*map(web.ws_connect, urls))
        taken = len(statements)
        for socket in sockets:
            await socket.close()
    assert taken < 2 * len(urls)
