"""Frames are written as the reference writes them, and only valid ones are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import RelayError
from exec_server.relay import frame as frame_module
from exec_server.relay import relay_pb2 as pb
from exec_server.relay.frame import (
    Ack,
    Data,
    DataEncoder,
    DataHeads,
    Handshake,
    Heartbeat,
    RelayFrame,
    Reset,
    Resume,
    StreamId,
    Trace,
    decode,
    encode,
)
from tests.relay.ends import STREAM, written
from tests.requirements import requirement

UINT32 = st.integers(0, 2**32 - 1)
TEXT = st.text(st.characters(codec="utf-8"))
STREAM_IDS = TEXT.map(lambda text: StreamId(f"s{text}"))
PAYLOADS = st.binary(min_size=1, max_size=300)
BODIES = st.one_of(
    st.builds(Data, UINT32, PAYLOADS),
    st.builds(Handshake, PAYLOADS),
    st.builds(Resume, UINT32),
    st.builds(Reset, TEXT.filter(bool)),
    st.sampled_from([Ack(), Heartbeat()]),
)
FRAMES = st.builds(
    RelayFrame, STREAM_IDS, BODIES, UINT32, UINT32, st.none() | TEXT, st.none() | TEXT
)


def raw(**fields: object) -> bytes:
    given = {"version": 1, "stream_id": "s", **fields}
    return pb.RelayMessageFrame(**given).SerializeToString()  # type: ignore[arg-type]


@given(FRAMES)
def test_a_frame_survives_the_wire(frame):
    assert decode(encode(frame)) == frame


@requirement("relay/frame:bytes")
@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (RelayFrame(STREAM, Resume()), f"08011224{STREAM.encode().hex()}3a00"),
        (
            RelayFrame(StreamId("u1"), Reset("noise_relay_protocol_error")),
            "0801120275 31421c0a1a6e6f6973655f72656c61795f70726f746f636f6c5f6572726f72",
        ),
        (RelayFrame(StreamId("s"), Ack()), "0801120173 3200"),
        (RelayFrame(StreamId("s"), Heartbeat()), "0801120173 4a00"),
        (RelayFrame(StreamId("s"), Data(0, b"x")), "0801120173 2a05 1801 220178"),
    ],
)
def test_bytes_are_those_of_the_reference(frame, expected):
    assert encode(frame) == bytes.fromhex(expected)


@requirement("relay/frame:bytes")
@given(STREAM_IDS, UINT32, st.binary(min_size=1, max_size=70_000), TEXT, st.none() | TEXT)
def test_both_writers_of_data_agree(stream_id, seq, payload, traceparent, tracestate):
    encoder = DataEncoder(stream_id)
    assert written(encoder, seq, payload) == encode(RelayFrame(stream_id, Data(seq, payload)))
    traced = RelayFrame(
        stream_id, Data(seq, payload), traceparent=traceparent, tracestate=tracestate
    )
    assert written(encoder, seq, payload, Trace(traceparent, tracestate)) == encode(traced)


@requirement("relay/frame:bytes")
def test_the_overhead_is_the_measured_one():
    encoder = DataEncoder(STREAM)
    assert len(written(encoder, 0, bytes(123))) == 123 + 46
    assert len(written(encoder, 1, bytes(61456))) == 61508


INVALID = {
    "nothing": b"",
    "no protobuf": b"\xff\xff",
    "version 0": raw(version=0, heartbeat=pb.RelayHeartbeat()),
    "version 2": raw(version=2, heartbeat=pb.RelayHeartbeat()),
    "no stream id": raw(stream_id="", heartbeat=pb.RelayHeartbeat()),
    "blank stream id": raw(stream_id=" \t\u3000", heartbeat=pb.RelayHeartbeat()),
    "no body": raw(),
    "data without a count": raw(data=pb.RelayData(payload=b"x")),
    "data in segments": raw(data=pb.RelayData(segment_count=2, payload=b"x")),
    "a later segment": raw(data=pb.RelayData(segment_index=1, segment_count=1, payload=b"x")),
    "data without a payload": raw(data=pb.RelayData(segment_count=1)),
    "reset without a reason": raw(reset=pb.RelayReset()),
    "handshake without a payload": raw(handshake=pb.RelayHandshake()),
    "a stream id that is no text": b"\x08\x01\x12\x01\xff\x4a\x00",
}


@requirement("relay/frame:validity")
@pytest.mark.parametrize("data", INVALID.values(), ids=INVALID)
def test_an_invalid_frame_is_refused(data):
    with pytest.raises(RelayError):
        decode(data)


@requirement("relay/frame:validity")
@pytest.mark.parametrize("stream_id", ["ü", " s", "a b", "s" * 5000, "\x1c"])
def test_any_stream_id_that_is_not_blank_will_do(stream_id):
    assert decode(raw(stream_id=stream_id, resume=pb.RelayResume())).stream_id == stream_id


@requirement("relay/frame:validity")
@pytest.mark.parametrize("body", [Data(0, b""), Handshake(b""), Reset(""), Data(0, b"x", 1, 1)])
def test_an_invalid_frame_is_not_written(body):
    with pytest.raises(RelayError):
        encode(RelayFrame(STREAM, body))


@requirement("relay/plaintext:segments")
def test_segments_are_valid_where_they_are_asked_for():
    frame = RelayFrame(STREAM, Data(7, b"x", 1, 3))
    assert decode(encode(frame), segmented=True) == frame
    with pytest.raises(RelayError):
        decode(encode(frame))


@requirement("relay/frame:unknown-fields")
def test_unknown_fields_are_skipped_and_the_last_body_wins():
    unknown = b"\xaa\x06\x03abc"
    two_bodies = raw(reset=pb.RelayReset(reason="x")) + raw(heartbeat=pb.RelayHeartbeat())
    assert decode(two_bodies + unknown) == RelayFrame(StreamId("s"), Heartbeat())


@requirement("relay/frame:validity")
@given(st.binary(max_size=200) | FRAMES.map(encode).map(lambda data: data[:-1]))
def test_arbitrary_bytes_are_a_valid_frame_or_refused(data):
    try:
        frame = decode(data)
    except RelayError:
        return
    assert decode(encode(frame)) == frame


def outcome(data: bytes) -> RelayFrame | None:
    try:
        return decode(data)
    except RelayError:
        return None


@requirement("relay/frame:validity")
@given(frame=FRAMES, at=st.integers(0, 40), change=st.binary(max_size=3), cut=st.integers(0, 3))
def test_the_short_way_to_read_data_agrees_with_protobuf(frame, at, change, cut):
    data = encode(frame)
    spoilt = data[:at] + change + data[at + len(change) :]
    for each in (data, spoilt, data[:at] + data[at + cut :], data[: len(data) - cut]):
        found = outcome(each)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(frame_module, "_read_plain_data", lambda _data: None)
            assert outcome(each) == found


@requirement("relay/frame:validity")
@given(stream_id=STREAM_IDS, seq=UINT32, payload=PAYLOADS)
def test_plain_data_takes_the_short_way(stream_id, seq, payload):
    data = written(DataEncoder(stream_id), seq, payload)
    found = frame_module._read_plain_data(data)
    is_short = len(stream_id.encode()) < 128
    assert found == (RelayFrame(stream_id, Data(seq, payload)) if is_short else None)


@requirement("relay/frame:validity")
@given(
    stream_id=STREAM_IDS,
    seq=UINT32 | st.integers(0, 20_000),
    size=st.sampled_from([1, 0x3FFF, 0x4000, 61_456, 70_000, 250_000]),
    trace=st.none() | TEXT,
)
def test_a_large_frame_in_its_turn_is_compared_and_not_read(stream_id, seq, size, trace):
    data = encode(RelayFrame(stream_id, Data(seq, bytes(size)), traceparent=trace))
    found = DataHeads(stream_id).payload(memoryview(data), seq)
    is_plain = size >= 0x4000 and trace is None
    assert found == (bytes(size) if is_plain else None)
    assert DataHeads(stream_id).payload(data, seq ^ 1) is None
    assert DataHeads(StreamId(stream_id + "x")).payload(data, seq) is None


@requirement("relay/frame:validity")
@given(at=st.integers(0, 60), value=st.integers(0, 255), tail=st.binary(max_size=3))
def test_what_is_compared_means_what_it_is_read_as(at, value, tail):
    data = bytearray(encode(RelayFrame(STREAM, Data(300, b"p" * 20_000))) + tail)
    data[at] = value
    payload = DataHeads(STREAM).payload(memoryview(data), 300)
    if payload is not None:
        assert decode(bytes(data)) == RelayFrame(STREAM, Data(300, bytes(payload)))
