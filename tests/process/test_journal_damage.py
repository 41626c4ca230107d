"""A journal that was cut off or overwritten: the damage is reported, and the rest is served."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.process.journal import Journal
from exec_server.process.journaling.journal_format import HEADER_BYTES, HEADERS, SLOT_BYTES
from tests.requirements import requirement

MANY = 1 << 40
PIPES = ("stdout", "stderr")
TEXTS = [b"one", b"two two", b"three three three", b"four", b"five five"]


def reopen(folder: Path) -> Journal:
    return Journal.open(folder, max_bytes=MANY, max_records=MANY)


def written(folder: Path) -> Path:
    """A journal with five pieces of output, in turns, and an exit."""
    journal = Journal.create(folder, PIPES, max_bytes=MANY, max_records=MANY)
    for number, text in enumerate(TEXTS):
        journal.append(PIPES[number % 2], text)
    journal.note("exited", 3)
    journal.close()
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "job")


def served(journal: Journal) -> dict[int, bytes]:
    return {
        record.seq: journal.read(record) for record in journal.records() if record.kind in PIPES
    }


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def slot(seq: int) -> int:
    return HEADER_BYTES + (seq - 1) * SLOT_BYTES


def counted(journal: Journal) -> int:
    """Every byte is served or counted as dropped."""
    return sum(map(len, served(journal).values())) + journal.dropped_bytes


def goes_on(journal: Journal, folder: Path) -> None:
    """The journal can be written, and is whole when it is opened again."""
    before = served(journal)
    record = journal.append("stdout", b"more")
    assert record is not None and record.seq not in before
    expected = {**before, record.seq: b"more"}
    assert served(journal) == expected
    journal.close()
    again = reopen(folder)
    assert again.damage == []
    assert served(again) == expected
    assert again.next_seq == record.seq + 1
    again.close()


@requirement("durable:damage")
def test_a_record_that_cannot_be_read_is_reported_and_the_rest_is_served(folder):
    overwrite(folder / "index", slot(3) + 20, b"?")
    journal = reopen(folder)
    assert served(journal) == {1: TEXTS[0], 2: TEXTS[1], 4: TEXTS[3], 5: TEXTS[4]}
    ((path, at, reason),) = journal.damage
    assert (path, at) == (str(folder / "index"), slot(3))
    assert reason == "the records 3 to 3 cannot be read"
    assert journal.dropped_bytes == len(TEXTS[2])
    assert journal.next_seq == 7
    # A bound that drops the gap does not count it twice.
    journal.trim(len(TEXTS[4]))
    assert counted(journal) == sum(map(len, TEXTS))
    goes_on(journal, folder)


@requirement("durable:damage")
def test_bytes_of_a_last_record_that_cannot_be_read_get_a_new_number(tmp_path):
    journal = Journal.create(tmp_path / "job", PIPES, max_bytes=MANY, max_records=MANY)
    for text in TEXTS:
        journal.append("stdout", text)
    journal.close()
    overwrite(tmp_path / "job" / "index", slot(4), bytes(range(2 * SLOT_BYTES)))
    again = reopen(tmp_path / "job")
    expected = {1: TEXTS[0], 2: TEXTS[1], 3: TEXTS[2], 6: TEXTS[3] + TEXTS[4]}
    assert served(again) == expected
    assert [damage.reason for damage in again.damage] == ["the records 4 to 5 cannot be read"]
    assert again.dropped_bytes == 0
    goes_on(again, tmp_path / "job")


@requirement("durable:damage")
@pytest.mark.parametrize("extra", [1, SLOT_BYTES - 1])
def test_half_a_record_is_reported_and_cut(folder, extra):
    with (folder / "index").open("r+b") as file:
        file.truncate(slot(7))
        file.seek(slot(7))
        file.write(b"?" * extra)
    journal = reopen(folder)
    assert journal.damage[0] == (str(folder / "index"), slot(7), "half a record")
    assert list(served(journal).values()) == TEXTS
    assert journal.notes["exited"].value == 3
    goes_on(journal, folder)


@requirement("durable:damage")
def test_an_index_that_was_cut_off_is_reported(folder):
    os.truncate(folder / "index", slot(4))
    journal = reopen(folder)
    assert "the file was cut off here" in [damage.reason for damage in journal.damage]
    assert b"".join(served(journal).values()).startswith(b"".join(TEXTS[:3]))
    assert counted(journal) == sum(map(len, TEXTS))
    # The exit was noted in the header as well, and its number is not given out again.
    assert journal.notes["exited"] == (6, "exited", 3, 0)
    assert set(served(journal)) == {1, 2, 3, 7, 8}
    goes_on(journal, folder)


@requirement("durable:damage")
@pytest.mark.parametrize("what", ["overwritten", "cut", "empty", "missing"])
def test_without_a_header_the_slots_are_enough(folder, what):
    index = folder / "index"
    if what == "overwritten":
        for at in HEADERS:
            overwrite(index, at + 9, b"????")
    elif what == "cut":
        os.truncate(index, 50)
    elif what == "empty":
        os.truncate(index, 0)
    else:
        index.unlink()
    journal = reopen(folder)
    assert journal.damage[0].path == str(index)
    if what == "overwritten":
        assert served(journal) == dict(enumerate(TEXTS, 1))
        assert journal.notes["exited"].seq == 6
    else:
        assert sorted(served(journal).values()) == sorted(
            [b"".join(TEXTS[0::2]), b"".join(TEXTS[1::2])]
        )
    goes_on(journal, folder)


@requirement("durable:damage")
@pytest.mark.parametrize("at", HEADERS)
def test_one_header_is_enough(folder, at):
    overwrite(folder / "index", at, b"????")
    journal = reopen(folder)
    assert served(journal) == dict(enumerate(TEXTS, 1))
    assert journal.notes["exited"] == (6, "exited", 3, 0)
    assert journal.damage == []
    goes_on(journal, folder)


@requirement("durable:damage")
def test_a_damaged_index_of_a_silent_job_is_reported(tmp_path):
    """It is not mistaken for a journal that was never completed."""
    folder = tmp_path / "silent"
    journal = Journal.create(folder, PIPES, max_bytes=MANY, max_records=MANY)
    journal.note("exited", 3)
    journal.close()
    os.truncate(folder / "index", 300)
    again = Journal.open(folder, max_bytes=MANY, max_records=MANY, streams=PIPES)
    assert again.damage
    assert again.notes["exited"] == (1, "exited", 3, 0)
    assert again.note("closed") == 2
    again.close()


@requirement("durable:damage")
def test_without_a_header_it_is_known_what_was_dropped(folder):
    journal = reopen(folder)
    journal.trim(len(TEXTS[3]) + len(TEXTS[4]))
    for _ in range(200):
        journal.append("stdout", b"more")
    journal.trim(400)
    dropped, first = journal.dropped_bytes, journal.dropped_seq
    expected = served(journal)
    journal.close()
    for at in HEADERS:
        overwrite(folder / "index", at, b"?")
    again = reopen(folder)
    assert (again.dropped_bytes, again.dropped_seq) == (dropped, first)
    assert served(again) == expected
    goes_on(again, folder)


@requirement("durable:damage")
def test_bytes_that_are_missing_are_counted_and_never_read_as_zeros(folder):
    # The third record loses its end, the fifth all of it.
    os.truncate(folder / "stdout", 8)
    journal = reopen(folder)
    assert journal.damage == [(str(folder / "stdout"), 8, "21 bytes are missing")]
    assert served(journal) == {1: b"one", 2: TEXTS[1], 3: b"three", 4: TEXTS[3]}
    assert journal.dropped_bytes == 21
    assert counted(journal) == sum(map(len, TEXTS))
    goes_on(journal, folder)


@requirement("durable:damage")
def test_a_stream_whose_file_is_missing_is_counted_as_dropped(folder):
    (folder / "stderr").unlink()
    journal = reopen(folder)
    assert journal.damage[0] == (str(folder / "stderr"), 0, "the file is missing")
    assert served(journal) == {1: TEXTS[0], 3: TEXTS[2], 5: TEXTS[4]}
    assert counted(journal) == sum(map(len, TEXTS))
    goes_on(journal, folder)


@requirement("durable:damage")
def test_damage_that_comes_while_the_journal_is_open_is_reported_when_it_is_read(folder):
    journal = reopen(folder)
    assert journal.damage == []
    overwrite(folder / "index", slot(2), b"????")
    assert sorted(served(journal)) == [1, 3, 4, 5]
    assert len(journal.damage) == 1
    assert sorted(served(journal)) == [1, 3, 4, 5]
    assert len(journal.damage) == 1
    goes_on(journal, folder)


@requirement("durable:damage")
@given(
    name=st.sampled_from(["index", "stdout", "stderr"]),
    at=st.integers(0, 1000),
    data=st.one_of(st.none(), st.binary(max_size=200)),
)
def test_whatever_happened_to_a_file_the_rest_is_served(name, at, data):
    """A file is cut off, or something else is written into it or behind it."""
    with tempfile.TemporaryDirectory() as place:
        folder = written(Path(place) / "job")
        at = min(at, (folder / name).stat().st_size)
        if data is None:
            os.truncate(folder / name, at)
        else:
            overwrite(folder / name, at, data)
        journal = reopen(folder)
        texts = dict(enumerate(TEXTS, 1))
        found = served(journal)
        if name == "index":
            # No byte is served twice, and all bytes are served or counted.
            whole = b"".join(sorted(found.values()))
            assert len(whole) + journal.dropped_bytes == sum(map(len, TEXTS))
            for seq, text in texts.items():
                if seq in found and not journal.damage:
                    assert found[seq] == text
        else:
            assert found.keys() >= {seq for seq in texts if PIPES[(seq - 1) % 2] != name}
        journal.close()
        again = reopen(folder)
        assert served(again) == found
        goes_on(again, folder)
