"""Which connection holds which session: attach, detach, resume, expire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, NewType, TypeVar

import msgspec

from exec_server.errors import InvalidRequest, SessionAttached
from exec_server.state.expiry import Expiry

SessionId = NewType("SessionId", str)
Holder = TypeVar("Holder")


def unknown_session(session_id: str) -> InvalidRequest:
    """The error for a session that is not there, or not for the client that asks."""
    return InvalidRequest(f"unknown session id {session_id}")


class Claim(msgspec.Struct, frozen=True):
    """Which client attaches: a random name of its own, and the number of its attempt."""

    client: str
    attempt: int


class _Attachment(Generic[Holder]):
    """The present or last connection of one session."""

    __slots__ = ("claim", "generation", "holder")

    def __init__(self, holder: Holder | None, generation: int = 1) -> None:
        self.holder = holder
        self.generation = generation
        self.claim: Claim | None = None


class Attachments(Generic[Holder]):
    """Every live session and its holder, if it has one.

    A session without a holder ends *window* seconds after it lost the last one, or after the time
    that `detach` was given. Every attach has a generation: 1 for the connection that created the
    session, and one more for each that resumed it.
    """

    def __init__(self, *, window: float, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._attachments: dict[SessionId, _Attachment[Holder]] = {}
        self._detached: Expiry[SessionId] = Expiry(window=window)

    def create(self, holder: Holder) -> SessionId:
        session_id = SessionId(self._new_id())
        self._attachments[session_id] = _Attachment(holder)
        return session_id

    def restore(self, session_id: str, *, generation: int) -> SessionId:
        """A session of an earlier server, which was attached *generation* times. It has no end."""
        known = SessionId(session_id)
        self._attachments[known] = _Attachment(None, generation)
        return known

    def resume(
        self, session_id: str, holder: Holder, *, now: float, claim: Claim | None = None
    ) -> SessionId:
        """Give a detached session to *holder*. A session that has a holder keeps it."""
        known = SessionId(session_id)
        attachment = self._attachments.get(known)
        if attachment is None or self._is_over(known, now):
            raise unknown_session(session_id)
        if attachment.holder is not None:
            raise SessionAttached(f"session {session_id} is already attached to another connection")
        attachment.holder = holder
        attachment.generation += 1
        attachment.claim = claim
        self._detached.discard(known)
        return known

    def holder(self, session_id: str) -> Holder | None:
        """The holder of a session; None if it has none, or is unknown."""
        attachment = self._attachments.get(SessionId(session_id))
        return None if attachment is None else attachment.holder

    def generation(self, session_id: SessionId) -> int:
        """The number of times that this session was attached."""
        return self._attachments[session_id].generation

    def is_own(self, session_id: SessionId, *, generation: int | None, claim: Claim | None) -> bool:
        """True if a client that says this of itself has made the present connection.

        It knows the generation of that connection. Or the connection is an earlier attempt of the
        same client, which has not received the answer. A later attempt is not an earlier one: a
        request that was long under way must not take the session from its own client.
        """
        present = self._attachments[session_id]
        if generation == present.generation:
            return True
        mine, theirs = claim, present.claim
        if mine is None or theirs is None:
            return False
        return mine.client == theirs.client and mine.attempt > theirs.attempt

    def detach(
        self,
        session_id: SessionId,
        *,
        now: float,
        window: float | None = None,
        is_kept: bool = False,
    ) -> None:
        """The session has no holder any more. If it *is_kept*, it waits for one without an end."""
        self._attachments[session_id].holder = None
        if is_kept:
            self._detached.discard(session_id)
        else:
            self._detached.add(session_id, now=now, window=window)

    @property
    def detached_count(self) -> int:
        """The number of sessions without a holder."""
        return len(self._detached)

    def next_deadline(self) -> float | None:
        return self._detached.next_deadline()

    def expire(self, *, now: float) -> Iterator[SessionId]:
        """Forget and return every session that has been without a holder for too long."""
        for session_id in self._detached.expire(now=now):
            del self._attachments[session_id]
            yield session_id

    def end(self, session_id: SessionId) -> None:
        """Forget a session at once."""
        self._attachments.pop(session_id, None)
        self._detached.discard(session_id)

    def _is_over(self, session_id: SessionId, now: float) -> bool:
        deadline = self._detached.deadline(session_id)
        return deadline is not None and deadline <= now
