"""Authentication that can change while a server runs.

A connection that was let in by a token ends when that token is no longer accepted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from weakref import WeakSet

from exec_server.server.authentication import Authenticator
from exec_server.transport.connection import Connection

logger = logging.getLogger(__name__)

REVOKED = "the token of this connection is no longer accepted"


class LiveAccess:
    """Checks clients with the present authenticator, and keeps the connections that got in."""

    def __init__(
        self, authenticator: Authenticator | None, serve: Callable[[Connection], None]
    ) -> None:
        self._authenticator = authenticator
        self._serve = serve
        self._connections: WeakSet[Connection] = WeakSet()

    @property
    def is_guarded(self) -> bool:
        """True if clients need a token."""
        return self._authenticator is not None

    @property
    def authenticator(self) -> Authenticator | None:
        return self._authenticator

    def check(self, authorization: str | None) -> str | None:
        return None if self._authenticator is None else self._authenticator.check(authorization)

    def serve(self, connection: Connection) -> None:
        """Serve a connection that was let in just now."""
        if self.is_guarded:
            self._connections.add(connection)
        self._serve(connection)

    def replace(self, authenticator: Authenticator) -> None:
        """Use *authenticator* from now on. If it accepts other tokens, older connections end."""
        if authenticator == self._authenticator:
            return
        self._authenticator = authenticator
        revoked, self._connections = self._connections, WeakSet()
        logger.info("the tokens have changed; %d connections end", len(revoked))
        for connection in revoked:
            connection.close(REVOKED, is_violation=True)
