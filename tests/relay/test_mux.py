"""Which harnesses are admitted, and the effects of each frame in each state of a stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.limits import Limits
from exec_server.relay import relay_pb2 as pb
from exec_server.relay.effects import Abandon, Effect, Send, StreamClosed, StreamOpened, Validate
from exec_server.relay.frame import Ack, Data, Handshake, Heartbeat, RelayFrame, Reset, Resume
from exec_server.relay.mux import RESET_REASON
from tests.relay.ends import (
    HARNESS,
    STRANGER,
    STREAM,
    asked,
    closed,
    connect,
    frame,
    handshake,
    is_alive,
    knock,
    messages,
    new_harness,
    new_mux,
    only,
    pair,
    sent,
    to_mux,
)
from tests.requirements import requirement

RESET = Send(frame(Reset(RESET_REASON)))
DATA = frame(Data(0, b"x" * 40))
IGNORED = [frame(Resume()), frame(Ack()), frame(Heartbeat()), b"", b"\xff", b"text"]


# Admission.


@requirement("relay/mux:states", "relay/mux:admission")
def test_a_harness_comes_in_when_the_registry_says_yes():
    mux, harness = new_mux(), new_harness()
    question = asked(mux, harness, authorization="for ü")
    assert question.stream_id == STREAM
    assert question.harness_key == HARNESS.public
    assert question.authorization == "for ü"
    answer, opened = mux.settle(question.ticket, is_valid=True, now=1)
    assert opened == StreamOpened(STREAM) and isinstance(answer, Send)
    assert harness.receive(answer.data) == [StreamOpened(STREAM)]
    assert is_alive(mux, harness) and mux.open_streams == 1


@requirement("relay/mux:states", "relay/mux:fixed-reason")
def test_a_harness_is_reset_when_the_registry_says_no():
    mux = new_mux()
    question = asked(mux, new_harness())
    assert mux.settle(question.ticket, is_valid=False, now=1) == [RESET]
    assert mux.open_streams == 0
    assert mux.receive(DATA, now=1) == [RESET]


@requirement("relay/mux:admission")
@pytest.mark.parametrize("size", [0, 4096])
def test_an_authorization_may_be_empty_or_4096_bytes(size):
    assert asked(new_mux(), new_harness(), authorization="x" * size).authorization == "x" * size


@requirement("relay/mux:admission")
def test_a_longer_authorization_is_not_shown_to_the_registry():
    mux = new_mux()
    assert mux.receive(handshake(authorization="ü" * 2049), now=0) == [RESET]


@requirement("relay/mux:admission")
def test_an_authorization_that_is_no_text_is_not_shown_to_the_registry():
    harness = new_harness()
    assert harness._initiator is not None
    message = harness._initiator.write(b"\xff\xfe")
    assert new_mux().receive(frame(Handshake(message)), now=0) == [RESET]


@requirement("relay/mux:admission")
def test_a_handshake_for_another_executor_is_reset():
    mux = new_mux()
    knocking = knock(new_harness(executor=STRANGER))
    assert [list(mux.receive(data, now=0)) for data in knocking] == [[], [RESET]]


@requirement("relay/mux:admission")
def test_there_is_a_limit_of_streams():
    mux = new_mux(Limits(relay_streams=2))
    harnesses = [new_harness(name) for name in ("a", "b")]
    for harness in harnesses:
        connect(mux, harness)
    assert [f.body for f in sent(mux.receive(handshake("c"), now=0))] == [Reset(RESET_REASON)]
    assert closed(mux.receive(frame(Reset("bye"), "a"), now=0)) == ["a"]
    connect(mux, new_harness("c"))
    assert is_alive(mux, harnesses[1])


@requirement("relay/mux:admission")
def test_the_limit_of_streams_holds_for_those_who_waited():
    mux = new_mux(Limits(relay_streams=1))
    early, late = (asked(mux, new_harness(name)) for name in ("a", "b"))
    assert only(mux.settle(early.ticket, is_valid=True, now=0), StreamOpened)
    (reset,) = mux.settle(late.ticket, is_valid=True, now=0)
    assert isinstance(reset, Send) and mux.open_streams == 1


@requirement("relay/mux:admission")
def test_there_is_a_limit_of_open_questions():
    mux = new_mux(Limits(relay_validations=2))
    first = asked(mux, new_harness("a"))
    asked(mux, new_harness("b"))
    assert only(mux.receive(handshake("c"), now=0), Validate) == []
    mux.settle(first.ticket, is_valid=True, now=0)
    asked(mux, new_harness("c"))


# States.


@requirement("relay/mux:states")
@pytest.mark.parametrize("data", [*IGNORED, frame(Reset("x"))])
def test_an_unknown_stream_ignores_all_but_handshake_and_data(data):
    assert list(new_mux().receive(data, now=0)) == []


@requirement("relay/mux:states", "relay/plaintext:no-fallback")
def test_data_of_an_unknown_stream_is_reset():
    mux = new_mux()
    assert mux.receive(DATA, now=0) == [RESET]
    assert mux.receive(frame(Data(0, b'{"id":1,"method":"initialize"}')), now=0) == [RESET]


@requirement("relay/mux:states")
@pytest.mark.parametrize("data", IGNORED)
def test_a_waiting_stream_ignores_all_but_handshake_data_and_reset(data):
    mux, harness = new_mux(), new_harness()
    question = asked(mux, harness)
    assert list(mux.receive(data, now=0)) == []
    assert only(mux.settle(question.ticket, is_valid=True, now=0), StreamOpened)


@requirement("relay/mux:states", "relay/mux:late-verdict")
@pytest.mark.parametrize(
    ("data", "answers"), [(handshake(), [RESET]), (DATA, [RESET]), (frame(Reset("x")), [])]
)
def test_a_waiting_stream_that_does_not_wait_is_dropped(data, answers):
    mux = new_mux()
    question = asked(mux, new_harness())
    assert list(mux.receive(data, now=0)) == [Abandon(question.ticket), *answers]
    assert mux.next_deadline() is None
    assert list(mux.settle(question.ticket, is_valid=True, now=0)) == []
    assert mux.open_streams == 0


@requirement("relay/mux:late-verdict")
def test_a_late_verdict_does_not_help_who_uses_the_id_now():
    mux = new_mux()
    first = asked(mux, new_harness())
    mux.receive(frame(Reset("x")), now=0)
    second = asked(mux, new_harness())
    assert list(mux.settle(first.ticket, is_valid=True, now=0)) == []
    assert mux.open_streams == 0
    assert only(mux.settle(second.ticket, is_valid=True, now=0), StreamOpened)
    assert list(mux.settle(second.ticket, is_valid=False, now=0)) == []


@requirement("relay/mux:states")
def test_a_handshake_on_an_open_stream_is_reset_and_the_stream_stays():
    mux, harness = pair()
    assert mux.receive(handshake(), now=0) == [RESET]
    assert is_alive(mux, harness)


@requirement("relay/mux:states")
@pytest.mark.parametrize("data", IGNORED)
def test_an_open_stream_ignores_frames_that_carry_nothing(data):
    mux, harness = pair()
    assert list(mux.receive(data, now=0)) == []
    assert is_alive(mux, harness)


@requirement("relay/mux:states", "relay/frame:validity")
def test_an_invalid_frame_leaves_an_open_stream_alone():
    mux, harness = pair()
    invalid = pb.RelayMessageFrame(
        version=1, stream_id=STREAM, data=pb.RelayData(segment_count=2, payload=b"x")
    )
    assert list(mux.receive(invalid.SerializeToString(), now=0)) == []
    assert is_alive(mux, harness)


@requirement("relay/mux:states")
def test_an_open_stream_ends_silently_at_a_reset():
    mux, _ = pair()
    effects = mux.receive(frame(Reset("words of a stranger")), now=0)
    assert closed(effects) == [STREAM] and not only(effects, Send)
    assert "stranger" not in repr(effects)


@requirement("relay/mux:states", "relay/mux:fixed-reason")
def test_our_side_ends_a_stream_with_a_reset():
    mux, _ = pair()
    assert mux.close(STREAM, "an unsolicited response") == [
        RESET,
        StreamClosed(STREAM, "an unsolicited response"),
    ]
    assert list(mux.close(STREAM)) == list(mux.send(STREAM, b"late")) == []


@requirement("relay/mux:states")
def test_a_message_that_cannot_be_sent_ends_the_stream():
    mux, _ = pair()
    assert closed(mux.send(STREAM, b"")) == [STREAM]


def test_the_same_handshake_is_accepted_again_after_the_stream_is_gone():
    mux, harness = new_mux(), new_harness()
    for data in (message := knock(harness)):
        effects = mux.receive(data, now=0)
    mux.settle(only(effects, Validate)[0].ticket, is_valid=True, now=0)
    mux.close(STREAM)
    assert only(mux.receive(message[1], now=0), Validate)


def test_the_end_of_the_socket_ends_everything():
    mux, _ = pair()
    question = asked(mux, new_harness("waiting"))
    assert list(mux.end()) == [
        Abandon(question.ticket),
        StreamClosed(STREAM, "the socket is gone"),
    ]
    assert mux.open_streams == 0 and mux.next_deadline() is None and list(mux.end()) == []


# Time.


@requirement("relay/mux:validation-timeout")
def test_ten_seconds_without_a_verdict_are_a_refusal():
    mux = new_mux()
    question = asked(mux, new_harness(), now=5)
    later = asked(mux, new_harness("later"), now=7)
    assert mux.next_deadline() == 15
    assert list(mux.expire(now=14.9)) == []
    assert mux.expire(now=15) == [Abandon(question.ticket), RESET]
    assert mux.next_deadline() == 17
    assert list(mux.settle(question.ticket, is_valid=True, now=15)) == []
    assert only(mux.settle(later.ticket, is_valid=True, now=16.9), StreamOpened)


@requirement("relay/mux:validation-timeout")
def test_a_verdict_at_the_deadline_is_too_late():
    mux = new_mux()
    question = asked(mux, new_harness(), now=5)
    assert mux.settle(question.ticket, is_valid=True, now=15) == [RESET]


# Back-pressure.


@requirement("relay/mux:backlog")
def test_a_paused_stream_keeps_its_messages():
    mux, harness = pair()
    mux.pause(STREAM)
    for number in range(128):
        assert to_mux(mux, harness.send(b"%d" % number)) == []
    assert messages(mux.resume(STREAM)) == [b"%d" % number for number in range(128)]
    assert messages(mux.resume(STREAM)) == []
    assert is_alive(mux, harness)


@requirement("relay/mux:backlog")
def test_a_reader_too_far_behind_loses_its_stream_and_no_other():
    mux, harness = pair()
    other = new_harness("other")
    connect(mux, other)
    mux.pause(STREAM)
    for _ in range(128):
        to_mux(mux, harness.send(b"x"))
    effects = to_mux(mux, harness.send(b"x"))
    assert closed(effects) == [STREAM] and only(effects, Send) == [RESET]
    assert is_alive(mux, other)
    mux.pause(STREAM)
    assert list(mux.resume(STREAM)) == []


@requirement("relay/mux:backlog")
def test_bytes_that_wait_are_bounded_but_one_message_always_fits():
    mux, harness = pair(Limits(backlog_bytes=1000))
    mux.pause(STREAM)
    assert to_mux(mux, harness.send(bytes(5000))) == []
    assert closed(to_mux(mux, harness.send(b"x"))) == [STREAM]


# Anything at all.


@requirement("relay/secrets:hidden")
def test_effects_do_not_print_what_they_carry():
    question = asked(new_mux(), new_harness(), authorization="secret-token")
    assert "secret-token" not in repr(question) and STREAM in repr(question)
    assert repr(Send(b"secret")) == "Send(6 bytes)"
    mux, harness = pair()
    assert "secret" not in repr(to_mux(mux, harness.send(b"secret")))


STREAMS = st.sampled_from(["a", "b", "c", "d"])
BODIES = st.one_of(
    st.builds(Data, st.integers(0, 70), st.binary(min_size=1, max_size=20)),
    st.builds(Handshake, st.binary(min_size=1, max_size=10)),
    st.sampled_from([Resume(), Reset("x"), Ack(), Heartbeat()]),
)
STEPS = st.one_of(
    st.tuples(st.just("frame"), st.builds(RelayFrame, STREAMS, BODIES)),
    st.tuples(st.just("knock"), STREAMS),
    st.tuples(st.just("verdict"), st.tuples(st.integers(1, 12), st.booleans())),
    st.tuples(st.just("time"), st.floats(0, 12)),
    st.tuples(st.just("close"), STREAMS),
)


@requirement("relay/mux:states")
@given(st.lists(STEPS, max_size=30))
def test_any_history_keeps_the_books(steps):
    """Streams open only after a yes, close once, and no bound is passed."""
    limits = Limits(relay_streams=2, relay_validations=2, relay_failures=3)
    mux, now = new_mux(limits), 0.0
    waiting: set[int] = set()
    open_streams: set[str] = set()
    for kind, what in steps:
        approved: set[str] = set()
        effects: list[Effect]
        if kind == "time":
            now += what
            effects = [*mux.expire(now=now)]
            assert mux.next_deadline() is None or mux.next_deadline() > now
        elif kind == "verdict":
            ticket, is_valid = what
            effects = [*mux.settle(ticket, is_valid=is_valid, now=now)]
            if ticket in waiting and is_valid:
                approved = {effect.stream_id for effect in only(effects, StreamOpened)}
            waiting.discard(ticket)
        elif kind == "close":
            effects = [*mux.close(what)]
        else:
            data = handshake(what) if kind == "knock" else frame(what.body, what.stream_id)
            effects = [*mux.receive(data, now=now)]
        for effect in effects:
            if isinstance(effect, Validate):
                waiting.add(effect.ticket)
            elif isinstance(effect, Abandon):
                waiting.remove(effect.ticket)
            elif isinstance(effect, StreamOpened):
                assert effect.stream_id in approved and effect.stream_id not in open_streams
                open_streams.add(effect.stream_id)
            elif isinstance(effect, StreamClosed):
                open_streams.remove(effect.stream_id)
        assert len(waiting) <= 2 and len(open_streams) == mux.open_streams <= 2
