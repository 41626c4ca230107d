"""Who may use the page.

A session has two halves. The cookie is sent by the browser and cannot be read by scripts. The key
is kept by the page's script and cannot be read by other origins. A cookie goes to every port of the
same host, so another program on this machine could receive it; without the key it is worth nothing.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from exec_server.access.principals_file import PrincipalsFile
from exec_server.access.token_secrets import digest_of
from exec_server.errors import ConfigurationError

# One-time links that were printed and not used, sessions, and downloads that were asked for. The
# oldest are dropped.
_MAX_LINKS = 16
_MAX_SESSIONS = 32
_MAX_TICKETS = 256
# How many seconds a session may be unused, and a download may take to begin again.
SESSION_SECONDS = 7 * 24 * 3600.0
TICKET_SECONDS = 3600.0

_SECRET_BYTES = 32


class PageSession(msgspec.Struct, kw_only=True):
    """A browser that was let in."""

    cookie: str
    key: str
    # The principal that has signed in with its token; None after a one-time link.
    principal: str | None = None
    used_at: float

    def __repr__(self) -> str:
        return "PageSession(...)"


class PageAccess:
    """One-time links, sessions and tickets, all in memory: they end with the program."""

    def __init__(
        self, *, clock: Callable[[], float], principals: PrincipalsFile | None = None
    ) -> None:
        """With *principals* people sign in with the token of one, and there are no links."""
        self._clock = clock
        self._principals = principals
        self._links: OrderedDict[bytes, None] = OrderedDict()
        self._sessions: OrderedDict[str, PageSession] = OrderedDict()
        self._tickets: OrderedDict[str, tuple[PageSession, Any, float]] = OrderedDict()

    @property
    def wants_token(self) -> bool:
        """True if people sign in with the token of a principal."""
        return self._principals is not None

    def new_link(self) -> str:
        """The secret of a link that lets one browser in, once."""
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        self._links[digest_of(secret)] = None
        _trim(self._links, _MAX_LINKS)
        return secret

    def sign_in(self, secret: str) -> PageSession | None:
        """A new session for the bearer of *secret*; None if it is not accepted.

        Reads the file of principals, so it may block for some milliseconds.
        """
        principal = None
        if self._principals is not None:
            principal = self._principal_of(digest_of(secret))
            if principal is None:
                return None
        elif self._links.pop(digest_of(secret), secret) is not None:
            return None
        session = PageSession(
            cookie=secrets.token_urlsafe(_SECRET_BYTES),
            key=secrets.token_urlsafe(_SECRET_BYTES),
            principal=principal,
            used_at=self._clock(),
        )
        self._sessions[session.cookie] = session
        _trim(self._sessions, _MAX_SESSIONS)
        return session

    def session_of(self, cookie: str | None) -> PageSession | None:
        """The session of a cookie; it does not prove that the request comes from the page."""
        session = None if cookie is None else self._sessions.get(cookie)
        if session is None:
            return None
        now = self._clock()
        if now - session.used_at > SESSION_SECONDS or not self.is_good(session):
            self.sign_out(session)
            return None
        session.used_at = now
        return session

    def has_key(self, session: PageSession, key: object) -> bool:
        """True if *key* is the other half of the session."""
        if not isinstance(key, str):
            return False
        # Half a surrogate pair, which headers and JSON can contain, has no UTF-8.
        given = key.encode("utf-8", "surrogatepass")
        return hmac.compare_digest(given, session.key.encode())

    def is_good(self, session: PageSession) -> bool:
        """False if the principal of the session was revoked, has expired or is no admin now."""
        if self._principals is None:
            return True
        try:
            record = self._principals.find(session.principal or "")
        except ConfigurationError:
            return False
        return record.is_good(self._clock()) and record.principal.is_admin

    def is_signed_in(self, session: PageSession) -> bool:
        """True until the session was ended."""
        return self._sessions.get(session.cookie) is session

    def sign_out(self, session: PageSession) -> None:
        """End a session. Idempotent."""
        self._sessions.pop(session.cookie, None)

    # Downloads are ordinary links, in which the page can send no key.

    def new_ticket(self, session: PageSession, subject: Any) -> str:
        """A text that stands for *subject* in the URL of a download of this session."""
        ticket = secrets.token_urlsafe(_SECRET_BYTES)
        self._tickets[ticket] = (session, subject, self._clock() + TICKET_SECONDS)
        _trim(self._tickets, _MAX_TICKETS)
        return ticket

    def subject_of(self, session: PageSession, ticket: str) -> Any | None:
        """What the ticket of this session stands for; None if it is unknown or too old."""
        owner, subject, until = self._tickets.get(ticket, (None, None, 0.0))
        return subject if owner is session and self._clock() < until else None

    def _principal_of(self, digest: bytes) -> str | None:
        assert self._principals is not None
        for record in self._principals.records():
            is_its_own = record.digest is not None and hmac.compare_digest(record.digest, digest)
            if is_its_own and record.is_good(self._clock()) and record.principal.is_admin:
                return record.name
        return None


def _trim(kept: OrderedDict[Any, Any], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)
