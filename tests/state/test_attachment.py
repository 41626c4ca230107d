"""Which connection holds which session."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from exec_server.errors import InvalidRequest, SessionAttached
from exec_server.state.attachment import Attachments, SessionId
from tests.requirements import requirement

WINDOW = 30.0


def attachments() -> Attachments[str]:
    numbers = itertools.count(1)
    return Attachments(window=WINDOW, new_id=lambda: f"s{next(numbers)}")


@requirement("session:new")
def test_every_new_session_has_an_id_of_its_own():
    sessions = attachments()
    assert [sessions.create("a"), sessions.create("a")] == ["s1", "s2"]


@pytest.mark.parametrize("session_id", ["", "s2", "S1", " s1"])
@requirement("session:unknown")
def test_an_unknown_session_cannot_be_resumed(session_id):
    sessions = attachments()
    sessions.create("a")
    with pytest.raises(InvalidRequest) as refused:
        sessions.resume(session_id, "b", now=0)
    assert refused.value.message == f"unknown session id {session_id}"


@requirement("session:no-takeover")
def test_a_held_session_is_not_given_to_another():
    sessions = attachments()
    session_id = sessions.create("a")
    with pytest.raises(SessionAttached) as refused:
        sessions.resume(session_id, "b", now=0)
    assert refused.value.code == -32010
    assert refused.value.message == "session s1 is already attached to another connection"


@requirement("session:resume")
def test_a_detached_session_can_be_resumed_until_its_window_ends():
    sessions = attachments()
    session_id = sessions.create("a")
    sessions.detach(session_id, now=100)
    assert sessions.next_deadline() == 130
    assert sessions.resume(session_id, "b", now=129.9) == session_id
    assert sessions.next_deadline() is None


@requirement("session:expiry")
def test_after_the_window_the_id_is_unknown_even_before_anybody_looked():
    sessions = attachments()
    session_id = sessions.create("a")
    sessions.detach(session_id, now=100)
    with pytest.raises(InvalidRequest):
        sessions.resume(session_id, "b", now=130)
    assert list(sessions.expire(now=130)) == [session_id]
    with pytest.raises(InvalidRequest):
        sessions.resume(session_id, "b", now=0)


@requirement("session:fresh-window")
def test_a_later_detach_starts_a_fresh_window():
    sessions = attachments()
    session_id = sessions.create("a")
    sessions.detach(session_id, now=0)
    sessions.resume(session_id, "b", now=29)
    sessions.detach(session_id, now=50)
    assert list(sessions.expire(now=79)) == []
    assert sessions.resume(session_id, "c", now=79) == session_id


def test_a_session_that_was_ended_is_unknown_at_once():
    sessions = attachments()
    session_id = sessions.create("a")
    sessions.detach(session_id, now=0)
    sessions.end(session_id)
    assert sessions.next_deadline() is None
    with pytest.raises(InvalidRequest):
        sessions.resume(session_id, "b", now=0)


class AttachmentLaws(RuleBasedStateMachine):
    """Any order of connects, losses and waits, compared with a dictionary and a clock."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = attachments()
        self.now = 0.0
        # Every session ever made, with the time it was detached, or None while it is held.
        self.detached_at: dict[SessionId, float | None] = {}

    def is_over(self, session_id: SessionId) -> bool:
        detached = self.detached_at[session_id]
        return detached is not None and detached + WINDOW <= self.now

    @rule()
    def connect(self) -> None:
        self.detached_at[self.sessions.create("x")] = None

    @rule(seconds=st.integers(0, 40))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @precondition(lambda self: self.detached_at)
    @rule(data=st.data())
    def lose(self, data) -> None:
        session_id = data.draw(st.sampled_from(list(self.detached_at)))
        if self.detached_at[session_id] is None:
            self.sessions.detach(session_id, now=self.now)
            self.detached_at[session_id] = self.now

    @precondition(lambda self: self.detached_at)
    @rule(data=st.data())
    def resume(self, data) -> None:
        session_id = data.draw(st.sampled_from(list(self.detached_at)))
        if self.is_over(session_id):
            with pytest.raises(InvalidRequest):
                self.sessions.resume(session_id, "y", now=self.now)
        elif self.detached_at[session_id] is None:
            with pytest.raises(SessionAttached):
                self.sessions.resume(session_id, "y", now=self.now)
        else:
            assert self.sessions.resume(session_id, "y", now=self.now) == session_id
            self.detached_at[session_id] = None

    @rule()
    def expire(self) -> None:
        over = {session_id for session_id in self.detached_at if self.is_over(session_id)}
        assert set(self.sessions.expire(now=self.now)) == over
        for session_id in over:
            del self.detached_at[session_id]

    @invariant()
    def the_next_deadline_is_the_earliest(self) -> None:
        detached = [at + WINDOW for at in self.detached_at.values() if at is not None]
        assert self.sessions.next_deadline() == min(detached, default=None)


TestAttachmentLaws = AttachmentLaws.TestCase
