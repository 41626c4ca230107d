"""More requests than a registry can serve: some run, some wait, the others are refused."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import wraps
from inspect import iscoroutinefunction
from itertools import islice
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from exec_server.hub import registry_service
from exec_server.hub.access.refusals import put_off
from exec_server.hub.http import admission_gate
from exec_server.hub.http.admission_gate import AdmissionGate, Overloaded, Patience
from exec_server.hub.store.open_store import open_store
from exec_server.limits import DEFAULT_LIMITS
from exec_server.relay.frame import Data, RelayFrame, StreamId, encode
from tests.hub.conftest import bring_online
from tests.requirements import requirement

AT_ONCE, WAITING, SECONDS = 4, 40, 0.2
LIMITS = replace(
    DEFAULT_LIMITS,
    hub_admissions=AT_ONCE,
    hub_admissions_waiting=WAITING,
    hub_admission_seconds=60.0,
    hub_long_admission_seconds=60.0,
    # A slow machine must not return slots early: the tests count the work that goes on at once.
    hub_admission_lent=60.0,
)
EXECUTORS = 300
# The delay that a busy machine may add to a deadline.
SLACK = 5.0
PREFIX = "exec_server_registry_"


# The slots.


@pytest.fixture
def two():
    return AdmissionGate(limits=replace(DEFAULT_LIMITS, hub_admissions=2, hub_admissions_waiting=2))


@asynccontextmanager
async def place(gate, patience):
    await gate.enter(patience)
    try:
        yield
    finally:
        admission_gate.leave()


class Guest:
    """A task that takes a slot, and keeps it until `go`."""

    def __init__(self, gate, patience=None, came=None):
        self.is_in = asyncio.Event()
        self._may_go = asyncio.Event()
        self._came = [] if came is None else came
        self.task = asyncio.create_task(self._visit(gate, patience or gate.brief))

    async def _visit(self, gate, patience):
        async with place(gate, patience):
            self._came.append(self)
            self.is_in.set()
            await self._may_go.wait()

    async def go(self):
        self._may_go.set()
        await self.task


def metrics(gate):
    return {metric.name: metric.value for metric in gate.metrics()}


@requirement("hub/admission:bounded")
async def test_who_comes_first_is_served_first(two):
    came: list[Any] = []
    guests = [Guest(two, came=came) for _ in range(4)]
    for guest in guests[:2]:
        await guest.is_in.wait()
    assert metrics(two) == {"admitted": 2, "waiting": 2, "overloads_total": 0}
    for guest in guests:
        await guest.is_in.wait()
        await guest.go()
    assert came == guests
    assert metrics(two) == {"admitted": 0, "waiting": 0, "overloads_total": 0}


@requirement("hub/admission:bounded", "hub/admission:registrations")
async def test_where_the_queue_is_full_only_the_patient_may_wait(two, caplog):
    guests = [Guest(two) for _ in range(4)]
    await guests[1].is_in.wait()
    for _ in range(3):
        with pytest.raises(Overloaded):
            async with place(two, two.brief):
                pass
    assert caplog.text.count("too much to do") == 1
    guests += [Guest(two, two.long) for _ in range(2)]
    # Its first step is to wait.
    await asyncio.sleep(0)
    assert metrics(two)["waiting"] == 4
    with pytest.raises(Overloaded):
        async with place(two, two.long):
            pass
    for guest in guests:
        await guest.go()
    assert metrics(two) == {"admitted": 0, "waiting": 0, "overloads_total": 4}


@requirement("hub/admission:bounded")
async def test_who_waits_too_long_goes_and_leaves_no_gap(two):
    guests = [Guest(two) for _ in range(2)]
    late = Guest(two, Patience(2, 0.01))
    with pytest.raises(Overloaded):
        await late.task
    for guest in guests:
        await guest.go()
    assert metrics(two) == {"admitted": 0, "waiting": 0, "overloads_total": 1}


async def test_a_place_that_comes_with_the_end_of_patience_is_passed_on(two):
    holder = Guest(two)
    await holder.is_in.wait()
    async with place(two, two.brief):
        first, second = Guest(two), Guest(two)
        # Their first step is to wait.
        await asyncio.sleep(0)
    # The first task has the slot, and has not run since.
    assert metrics(two)["waiting"] == 1
    first.task.cancel()
    await second.is_in.wait()
    assert not first.is_in.is_set()
    for guest in (second, holder):
        await guest.go()
    assert metrics(two) == {"admitted": 0, "waiting": 0, "overloads_total": 0}


async def test_a_place_that_was_left_is_not_given_back_twice(two):
    async with place(two, two.brief):
        admission_gate.leave()
        admission_gate.leave()
        assert metrics(two)["admitted"] == 0
    assert metrics(two)["admitted"] == 0
    # A task without a slot has nothing to leave.
    admission_gate.leave()


async def test_who_waits_for_others_keeps_its_place_for_a_while_only(two):
    guests = [Guest(two)]
    async with place(two, two.brief):
        waiting = Guest(two)
        guests.append(waiting)
        admission_gate.leave(0.01)
        async with asyncio.timeout(60):
            await waiting.is_in.wait()
    for guest in guests:
        await guest.go()
    assert metrics(two)["admitted"] == 0


@requirement("hub/admission:registrations")
def test_only_a_registration_is_put_off_in_the_way_that_executors_understand():
    statuses = {}
    for path in (
        "/cloud/environment/a/register",
        "/cloud/executor/a/register",
        "/cloud/environment/a/connect",
        "/rendezvous/a",
        "/rendezvous/register",
    ):
        refusals = [put_off(path, "overloaded", "later") for _ in range(100)]
        # The pauses differ, so that clients do not come back together.
        assert {refusal.headers["Retry-After"] for refusal in refusals} == {"1", "2", "3"}
        statuses[path] = refusals[0].status, refusals[0].code
    assert [*statuses.values()] == [
        (502, "authentication_service_unavailable"),
        (502, "authentication_service_unavailable"),
        (503, "overloaded"),
        (503, "route_unavailable"),
        (503, "route_unavailable"),
    ]


# A registry whose store is slow.


class HeldStore:
    """A store whose lookups wait until the test allows them, and which counts them."""

    def __init__(self, store):
        self._store = store
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = []
        self.is_asked = asyncio.Event()
        self.at_once = self.most = 0

    def __getattr__(self, name):
        method = getattr(self._store, name)
        if name not in ("environment", "register") or not iscoroutinefunction(method):
            return method

        @wraps(method)
        async def held(environment_id, **options):
            self.asked.append(environment_id)
            self.is_asked.set()
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            try:
                await self.answers.wait()
                return await method(environment_id, **options)
            finally:
                self.at_once -= 1

        return held


@pytest.fixture
async def held(monkeypatch):
    stores = []

    async def opened(state, **options):
        stores.append(HeldStore(await open_store(state, **options)))
        return stores[-1]

    monkeypatch.setattr(registry_service, "open_store", opened)
    yield stores
    for store in stores:
        store.answers.set()


@asynccontextmanager
async def crowd():
    """A function that dials as an executor, any number at once."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as web:
        sockets = []

        async def dial(url):
            """The status of the socket, its seconds, and the pause before another attempt."""
            loop = asyncio.get_running_loop()
            started = loop.time()
            try:
                sockets.append(await web.ws_connect(url))
            except aiohttp.WSServerHandshakeError as exc:
                assert exc.headers is not None
                again = int(exc.headers["Retry-After"])
                return exc.status, loop.time() - started, again
            return 101, loop.time() - started, 0

        yield dial
        for socket in sockets:
            socket._response.close()


