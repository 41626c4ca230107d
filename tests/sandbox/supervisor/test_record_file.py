"""Records in a file: what was written is read, also if the writer was killed in the middle."""

from __future__ import annotations

import os

import pytest

from exec_server.sandbox.supervisor.record_file import RecordFile, read_records, read_total


@pytest.fixture
def path(tmp_path):
    return tmp_path / "denials"


@pytest.fixture
def written(path):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    yield RecordFile(fd)
    os.close(fd)


def record(number: int, target: bytes = b"/a\xff\n"):
    return (f"d{number}", "write", target, "open", "a rule", True, 1, 7, b"/bin/touch")


def test_records_and_counts_are_read_as_they_were_written(path, written):
    written.add(1, record(1))
    written.add(2, record(2, b"\0abstract"))
    written.count(1, 100_000)
    written.totals(3, 4)
    first, second = (*record(1)[:6], 100_000, *record(1)[7:]), record(2, b"\0abstract")
    assert read_records(path) == ([first, second], 3, 4)


def test_a_record_that_was_not_finished_is_left_out(path, written):
    written.add(1, record(1))
    whole = path.stat().st_size
    written.add(2, record(2))
    for size in (whole + 1, whole + 9, path.stat().st_size - 1):
        os.truncate(path, size)
        assert read_records(path)[0] == [record(1)]
    os.truncate(path, 10)
    assert read_records(path) == ([], 0, 0)


def test_there_are_no_more_records_than_a_list_has(path, written):
    for number in range(1, 300):
        written.add(number, record(number))
    assert len(read_records(path)[0]) == 256


def test_the_total_is_that_of_all_records(path, written):
    assert read_total(path) == 0
    for number in range(1, 300):
        written.add(number, record(number))
    written.count(1, 1000)
    written.totals(43, 9)
    records, unlisted, _ = read_records(path)
    assert read_total(path) == sum(fields[6] for fields in records) + unlisted == 1298
    os.truncate(path, 10)
    assert read_total(path) == 0


def test_a_full_disk_loses_records_and_nothing_else():
    fd = os.open("/dev/full", os.O_RDWR)
    try:
        lost = RecordFile(fd)
        lost.add(1, record(1))
        lost.totals(1, 1)
    finally:
        os.close(fd)
