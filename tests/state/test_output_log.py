"""Numbering, retention and paging of a process's output."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.limits import DEFAULT_LIMITS
from exec_server.state.output_log import Chunk, OutputLog
from tests.requirements import requirement

# What happens to a process: output on a stream, or another event that takes a number.
happenings = st.lists(
    st.tuples(st.sampled_from(["stdout", "stderr", None]), st.binary(min_size=1, max_size=9)),
    max_size=40,
)
cursors = st.integers(min_value=0, max_value=50)
page_sizes = st.none() | st.integers(min_value=0, max_value=40)


def log_of(happened, *, max_bytes: int = 1 << 20, max_chunks: int = 1000):
    """A log after *happened*, and every chunk that was ever in it."""
    log = OutputLog(max_bytes=max_bytes, max_chunks=max_chunks)
    said = []
    for stream, data in happened:
        if stream is None:
            log.take_seq()
        else:
            said.append(Chunk(log.append(stream, data), stream, data))
    return log, said


def newest(said: list[Chunk], fits: Callable[[list[Chunk]], bool]) -> list[Chunk]:
    """The longest tail of *said* that fits, found the slow way."""
    return next(said[start:] for start in range(len(said) + 1) if fits(said[start:]))


def size(chunks: list[Chunk]) -> int:
    return sum(len(chunk.data) for chunk in chunks)


@given(happenings)
@requirement("events:numbering")
def test_every_number_is_given_out_once_and_in_order(happened):
    log = OutputLog(max_bytes=5, max_chunks=3)
    numbers = [
        log.take_seq() if stream is None else log.append(stream, data) for stream, data in happened
    ]
    assert numbers == list(range(1, len(happened) + 1))
    assert log.next_seq == len(happened) + 1


@given(happenings, st.integers(0, 60), st.integers(1, 12), cursors)
@requirement("process/read:after-seq", "retention:newest-whole-chunks")
def test_reading_after_any_cursor_skips_nothing_retained(happened, max_bytes, max_chunks, cursor):
    log, said = log_of(happened, max_bytes=max_bytes, max_chunks=max_chunks)
    kept = newest(said, lambda tail: size(tail) <= max_bytes and len(tail) <= max_chunks)
    expected = [chunk for chunk in kept if chunk.seq > cursor]
    assert log.after(cursor).chunks == expected
    assert log.has_after(cursor) == bool(expected)
    assert log.total_bytes == size(said)


@given(happenings, st.integers(0, 60), page_sizes)
@requirement("process/read:continue-at-next-seq")
def test_pages_add_up_to_what_is_retained(happened, max_bytes, page_bytes):
    log, _ = log_of(happened, max_bytes=max_bytes)
    paged: list[Chunk] = []
    cursor = 0
    while chunks := (page := log.after(cursor, max_bytes=page_bytes)).chunks:
        paged += chunks
        cursor = page.next_seq - 1
    assert paged == log.after(0).chunks
    assert page.next_seq == log.next_seq


@given(happenings, cursors, st.integers(0, 40))
@requirement("process/read:max-bytes")
def test_a_page_has_the_first_chunk_and_then_only_what_fits(happened, cursor, page_bytes):
    log, said = log_of(happened)
    chunks = log.after(cursor, max_bytes=page_bytes).chunks
    rest = [chunk for chunk in said if chunk.seq > cursor]
    assert chunks == rest[: len(chunks)]
    assert bool(chunks) == bool(rest)
    # The page ends after reaching the size, before exceeding it, or with the output.
    assert size(chunks[:-1]) < max(page_bytes, 1)
    if len(chunks) > 1:
        assert size(chunks) <= page_bytes
    if len(chunks) < len(rest):
        assert size(rest[: len(chunks) + 1]) > page_bytes or size(chunks) >= page_bytes


@given(happenings, cursors, page_sizes)
@requirement("process/read:next-seq")
def test_next_seq_follows_the_last_chunk_of_a_page_or_the_last_event(happened, cursor, page_bytes):
    log, _ = log_of(happened)
    page = log.after(cursor, max_bytes=page_bytes)
    if page_bytes is not None and page.chunks:
        assert page.next_seq == page.chunks[-1].seq + 1
    else:
        assert page.next_seq == len(happened) + 1


@given(happenings, st.integers(0, 60), cursors)
@requirement("extension/dropped-bytes")
def test_a_gap_after_the_cursor_is_told_with_the_bytes_lost_so_far(happened, max_bytes, cursor):
    log, said = log_of(happened, max_bytes=max_bytes)
    kept = log.after(0).chunks
    lost = said[: len(said) - len(kept)]
    told = log.after(cursor).dropped_bytes
    assert told == (size(lost) if any(chunk.seq > cursor for chunk in lost) else None)


@pytest.mark.parametrize(
    ("cursor", "max_bytes", "seqs", "next_seq"),
    [
        (0, None, [1, 2, 3, 4, 5], 8),
        (5, None, [], 8),
        (1000, None, [], 8),
        (0, 0, [1], 2),
        (0, 1, [1], 2),
        (0, 11, [1], 2),
        (0, 12, [1, 2], 3),
        (0, 30, [1, 2, 3, 4, 5], 6),
        (5, 10, [], 8),
    ],
)
@requirement("process/read:paging-examples")
def test_the_examples_of_the_specification(cursor, max_bytes, seqs, next_seq):
    # There are five chunks of six bytes, then the exit and the close.
    log, _ = log_of([("stdout", b"line %d" % n) for n in range(5)] + [(None, b"")] * 2)
    page = log.after(cursor, max_bytes=max_bytes)
    assert [chunk.seq for chunk in page.chunks] == seqs
    assert page.next_seq == next_seq
    assert page.dropped_bytes is None


@requirement("retention:one-mebibyte")
def test_exactly_a_mebibyte_is_kept_and_one_byte_more_drops_the_first_chunk():
    assert DEFAULT_LIMITS.retained_bytes == 1_048_576
    chunk = bytes(8192)
    log, _ = log_of([("stdout", chunk)] * 128, max_bytes=DEFAULT_LIMITS.retained_bytes)
    assert [c.seq for c in log.after(0).chunks] == list(range(1, 129))
    log.append("stdout", b"x")
    page = log.after(0)
    assert [c.seq for c in page.chunks] == list(range(2, 130))
    assert page.dropped_bytes == 8192


@requirement("retention:fifty-thousand-chunks")
def test_at_most_fifty_thousand_chunks_are_kept():
    assert DEFAULT_LIMITS.retained_chunks == 50_000
    log, _ = log_of([("stdout", b"x")] * 50_001, max_chunks=DEFAULT_LIMITS.retained_chunks)
    chunks = log.after(0).chunks
    assert (len(chunks), chunks[0].seq) == (50_000, 2)