async def served_metrics(visitor, secret):
    text = (await visitor.ask("GET", "/metrics", secret)).body
    lines = (line.split() for line in text.splitlines() if line.startswith(PREFIX))
    return {name.removeprefix(PREFIX): value for name, value in lines}


async def exchanged(harness, executor, seq):
    frame = encode(RelayFrame(StreamId("s"), Data(seq, b"x" * 1000)))
    async with asyncio.timeout(60):
        await harness.send_bytes(frame)
        assert (await executor.receive()).data == frame
        await executor.send_bytes(frame)
        assert (await harness.receive()).data == frame


@requirement(
    "hub/admission:bounded",
    "hub/admission:in-the-end",
    "hub/admission:registrations",
    "hub/admission:open",
)
@pytest.mark.one_loop
async def test_three_hundred_come_at_once_and_all_get_in_in_the_end(visit, held):
    visitor = await visit(limits=LIMITS)
    pair = await bring_online(visitor)
    harness = await pair.open_harness()
    _, observer = await visitor.token("observe")
    urls = [
        (await visitor.register(f"e-{number}", pair.enrolment)).body["url"]
        for number in range(EXECUTORS)
    ]
    store = held[0]
    store.most = 0
    store.answers.clear()
    async with crowd() as dial:
        dialling = [asyncio.create_task(dial(url)) for url in urls]
        # All but those that run or wait are answered at once.
        answered: set[asyncio.Task[Any]] = set()
        while len(answered) < EXECUTORS - AT_ONCE - WAITING:
            done, _ = await asyncio.wait(dialling, return_when=asyncio.FIRST_COMPLETED)
            answered |= done
            dialling = [task for task in dialling if not task.done()]
        registering = asyncio.create_task(visitor.register("new", pair.enrolment))
        await waiting(visitor, WAITING + 1)
        for seq in range(3):
            await exchanged(harness, pair.executor, seq)
        assert (await visitor.ask("GET", "/healthz")).status == 200
        shown = await served_metrics(visitor, observer)
        assert (shown["admitted"], shown["waiting"]) == (str(AT_ONCE), str(WAITING + 1))
        assert not registering.done() and store.at_once == store.most == AT_ONCE
        assert {task.result()[0] for task in answered} == {503}
        assert {task.result()[2] for task in answered} == {1, 2, 3}
        store.answers.set()
        assert (await registering).status == 200
        # All of them try again until they are connected.
        async with asyncio.timeout(30):
            assert {status for status, *_ in await asyncio.gather(*dialling)} == {101}
            while urls:
                answers = await asyncio.gather(*map(dial, urls))
                urls = [url for url, answer in zip(urls, answers, strict=True) if answer[0] == 503]
        await exchanged(harness, pair.executor, 3)
        assert store.most <= AT_ONCE
        shown = await served_metrics(visitor, observer)
        assert (shown["admitted"], shown["waiting"]) == ("0", "0")
        assert int(shown["overloads_total"]) >= EXECUTORS - AT_ONCE - WAITING


