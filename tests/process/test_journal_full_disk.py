"""A journal on a full disk: the oldest output goes first, and what cannot be written waits."""

from __future__ import annotations

import errno
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.process.journal import Journal
from exec_server.process.journaling import journal_files
from exec_server.process.journaling.journal_format import (
    HEADER_BYTES,
    NOTES,
    SLOT_BYTES,
    EndOfStream,
    Record,
)
from tests.requirements import requirement
from tests.support.tiny_disk import fill, tiny_disk

MANY = 1 << 40
DISK = 512 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with tiny_disk(DISK, tmp_path / "disk") as path:
        yield path


@pytest.fixture(params=["holes", "copies"])
def release(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "copies":
        monkeypatch.setattr(journal_files, "punch_hole", lambda *_: False)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    yield ends
    for fd in ends:
        os.close(fd)


def create(folder: Path) -> Journal:
    return Journal.create(folder, ("stdout", "stderr"), max_bytes=MANY, max_records=MANY)


def reopen(folder: Path) -> Journal:
    return Journal.open(folder, max_bytes=MANY, max_records=MANY)


def output(journal: Journal) -> bytes:
    return b"".join(journal.read(record) for record in journal.records())


def check(journal: Journal, expected: bytes) -> None:
    """What is retained is the end of what was written, and the rest is counted."""
    kept = output(journal)
    assert expected.endswith(kept)
    assert len(kept) + journal.dropped_bytes == len(expected)
    seqs = [record.seq for record in journal.records()]
    assert seqs == list(range(journal.dropped_seq + 1, journal.next_seq))


@requirement("durable:full-disk")
@pytest.mark.usefixtures("release")
def test_the_oldest_output_goes_when_the_disk_is_full(disk, pipe):
    reader, writer = pipe
    journal = create(disk / "job")
    expected = b""
    for number in range(100):
        data = b"%08d" % number * 4096
        os.write(writer, data)
        expected += data
        taken = b""
        # The disk may be full in the middle of what the pipe holds.
        while len(taken) < len(data):
            record = journal.take("stdout", reader, 1 << 16)
            assert record is not None and not journal.is_stalled
            taken += journal.read(record)
        assert taken == data
    check(journal, expected)
    assert journal.dropped_bytes > len(expected) - DISK
    journal.close()
    again = reopen(disk / "job")
    check(again, expected)
    assert again.damage == []
    again.close()


@requirement("durable:full-disk")
@pytest.mark.usefixtures("release")
def test_output_waits_in_the_pipe_while_there_is_nothing_to_drop(disk, pipe):
    reader, writer = pipe
    journal = create(disk / "job")
    filling = fill(disk)
    os.write(writer, b"x" * 10000)
    for _ in range(3):
        assert journal.take("stdout", reader, 1 << 16) is None
        assert journal.is_stalled
        assert journal.stall_reason == os.strerror(errno.ENOSPC)
    assert journal.next_seq == 1
    filling.unlink()
    assert journal.take("stdout", reader, 1 << 16) == Record(1, "stdout", 0, 10000)
    assert not journal.is_stalled
    assert output(journal) == b"x" * 10000
    journal.close()


@requirement("durable:full-disk")
@pytest.mark.usefixtures("release")
def test_text_of_our_own_waits_in_memory(disk):
    journal = create(disk / "job")
    filling = fill(disk)
    assert journal.append("stderr", b"it ended ") is None
    assert journal.is_stalled
    assert journal.append("stderr", b"badly") is None
    filling.unlink()
    assert journal.append("stderr", b".") == Record(1, "stderr", 0, 15)
    assert output(journal) == b"it ended badly."
    journal.close()


@requirement("durable:full-disk")
@pytest.mark.usefixtures("release")
def test_the_end_of_a_job_is_noted_on_a_full_disk(disk):
    journal = create(disk / "job")
    # The last slot of a block is where there would be no room for more.
    for _ in range((4096 - HEADER_BYTES) // SLOT_BYTES - 1):
        journal.append("stdout", b"x")
    before = journal.next_seq
    fill(disk)
    journal.keep_from = 1
    for number, kind in enumerate(NOTES):
        assert journal.note(kind, number) == before + number
    journal.close()
    again = reopen(disk / "job")
    assert [note.value for note in again.notes.values()] == [0, 1, 2]
    assert again.next_seq == before + 3
    assert again.damage == []
    again.close()


@requirement("durable:full-disk")
@pytest.mark.usefixtures("release")
def test_what_a_window_needs_is_not_dropped_for_a_full_disk(disk, pipe):
    reader, writer = pipe
    journal = create(disk / "job")
    journal.keep_from = 1
    expected = b""
    while not journal.is_stalled:
        os.write(writer, b"%08d" % journal.next_seq * 2048)
        expected += b"%08d" % journal.next_seq * 2048
        while journal.take("stdout", reader, 1 << 16) is not None:
            pass
    assert journal.dropped_bytes == 0
    assert expected.startswith(output(journal))
    # The client has acknowledged what it was told.
    journal.keep_from = journal.next_seq
    while journal.take("stdout", reader, 1 << 16) is not None:
        pass
    assert not journal.is_stalled
    check(journal, expected)
    assert 0 < journal.dropped_bytes
    journal.close()


@requirement("durable:full-disk")
@pytest.mark.usefixtures("release")
def test_a_journal_is_opened_on_a_full_disk(disk, pipe):
    journal = create(disk / "job")
    journal.append("stdout", b"told")
    journal.close()
    with (disk / "job" / "stdout").open("ab") as file:
        file.write(b" untold")
    fill(disk)
    again = reopen(disk / "job")
    assert again.damage == []
    assert output(again) == b"told untold"
    again.close()


@requirement("durable:full-disk")
def test_a_limit_of_file_sizes_makes_output_wait(tmp_path, pipe):
    reader, writer = pipe
    journal = create(tmp_path / "job")
    os.write(writer, b"x" * 10000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        assert journal.take("stdout", reader, 1 << 16) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert journal.is_stalled
    assert journal.stall_reason == os.strerror(errno.EFBIG)
    assert journal.take("stdout", reader, 1 << 16) == Record(1, "stdout", 0, 10000)
    journal.close()


# A disk that is full at moments of our choice.


class FullSometimes:
    """Lets calls fail as *outcomes* say: None passes, a number of bytes is a short write."""

    def __init__(self, outcomes: list[int | None]) -> None:
        self._outcomes = outcomes
        self.pwrite = os.pwrite
        self.splice = os.splice

    def _next(self) -> int | None:
        return self._outcomes.pop() if self._outcomes else None

    def on_pwrite(self, fd: int, data: bytes, at: int) -> int:
        allowed = self._next()
        if allowed is None:
            return self.pwrite(fd, data, at)
        if allowed == 0 or not data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.pwrite(fd, data[:allowed], at)

    def on_splice(self, source: int, target: int, count: int, **options: Any) -> int:
        allowed = self._next()
        if allowed == 0:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        return self.splice(source, target, allowed or count, **options)

    def on_splice_refused(self, *_: Any, **__: Any) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def patched(
    full: FullSometimes, patches: pytest.MonkeyPatch, *, splices: bool
) -> Callable[[], None]:
    def begin() -> None:
        patches.setattr(os, "pwrite", full.on_pwrite)
        patches.setattr(os, "splice", full.on_splice if splices else full.on_splice_refused)

    return begin


@requirement("durable:full-disk")
@given(
    outcomes=st.lists(st.one_of(st.none(), st.integers(0, 300))),
    sizes=st.lists(st.integers(1, 5000), max_size=12),
    splices=st.booleans(),
    punches=st.booleans(),
)
def test_whenever_the_disk_is_full_no_byte_is_lost(outcomes, sizes, splices, punches):
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patches:
        if not punches:
            patches.setattr(journal_files, "punch_hole", lambda *_: False)
        reader, writer = os.pipe2(os.O_NONBLOCK)
        journal = create(Path(name) / "job")
        patched(FullSometimes(outcomes), patches, splices=splices)()
        expected = b""
        told: list[int] = []
        for number, size in enumerate(sizes):
            data = bytes([number]) * size
            os.write(writer, data)
            expected += data
            record = journal.take("stdout", reader, 1 << 16)
            if record is not None:
                told.append(record.seq)
                assert journal.read(record)
        os.close(writer)
        while True:
            try:
                record = journal.take("stdout", reader, 1 << 16)
            except EndOfStream:
                break
            if record is not None:
                told.append(record.seq)
        check(journal, expected)
        assert told == list(range(1, journal.next_seq))
        journal.close()
        again = reopen(Path(name) / "job")
        check(again, expected)
        assert again.damage == []
        again.close()
        os.close(reader)
