"""Audit events are kept, even if the store fails meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from exec_server.audit.audit_file import AuditLines
from exec_server.hub.observe import audit as audit_module
from exec_server.hub.observe.audit import Audit
from exec_server.hub.store import StoreUnavailable
from exec_server.hub.store.open_store import open_store
from exec_server.limits import DEFAULT_LIMITS
from tests.requirements import requirement

LIMITS = replace(DEFAULT_LIMITS, hub_store_timeout=0.2, hub_audit_waiting=100)


class Shelf:
    """The part of a store that takes events. The test makes it unavailable or broken."""

    def __init__(self):
        self.kept = []
        self.failure = None
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()

    async def add_events(self, events):
        self.asked.set()
        await self.answers.wait()
        if self.failure is not None:
            raise self.failure
        self.kept += events

    @property
    def names(self):
        return [event.name for event in self.kept]


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    monkeypatch.setattr(audit_module, "_PAUSE_SECONDS", 0.01)


@pytest.fixture
def shelf():
    return Shelf()


def make(store, *, lines=None, **limits):
    return Audit(store, limits=replace(LIMITS, **limits), clock=lambda: 1.0, lines=lines)


async def note_all(audit, numbers):
    """Note events, which must not wait for the store."""
    for number in numbers:
        noting = audit.note(str(number))
        # It ends at its first step, so it has waited for nothing.
        with pytest.raises(StopIteration):
            noting.send(None)


def names_of(numbers):
    return [str(number) for number in numbers]


async def test_what_is_noted_is_kept_once_it_is_settled(shelf, no_leaks):
    audit = make(shelf)
    async with audit.kept():
        await audit.settled()
        for number in range(3):
            await note_all(audit, [number])
            await audit.settled()
            assert shelf.names == names_of(range(number + 1))


@requirement("hub/audit:outage")
async def test_events_of_an_outage_are_kept_in_order_afterwards(shelf, no_leaks):
    audit = make(shelf)
    shelf.failure = StoreUnavailable("away")
    async with audit.kept():
        await note_all(audit, range(20))
        # The store is away, so no call waits for it.
        await audit.settled()
        await note_all(audit, range(20, 40))
        assert shelf.kept == []
        shelf.failure = None
        await note_all(audit, range(40, 60))
    assert shelf.names == names_of(range(60))


@requirement("hub/audit:outage")
async def test_no_call_waits_for_a_store_that_does_not_answer(shelf, no_leaks, caplog):
    audit = make(shelf)
    shelf.answers.clear()
    async with asyncio.timeout(30), audit.kept():
        await note_all(audit, range(3))
        await shelf.asked.wait()
        await note_all(audit, range(3, 6))
        await audit.settled()
    assert "6 events could not be kept" in caplog.text


@requirement("hub/audit:outage")
async def test_of_too_many_events_the_oldest_are_given_up_and_counted(shelf, no_leaks, caplog):
    audit = make(shelf, hub_audit_waiting=5)
    shelf.answers.clear()
    async with audit.kept():
        await note_all(audit, ["first"])
        await shelf.asked.wait()
        await note_all(audit, range(12))
        shelf.answers.set()
    # The event that reports them displaces no other one.
    assert shelf.names == ["first", *names_of(range(7, 12)), "events lost"]
    assert shelf.kept[-1].detail == "7"
    assert "7 events were lost" in caplog.text


@requirement("hub/audit:outage")
async def test_events_that_cannot_be_kept_hold_up_no_others(shelf, no_leaks):
    audit = make(shelf)
    shelf.failure = ValueError("never")
    async with audit.kept():
        for number in range(3):
            await note_all(audit, [number])
            await audit.settled()
        shelf.failure = None
        await note_all(audit, ["good"])
    assert shelf.names == ["good", "events lost"]
    assert shelf.kept[-1].detail == "3"


async def test_lines_are_written_at_once_and_a_full_disk_is_told_of_once(
    shelf, no_leaks, caplog, tmp_path, monkeypatch
):
    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    path = tmp_path / "audit.log"
    lines = AuditLines(str(path))
    audit = make(shelf, lines=lines)
    shelf.failure = StoreUnavailable("away")
    async with audit.kept():
        await audit.note("one")
        assert path.read_bytes().count(b"\n") == 1
        monkeypatch.setattr("os.write", full)
        await audit.note("two")
        await audit.note("three")
        monkeypatch.undo()
        shelf.failure = None
    lines.close()
    assert shelf.names == ["one", "two", "three"]
    assert caplog.text.count("No space left on device") == 1


@requirement("hub/audit:outage")
@pytest.mark.one_loop
async def test_a_killed_database_loses_no_event(mortal_postgres):
    limits = replace(DEFAULT_LIMITS, hub_store_timeout=2.0)
    store = await open_store(mortal_postgres.create_database(), limits=limits)
    audit = make(store, hub_store_timeout=10.0, hub_audit_waiting=10_000)
    async with audit.kept():
        await note_all(audit, range(10))
        await audit.settled()
        mortal_postgres.kill()
        await note_all(audit, range(10, 20))
        await audit.settled()
        await note_all(audit, range(20, 1500))
        mortal_postgres.start()
    found = [event.name for event in await store.events(limit=2000)]
    assert found[::-1] == names_of(range(1500))
    await store.close()