@requirement("hub/admission:bounded", "hub/admission:registrations")
async def test_no_request_waits_beyond_the_bound(visit, held):
    visitor = await visit(limits=replace(LIMITS, hub_long_admission_seconds=SECONDS))
    _, secret = await visitor.token("enrol")
    urls = [(await visitor.register(f"e-{n}", secret)).body["url"] for n in range(AT_ONCE + 6)]
    held[0].answers.clear()
    async with crowd() as dial:
        dialling = [asyncio.create_task(dial(url)) for url in urls]
        refused = [await each for each in islice(asyncio.as_completed(dialling), 6)]
        for status, seconds, again in refused:
            assert status == 503 and SECONDS * 0.9 < seconds < SECONDS + SLACK and again >= 1
        registration = await visitor.register("new", secret)
        assert registration.status == 502
        assert registration.code == "authentication_service_unavailable"
        held[0].answers.set()
        assert {status for status, *_ in await asyncio.gather(*dialling)} == {101, 503}


@requirement("hub/admission:in-the-end")
async def test_nothing_is_done_for_who_has_gone_meanwhile(visit, held):
    visitor = await visit(limits=replace(LIMITS, hub_admissions=1))
    _, secret = await visitor.token("enrol")
    urls = [(await visitor.register(name, secret)).body["url"] for name in ("a", "b", "c")]
    store = held[0]
    store.asked.clear()
    store.is_asked.clear()
    store.answers.clear()
    async with crowd() as first, crowd() as last:
        opening = asyncio.create_task(first(urls[0]))
        await store.is_asked.wait()
        async with crowd() as dial:
            gone = asyncio.create_task(dial(urls[1]))
            await waiting(visitor, 1)
            gone.cancel()
            await asyncio.wait([gone])
        following = asyncio.create_task(last(urls[2]))
        await waiting(visitor, 2)
        store.answers.set()
        assert (await opening)[0] == (await following)[0] == 101
        # Each looks once more when it is served.
        assert set(store.asked) == {"a", "c"}


async def waiting(visitor, count):
    _, observer = await visitor.token("observe")
    async with asyncio.timeout(60):
        while (await served_metrics(visitor, observer))["waiting"] != str(count):
            pass


async def test_a_slow_client_keeps_no_other_from_connecting(visit):
    visitor = await visit(limits=replace(LIMITS, hub_admissions=1))
    host, _, port = visitor.hub.url.removeprefix("http://").rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /cloud/environment/slow/register HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
    )
    await writer.drain()
    assert (await bring_online(visitor)).executor.closed is False
    writer.transport.abort()
