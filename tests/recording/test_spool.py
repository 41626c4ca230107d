"""The spool: what is read is what was appended, however it is cut, and memory is given back."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exec_server.recording.cast_format import CastHeader
from exec_server.recording.cast_writer import CastWriter
from exec_server.recording.open_casts import OpenCasts
from exec_server.recording.recording_files import RecordingFiles
from exec_server.recording.spool import Spool, SpoolFrame, SpoolReader
from exec_server.recording.writer_messages import BeginCast, EndCast, encode_event
from tests.requirements import requirement
from tests.support.casts import output

Told = tuple[int, float | None, bytes]

FRAMES = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.none() | st.floats(0, 1e6),
        st.binary(max_size=300),
        # True if a new segment begins before it.
        st.booleans(),
    ),
    max_size=30,
)


def append(spool: Spool, frame: Told) -> None:
    terminal, time, data = frame
    if time is None:
        spool.append_event(terminal, data)
    else:
        spool.append_output(terminal, time, data)


def read_all(reader: SpoolReader, most: int) -> list[Told]:
    found: list[SpoolFrame] = []
    while frames := reader.read(most):
        found += frames
    return [(frame.terminal, frame.time, bytes(frame.data)) for frame in found]


def reader_of(spool: Spool) -> SpoolReader:
    """A reader of everything that is not confirmed."""
    reader = SpoolReader(offset=spool.confirmed_offset)
    for segment in spool.segments:
        reader.add(os.dup(segment.fd))
    return reader


@requirement("recording:spool")
@settings(max_examples=60, deadline=None)
@given(frames=FRAMES, most=st.integers(16, 1000), stop=st.integers(0, 10))
def test_what_is_appended_is_read_in_any_blocks_and_by_the_next_reader(frames, most, stop):
    spool = Spool()
    for *frame, is_next in frames:
        if is_next or spool.needs_segment:
            spool.extend()
        append(spool, tuple(frame))
    expected = [tuple(frame) for *frame, _ in frames]
    with closing(reader_of(spool)) as reader:
        first: list[Told] = []
        for _ in range(stop):
            first += [(each[0], each[1], bytes(each[2])) for each in reader.read(most)]
        spool.confirm(reader.count)
    with closing(reader_of(spool)) as reader:
        assert first + read_all(reader, most) == expected
        spool.confirm(spool.confirmed + reader.count)
    assert not spool.waiting
    spool.clear()
    assert not spool.segments


@requirement("recording:spool")
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 20])
def test_output_that_was_cut_is_read_as_far_as_it_is_there(size):
    spool = Spool()
    spool.extend()
    append(spool, (1, 0.0, b"whole"))
    whole = spool.end
    append(spool, (1, 1.0, b"only a part"))
    os.ftruncate(spool.segments[0].fd, whole + size)
    with closing(reader_of(spool)) as reader:
        assert read_all(reader, 1000) == [(1, 0.0, b"whole")]
        rest = [bytes(frame.data) for frame in reader.rest()]
    assert b"".join(rest) == b"only a part"[: max(0, size - 16)]
    spool.clear()


@requirement("recording:spool")
def test_segments_that_were_read_are_given_back():
    spool = Spool()
    for _ in range(3):
        spool.extend()
        append(spool, (1, 0.0, b"x" * 100_000))
    assert not spool.confirm(150_000)
    assert len(spool.segments) == 2
    # The last one takes more, until another segment should take over.
    assert spool.confirm(spool.end)
    assert len(spool.segments) == 1
    spool.extend()
    assert not spool.confirm(spool.end)
    assert len(spool.segments) == 1
    assert os.fstat(spool.segments[0].fd).st_size == 0
    spool.clear()


def begin(name: str, header: CastHeader) -> list[SpoolFrame]:
    events = (BeginCast(name, header, ()), EndCast(1.0, 0))
    first, last = (SpoolFrame(1, None, memoryview(encode_event(each))) for each in events)
    return [first, SpoolFrame(1, 0.5, memoryview(b"text")), last]


@requirement("recording:writer")
def test_a_recording_that_an_earlier_writer_began_is_made_anew(tmp_path: Path):
    frames = begin("20260101T000000-sh", CastHeader(command="sh"))
    for is_again in (False, True, True):
        casts = OpenCasts(RecordingFiles(tmp_path))
        casts.take(frames, is_again=is_again)
    (path,) = tmp_path.iterdir()
    assert output(path) == "text"


@requirement("recording:writer")
def test_a_recording_of_another_program_is_not_replaced(tmp_path: Path):
    other = tmp_path / "20260101T000000-sh.cast"
    CastWriter(other, CastHeader(command="other")).close(0.0)
    content = other.read_bytes()
    for is_again in (False, True):
        casts = OpenCasts(RecordingFiles(tmp_path))
        casts.take(begin("20260101T000000-sh", CastHeader(command="sh")), is_again=is_again)
        answer = casts.tell(0, is_idle=True)
        assert answer.paths == {1: str(tmp_path / "20260101T000000-sh-2.cast")}
        assert answer.ended == [1] and not answer.failures
    assert other.read_bytes() == content
    assert len(list(tmp_path.iterdir())) == 2
