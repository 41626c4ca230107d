"""We route by the id that the reader of a frame will see, or refuse the frame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import RelayError
from exec_server.hub.relay.stream_ids import stream_id_of
from exec_server.relay.frame import (
    Data,
    Handshake,
    Heartbeat,
    RelayFrame,
    Reset,
    Resume,
    StreamId,
    decode,
    encode,
)
from tests.requirements import requirement

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200).filter(
    str.strip
)
bodies = st.one_of(
    st.builds(Data, seq=st.integers(0, 2**32 - 1), payload=st.binary(min_size=1, max_size=300)),
    st.builds(Handshake, payload=st.binary(min_size=1)),
    st.builds(Reset, reason=texts),
    st.just(Resume()),
    st.just(Heartbeat()),
)
frames = st.builds(
    RelayFrame,
    stream_id=texts.map(StreamId),
    body=bodies,
    ack=st.integers(0, 2**32 - 1),
    traceparent=st.none() | texts,
)


def found(data: bytes) -> bytes:
    return stream_id_of(data, limit=1024)


@requirement("hub/route:by-stream-id")
@given(frame=frames)
def test_the_id_of_every_frame_is_found(frame):
    assert found(encode(frame)) == frame.stream_id.encode()


@requirement("hub/route:one-id")
@given(frame=frames, position=st.integers(0, 400), junk=st.binary(max_size=40))
def test_what_is_found_is_what_the_reader_sees(frame, position, junk):
    data = encode(frame)
    data = data[:position] + junk + data[position:]
    try:
        routed, read = found(data), decode(data, segmented=True).stream_id
    except RelayError:
        return
    assert routed == read.encode()


@requirement("hub/route:one-id")
@pytest.mark.parametrize("tag", [b"\x12", b"\x92\x00", b"\x92\x80\x00"])
def test_a_second_id_is_refused_however_it_is_spelled(tag):
    data = encode(RelayFrame(StreamId("mine"), Resume()))
    with pytest.raises(RelayError):
        found(data + tag + b"\x05yours")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x08\x01",
        b"\x08\x01\x12",
        b"\x08\x01\x12\x05abc",
        b"\x08\x01\x12\x00",
        b"\x08\x01\x10\x05",
        b"\x08\x01\x12\x01a\x0b",
        b"\x08\x01\x12\x01a\x2a\x7f",
        b"\xff" * 20,
    ],
)
def test_what_is_no_frame_is_refused(data):
    with pytest.raises(RelayError):
        found(data)


@given(data=st.binary(max_size=200))
def test_nothing_but_a_relay_error_is_raised(data):
    try:
        assert found(data)
    except RelayError:
        pass


def test_an_id_beyond_the_limit_is_refused():
    data = encode(RelayFrame(StreamId("x" * 1025), Resume()))
    with pytest.raises(RelayError):
        found(data)
