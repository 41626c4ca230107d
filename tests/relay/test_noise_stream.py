"""Two ends of a stream, and everything that can happen to the frames between them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import RelayError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.relay.effects import Send, StreamClosed
from exec_server.relay.frame import SEQ_END, Data, RelayFrame, Reset, Trace, decode, encode
from exec_server.relay.mux import RESET_REASON
from exec_server.relay.noise import Channel
from exec_server.relay.noise_stream import NoiseStream
from exec_server.relay.records import RECORD_BYTES
from tests.relay.ends import STREAM, frame, messages, only, pair, sent, to_mux
from tests.requirements import requirement

FORTH, BACK = bytes([1]) * 32, bytes([2]) * 32
# The limits are so small that hypothesis reaches all of them.
TIGHT = Limits(relay_reorder_frames=6, relay_reorder_bytes=200, message_bytes=300)


def ends(limits: Limits = DEFAULT_LIMITS) -> tuple[NoiseStream, NoiseStream]:
    here, there = Channel(FORTH, BACK, b""), Channel(BACK, FORTH, b"")
    return NoiseStream(STREAM, here, limits=limits), NoiseStream(STREAM, there, limits=limits)


def data_of(frame: bytes | memoryview) -> Data:
    body = decode(frame).body
    assert isinstance(body, Data)
    return body


MESSAGES = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=10)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[list[bytes], list[Data]]:
    """Messages, and their frames, some of them lost, repeated or moved."""
    messages = draw(MESSAGES)
    sender, _ = ends()
    frames = [data_of(each.data) for message in messages for each in sender.send(message)]
    arrived = draw(st.lists(st.sampled_from(frames), max_size=20) | st.permutations(frames))
    for at in draw(st.lists(st.integers(0, max(len(arrived) - 1, 0)), max_size=2)):
        if arrived:
            arrived[at] = draw(tampered(arrived[at]))
    return messages, arrived


@st.composite
def tampered(draw: st.DrawFn, data: Data) -> Data:
    payload = bytearray(data.payload)
    kind = draw(st.sampled_from(["flip", "cut", "extend", "renumber", "replace"]))
    if kind == "flip":
        payload[draw(st.integers(0, len(payload) - 1))] ^= draw(st.integers(1, 255))
    elif kind == "cut":
        del payload[draw(st.integers(1, len(payload))) :]
    elif kind == "extend":
        payload += draw(st.binary(min_size=1, max_size=20))
    elif kind == "replace":
        payload[:] = draw(st.binary(min_size=1, max_size=100))
    seq = draw(st.integers(0, 12)) if kind == "renumber" else data.seq
    return Data(seq, bytes(payload))


@requirement("relay/stream:damage")
@given(damaged())
def test_whatever_happens_to_frames_only_what_was_sent_comes_out(journey):
    expected, frames = journey
    _, receiver = ends(TIGHT)
    out: list[bytes] = []
    for data in frames:
        try:
            out += receiver.receive(data)
        except RelayError:
            break
        assert receiver._reorder.held_bytes <= TIGHT.relay_reorder_bytes
        assert receiver._assembler.held_bytes <= TIGHT.message_bytes + 4
    assert out == expected[: len(out)]


@requirement("relay/stream:damage")
@given(MESSAGES, st.randoms(use_true_random=False))
def test_repeats_and_another_order_change_nothing(expected, random):
    sender, receiver = ends()
    frames = [data_of(each.data) for message in expected for each in sender.send(message)] * 2
    random.shuffle(frames)
    assert [message for data in frames for message in receiver.receive(data)] == expected


@requirement("relay/records:split")
def test_a_large_message_travels_in_full_records():
    sender, receiver = ends()
    message = bytes(range(256)) * 1000
    frames = [data_of(each.data) for each in sender.send(message[:1000], message[1000:])]
    assert [len(data.payload) for data in frames[:-1]] == [RECORD_BYTES + 16] * 4
    assert [data.seq for data in frames] == [0, 1, 2, 3, 4]
    assert [list(receiver.receive(data)) for data in frames] == [[], [], [], [], [message]]


@requirement("relay/records:any-borders")
def test_who_reads_may_join_the_pieces_of_long_messages():
    sender, receiver = ends()
    receiver.join_with(list)
    out: list[Any] = []
    for message in (b"short", bytes(150_000), b"x"):
        for each in sender.send(message):
            out += receiver.receive(data_of(each.data))
    assert out[0] == b"short" and out[2] == b"x"
    assert [len(piece) for piece in out[1]] == [RECORD_BYTES - 4, RECORD_BYTES, 27_124]


@requirement("relay/stream:damage")
@given(st.randoms(use_true_random=False), st.sampled_from([1, 40]))
def test_large_frames_in_their_turn_and_out_of_it_give_the_same(random, window):
    expected = [bytes([number]) * size for number, size in enumerate([5, 300_000, 1, 20_000] * 3)]
    sender, receiver = ends()
    frames = [each.data for message in expected for each in sender.send(message)]
    arrived: list[bytes] = []
    for start in range(0, len(frames), window):
        part = frames[start : start + window] * 2
        random.shuffle(part)
        arrived += part
    out: list[bytes] = []
    for data in arrived:
        messages = receiver.receive_next(data)
        out += receiver.receive(data_of(data)) if messages is None else messages
    assert out == expected


@requirement("relay/stream:damage")
@pytest.mark.parametrize("at", [-1, -20_000, 60, 0])
def test_a_large_frame_that_was_changed_is_not_delivered(at):
    sender, receiver = ends()
    (whole,) = sender.send(b"m" * 30_000)
    data = bytearray(whole.data)
    data[at] ^= 1
    if at == 0:
        # The head is another one, so it is not read here.
        assert receiver.receive_next(bytes(data)) is None
    else:
        with pytest.raises(RelayError):
            receiver.receive_next(bytes(data))


@requirement("relay/stream:damage")
@pytest.mark.parametrize("size", [1, 15, 65_536])
def test_a_record_that_cannot_be_one_is_refused(size):
    _, receiver = ends()
    with pytest.raises(RelayError):
        receiver.receive(Data(0, bytes(size)))


@requirement("relay/records:limits")
def test_a_record_with_more_plaintext_than_allowed_is_refused():
    channel = Channel(FORTH, BACK, b"")
    for size, is_allowed in ((RECORD_BYTES, True), (RECORD_BYTES + 1, False)):
        _, receiver = ends()
        channel.sealer.next_seq = 0
        record = channel.sealer.seal((2**20).to_bytes(4, "big") + bytes(size - 4))
        if is_allowed:
            assert receiver.receive(Data(0, record)) == []
        else:
            with pytest.raises(RelayError):
                receiver.receive(Data(0, record))


def test_an_empty_record_is_fine():
    channel = Channel(FORTH, BACK, b"")
    _, receiver = ends()
    assert receiver.receive(Data(0, channel.sealer.seal(b""))) == []
    assert receiver.receive(Data(1, channel.sealer.seal(b"\0\0\0\x01x"))) == [b"x"]


@requirement("relay/trace:copied")
def test_the_first_frame_alone_shows_the_trace():
    sender, _ = ends()
    frames = [decode(f.data) for f in sender.send(bytes(100_000), trace=Trace("00-a-b-01", "k=v"))]
    assert [(f.traceparent, f.tracestate) for f in frames] == [("00-a-b-01", "k=v"), (None, None)]


@requirement("relay/stream:end-of-numbers")
def test_a_stream_is_reset_when_its_numbers_run_out():
    mux, harness = pair()
    mux._open[STREAM]._sealer.next_seq = SEQ_END
    reset, closed = mux.send(STREAM, b"one more")
    assert isinstance(reset, Send) and decode(reset.data).body == Reset(RESET_REASON)
    assert isinstance(closed, StreamClosed)
    with pytest.raises(RelayError):
        harness.receive(reset.data)


@given(MESSAGES)
def test_messages_travel_both_ways(expected):
    mux, harness = pair()
    for message in expected:
        assert messages(to_mux(mux, harness.send(message))) == [message]
        frames = only(mux.send(STREAM, message), Send)
        assert [m for f in frames for m in messages(harness.receive(f.data))] == [message]


@requirement("relay/stream:damage")
def test_a_bad_record_resets_its_stream_alone():
    mux, harness = pair()
    (good,) = sent(harness.send(b"hello"))
    assert isinstance(good.body, Data)
    bad = encode(RelayFrame(STREAM, Data(0, bytes(good.body.payload)[:-1] + b"x")))
    effects = mux.receive(bad, now=0)
    assert [f.body for f in sent(effects)] == [Reset(RESET_REASON)]
    assert only(effects, StreamClosed) and mux.open_streams == 0
    assert [f.body for f in sent(mux.receive(frame(good.body), now=0))] == [Reset(RESET_REASON)]


@requirement("relay/stream:damage")
@given(MESSAGES, st.randoms(use_true_random=False))
def test_a_buffer_that_is_used_again_spoils_nothing(expected, random):
    sender, receiver = ends()
    frames = [each.data for message in expected for each in sender.send(message)]
    random.shuffle(frames)
    found: list[bytes] = []
    for each in frames:
        buffer = bytearray(each)
        found += receiver.receive(data_of(memoryview(buffer)))
        buffer[:] = bytes(len(buffer))
    assert found == expected
