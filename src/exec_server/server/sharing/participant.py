"""One who takes part in a shared process."""

from __future__ import annotations

import time

from exec_server.protocol import sharing
from exec_server.protocol.participants import Kind
from exec_server.server.session import Session


class Seat:
    """A participant: the session that has started the process, or one that looks on."""

    def __init__(
        self,
        seat_id: str,
        *,
        session: Session | None,
        label: str,
        principal: str,
        name: str,
        kind: Kind,
    ) -> None:
        """*label* is the id by which *session* knows the process; no *session*: it was lost."""
        self.id = seat_id
        self.session = session
        self.label = label
        self.principal = principal
        self.name = name
        self.kind: Kind = kind
        self.idle_since = now_ms()
        # The last size that it gave to the terminal.
        self.size: tuple[int, int] | None = None
        # True if it has lost the input and was not told so by an answer of its own yet.
        self.has_to_notice = False
        # True for a watcher whose connection is lost, until its session ends.
        self.is_away = False
        self._owes_presence = False

    @property
    def is_connected(self) -> bool:
        return self.session is not None and self.session.is_attached and not self.is_away

    @property
    def shown_name(self) -> str:
        client = "" if self.session is None else self.session.client_name
        return self.name or client or self.principal

    def described(self, *, drives: bool) -> sharing.Participant:
        return sharing.Participant(
            id=self.id,
            name=self.shown_name,
            kind=self.kind,
            principal=self.principal,
            drives=drives,
            connected=self.is_connected,
            idle_since=self.idle_since,
        )

    def tell_change(self, event: sharing.ControlChangedEvent) -> None:
        if self.session is not None and self.session.hears_sharing:
            self.session.notify(sharing.CONTROL_CHANGED, event)

    def tell_presence(self, control: sharing.ControlState) -> None:
        """Tell who is there, unless its client is behind; then it is told as soon as it is not."""
        if self.session is None or not self.session.hears_sharing:
            return
        self._owes_presence = self.session.is_writing_paused
        if not self._owes_presence:
            event = sharing.PresenceEvent(self.label, control)
            self.session.notify(sharing.PRESENCE, event)

    def take_debt(self) -> bool:
        """True, once, if the presence has to be told that could not be told before."""
        owes, self._owes_presence = self._owes_presence, False
        return owes


def now_ms() -> int:
    return time.time_ns() // 1_000_000
