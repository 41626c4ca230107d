"""Which connection holds which session: attach, detach, resume, expire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, NewType, TypeVar

from exec_server.errors import InvalidRequest, SessionAttached
from exec_server.state.expiry import Expiry

SessionId = NewType("SessionId", str)
Holder = TypeVar("Holder")


class Attachments(Generic[Holder]):
    """Every live session and its holder, if it has one.

    A session without a holder ends *window* seconds after it lost the last one, or after the time
    that `detach` was given.
    """

    def __init__(self, *, window: float, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._holders: dict[SessionId, Holder | None] = {}
        self._detached: Expiry[SessionId] = Expiry(window=window)

    def create(self, holder: Holder) -> SessionId:
        session_id = SessionId(self._new_id())
        self._holders[session_id] = holder
        return session_id

    def resume(self, session_id: str, holder: Holder, *, now: float) -> SessionId:
        """Give a detached session to *holder*. A session that has a holder keeps it."""
        known = SessionId(session_id)
        if known not in self._holders or self._is_over(known, now):
            raise InvalidRequest(f"unknown session id {session_id}")
        if self._holders[known] is not None:
            raise SessionAttached(f"session {session_id} is already attached to another connection")
        self._holders[known] = holder
        self._detached.discard(known)
        return known

    def detach(self, session_id: SessionId, *, now: float, window: float | None = None) -> None:
        self._holders[session_id] = None
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
            del self._holders[session_id]
            yield session_id

    def end(self, session_id: SessionId) -> None:
        """Forget a session at once."""
        self._holders.pop(session_id, None)
        self._detached.discard(session_id)

    def _is_over(self, session_id: SessionId, now: float) -> bool:
        deadline = self._detached.deadline(session_id)
        return deadline is not None and deadline <= now
