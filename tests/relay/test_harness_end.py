"""The harness completes a handshake only with the executor that the registry named."""

from __future__ import annotations

import pytest

from exec_server.errors import RelayError
from exec_server.relay.effects import Message, Send, StreamOpened
from exec_server.relay.frame import Ack, Data, Handshake, Heartbeat, Reset, Resume
from tests.relay.ends import STREAM, asked, frame, messages, new_harness, new_mux, only, pair, sent
from tests.requirements import requirement

IGNORED = [
    frame(Ack()),
    frame(Heartbeat()),
    frame(Resume()),
    frame(Reset("x"), "another"),
    frame(Data(0, b"x"), "another"),
    frame(Handshake(b"x"), "another"),
]
FATAL = {
    "reset": frame(Reset("words of a stranger")),
    "data too early": frame(Data(0, b"x" * 40)),
    "bad handshake": frame(Handshake(b"x" * 3424)),
    "short handshake": frame(Handshake(b"x")),
    "no frame": b"\xff",
    "nothing": b"",
}


@requirement("relay/harness:handshake")
def test_it_announces_itself_and_knocks_at_once():
    resume, knock = sent(new_harness().start("let me in"))
    assert (resume.stream_id, resume.body) == (STREAM, Resume())
    assert isinstance(knock.body, Handshake) and len(knock.body.payload) == 3568 + 9


@requirement("relay/harness:handshake")
def test_it_is_open_after_the_answer():
    mux, harness = new_mux(), new_harness()
    question = asked(mux, harness)
    assert not harness.is_open and list(harness.send(b"too early")) == []
    (answer, _) = mux.settle(question.ticket, is_valid=True, now=0)
    assert isinstance(answer, Send)
    assert harness.receive(answer.data) == [StreamOpened(STREAM)] and harness.is_open
    (data,) = only(mux.send(STREAM, b"welcome"), Send)
    assert harness.receive(data.data) == [Message(STREAM, b"welcome")]


@requirement("relay/harness:handshake")
@pytest.mark.parametrize("data", IGNORED)
def test_other_streams_and_empty_frames_are_ignored(data):
    mux, harness = new_mux(), new_harness()
    question = asked(mux, harness)
    assert list(harness.receive(data)) == []
    (answer, _) = mux.settle(question.ticket, is_valid=True, now=0)
    assert isinstance(answer, Send)
    harness.receive(answer.data)
    assert list(harness.receive(data)) == []
    assert messages(harness.receive(only(mux.send(STREAM, b"x"), Send)[0].data)) == [b"x"]


@requirement("relay/harness:handshake")
@pytest.mark.parametrize("data", FATAL.values(), ids=FATAL)
def test_anything_else_before_the_answer_ends_the_connection(data):
    mux, harness = new_mux(), new_harness()
    question = asked(mux, harness)
    with pytest.raises(RelayError) as caught:
        harness.receive(data)
    assert "stranger" not in str(caught.value)
    # The correct answer is too late.
    (answer, _) = mux.settle(question.ticket, is_valid=True, now=0)
    assert isinstance(answer, Send)
    with pytest.raises(RelayError):
        harness.receive(answer.data)
    assert not harness.is_open and list(harness.send(b"x")) == []


@requirement("relay/harness:handshake")
@pytest.mark.parametrize("data", FATAL.values(), ids=FATAL)
def test_anything_else_after_the_answer_ends_the_connection(data):
    _, harness = pair()
    with pytest.raises(RelayError):
        harness.receive(data)
    assert not harness.is_open


def test_a_message_that_cannot_be_sent_is_refused():
    _, harness = pair()
    with pytest.raises(RelayError):
        harness.send(b"")
