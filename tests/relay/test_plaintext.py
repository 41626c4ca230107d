"""The older relay: messages as they are, in the order of their arrival."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import RelayError
from exec_server.limits import Limits
from exec_server.relay.effects import Effect, Message, Send, StreamClosed, StreamOpened
from exec_server.relay.frame import (
    SEQ_END,
    Ack,
    Data,
    Handshake,
    Heartbeat,
    RelayFrame,
    Reset,
    Resume,
    Trace,
    decode,
    encode,
)
from exec_server.relay.plaintext import PlaintextHarness, PlaintextMux
from exec_server.relay.segments import Stitcher
from tests.relay.ends import STREAM, closed, frame, messages, only, sent
from tests.requirements import requirement


def received(mux: PlaintextMux, *bodies: Data) -> list[Effect]:
    return [effect for body in bodies for effect in mux.receive(frame(body))]


def cut(message: bytes, count: int, *, first: int = 0) -> list[Data]:
    size = -(-len(message) // count)
    pieces = [message[i * size : (i + 1) * size] for i in range(count)]
    return [Data(first + i, piece, i, count) for i, piece in enumerate(pieces)]


@requirement("relay/plaintext:opening")
def test_resume_opens_a_stream():
    mux, harness = PlaintextMux(), PlaintextHarness(STREAM)
    resume, opened = harness.start()
    assert opened == StreamOpened(STREAM) and harness.is_open and isinstance(resume, Send)
    assert decode(resume.data) == RelayFrame(STREAM, Resume())
    assert list(mux.receive(resume.data)) == [StreamOpened(STREAM)]
    assert list(mux.receive(resume.data)) == []


@requirement("relay/plaintext:opening")
def test_data_opens_a_stream_too():
    mux = PlaintextMux()
    assert mux.receive(frame(Data(0, b"{}"))) == [StreamOpened(STREAM), Message(STREAM, b"{}")]


@requirement("relay/plaintext:opening")
@pytest.mark.parametrize(
    "data",
    [frame(Handshake(b"x")), frame(Ack()), frame(Heartbeat()), frame(Reset("x")), b"", b"\xff"],
)
def test_nothing_else_does(data):
    assert list(PlaintextMux().receive(data)) == []
    mux = PlaintextMux()
    mux.receive(frame(Resume(), "open"))
    assert list(mux.receive(data)) == [] and mux.open_streams == 1


@requirement("relay/plaintext:opening", "relay/plaintext:reset-reason")
def test_there_is_a_limit_of_streams():
    mux = PlaintextMux(limits=Limits(relay_streams=1))
    mux.receive(frame(Resume(), "a"))
    (answer,) = sent(mux.receive(frame(Resume(), "b")))
    assert answer.body == Reset("too many streams") and mux.open_streams == 1


@given(st.lists(st.binary(min_size=1, max_size=100), min_size=1, max_size=80))
def test_messages_travel_both_ways(texts):
    mux, harness = PlaintextMux(), PlaintextHarness(STREAM)
    for send in only(harness.start(), Send):
        mux.receive(send.data)
    for text in texts:
        (there,) = only(harness.send(text[:1], text[1:]), Send)
        assert messages(mux.receive(there.data)) == [text]
        (back,) = only(mux.send(STREAM, text), Send)
        assert messages(harness.receive(back.data)) == [text]
    # Both ends have acknowledgements of all frames but the last answer; an ack of 0 has no meaning.
    assert mux._open[STREAM].unacknowledged == (2 if len(texts) == 2 else 1)
    assert harness._stream is not None and harness._stream.unacknowledged == (len(texts) == 1)


@requirement("relay/plaintext:segments")
def test_we_send_one_segment_with_rising_numbers():
    harness = PlaintextHarness(STREAM)
    frames = [f for text in (b"a", bytes(300_000)) for f in sent(harness.send(text))]
    assert [f.body for f in frames] == [Data(0, b"a"), Data(1, bytes(300_000))]


@requirement("relay/trace:copied")
def test_a_request_shows_its_trace():
    (shown,) = sent(PlaintextHarness(STREAM).send(b"{}", trace=Trace("p", "s")))
    assert (shown.traceparent, shown.tracestate) == ("p", "s")


@requirement("relay/plaintext:arrival-order")
@given(st.lists(st.integers(0, 20), max_size=60))
def test_messages_come_out_as_they_arrive_and_once(seqs):
    effects = received(PlaintextMux(), *(Data(seq, b"%d" % seq) for seq in seqs))
    assert messages(effects) == [b"%d" % seq for seq in dict.fromkeys(seqs)]


@requirement("relay/plaintext:segments")
@given(st.binary(min_size=8, max_size=60), st.integers(2, 8), st.randoms(use_true_random=False))
def test_segments_are_joined_in_any_order(message, count, random):
    segments = [data for data in cut(message, count, first=3) if data.payload]
    if len(segments) < count:
        return
    shuffled = segments * 2
    random.shuffle(shuffled)
    mux = PlaintextMux()
    assert messages(received(mux, *shuffled)) == [message]
    assert mux._open[STREAM]._stitcher.held_bytes == 0


@requirement("relay/plaintext:segments")
def test_messages_in_segments_may_overlap_in_time():
    one, two = cut(b"first!", 2), cut(b"second", 3, first=2)
    effects = received(PlaintextMux(), one[0], two[0], two[1], Data(5, b"whole"), two[2], one[1])
    assert messages(effects) == [b"whole", b"second", b"first!"]


@requirement("relay/plaintext:segments")
@pytest.mark.parametrize(
    "bodies",
    [
        [Data(0, b"x", 1, 2)],
        [Data(0, b"x", 0, 2), Data(1, b"x", 1, 3)],
        [Data(0, b"x", 0, 5)],
        [Data(4 * i, b"x", 0, 4) for i in range(5)],
        [Data(0, bytes(101))],
        [Data(0, bytes(60), 0, 3), Data(1, bytes(60), 1, 3)],
    ],
)
def test_impossible_or_unbounded_segments_reset_the_stream(bodies):
    mux = PlaintextMux(limits=Limits(relay_segments=4, message_bytes=100))
    effects = received(mux, *bodies)
    assert closed(effects) == [STREAM] and messages(effects) == []
    (reset,) = sent(effects)
    assert isinstance(reset.body, Reset) and "message" in reset.body.reason


@requirement("relay/plaintext:segments")
@given(
    st.lists(
        st.builds(
            Data,
            st.integers(0, 20),
            st.binary(min_size=1, max_size=9),
            st.integers(0, 3),
            st.integers(4, 6),
        ),
        max_size=40,
    )
)
def test_arbitrary_segments_stay_within_bounds(bodies):
    stitcher = Stitcher(limits=Limits(relay_segments=8, message_bytes=50))
    for body in bodies:
        try:
            stitcher.receive(body)
        except RelayError:
            return
        assert stitcher.held_bytes <= 50


@requirement("relay/plaintext:acks")
def test_frames_say_what_has_arrived():
    mux = PlaintextMux()
    received(mux, Data(0, b"a"), Data(1, b"b"), Data(3, b"d"))
    (answer,) = sent(mux.send(STREAM, b"x"))
    assert (answer.ack, answer.ack_bits) == (1, 0b10)


@requirement("relay/plaintext:acks")
def test_a_silent_side_acknowledges_now_and_then():
    mux, harness = PlaintextMux(), PlaintextHarness(STREAM)
    effects = received(mux, *(Data(seq, b"x") for seq in range(31)))
    assert sent(effects) == []
    (ack,) = sent(received(mux, Data(31, b"x")))
    assert (ack.body, ack.ack, ack.ack_bits) == (Ack(), 31, 0)
    for _ in range(40):
        harness.send(b"x")
    assert list(harness.receive(encode(ack))) == []
    assert harness._stream is not None and harness._stream.unacknowledged == 8
    answers = [harness.receive(frame(Data(seq, b"x"))) for seq in range(32)]
    assert [f.body for answer in answers for f in sent(answer)] == [Ack()]


@requirement("relay/plaintext:reset-reason")
def test_resets_say_why():
    mux, harness = PlaintextMux(), PlaintextHarness(STREAM)
    mux.receive(frame(Resume()))
    reset, ended = mux.close(STREAM, "the message is no JSON")
    assert ended == StreamClosed(STREAM, "the message is no JSON") and isinstance(reset, Send)
    with pytest.raises(RelayError, match="the message is no JSON"):
        harness.receive(reset.data)
    assert not harness.is_open and list(harness.send(b"x")) == []
    mux.receive(frame(Resume()))
    assert mux.receive(frame(Reset("had enough"))) == [StreamClosed(STREAM, "had enough")]
    mux.receive(frame(Resume()))
    (closing, _) = mux.close(STREAM)
    assert isinstance(closing, Send) and decode(closing.data).body == Reset("closed")


@requirement("relay/plaintext:arrival-order")
@pytest.mark.parametrize(
    "data",
    [
        frame(Data(0, b"x"), "other"),
        frame(Ack()),
        frame(Resume()),
        frame(Heartbeat()),
        frame(Handshake(b"x")),
    ],
)
def test_the_harness_ignores_what_is_not_for_it(data):
    harness = PlaintextHarness(STREAM)
    assert list(harness.receive(data)) == []
    assert messages(harness.receive(frame(Data(5, b"x")))) == [b"x"]


@pytest.mark.parametrize("data", [b"", b"\xff", frame(Reset("x"))])
def test_the_harness_gives_up_at_what_is_no_frame(data):
    harness = PlaintextHarness(STREAM)
    with pytest.raises(RelayError):
        harness.receive(data)
    assert list(harness.receive(frame(Data(0, b"late")))) == []


def test_what_no_peer_would_take_is_not_sent():
    harness = PlaintextHarness(STREAM, limits=Limits(message_bytes=10))
    for text in (b"", bytes(11)):
        with pytest.raises(RelayError):
            harness.send(text)
    assert harness._stream is not None
    harness._stream._sent.next_seq = SEQ_END
    with pytest.raises(RelayError):
        harness.send(b"x")


def test_a_paused_stream_keeps_its_messages():
    mux = PlaintextMux()
    mux.receive(frame(Resume()))
    mux.pause(STREAM)
    assert messages(received(mux, Data(0, b"a"), Data(1, b"b"))) == []
    assert messages(mux.resume(STREAM)) == [b"a", b"b"]
    assert list(mux.end()) == [StreamClosed(STREAM, "the socket is gone")]
