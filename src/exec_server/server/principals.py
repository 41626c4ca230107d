"""The principal of a connection: whose durable jobs it sees."""

from __future__ import annotations

import asyncio
import os

from exec_server.server.authentication import SignedBearerToken
from exec_server.server.live_access import LiveAccess
from exec_server.transport.http_front import Identify
from exec_server.transport.socket_owner import unix_owner

# The bearers of one token are one principal.
_TOKEN = "token"


def own_principal() -> str:
    """The user that has started the server."""
    return _user(os.geteuid())


def token_principal(access: LiveAccess) -> Identify:
    """Tells the bearers of tokens apart: by the subject of a JWT, if it has one."""

    def identify(_transport: asyncio.BaseTransport, authorization: str | None) -> str:
        authenticator = access.authenticator
        if isinstance(authenticator, SignedBearerToken):
            subject = authenticator.subject(authorization)
            return _TOKEN if subject is None else f"sub:{subject}"
        return _TOKEN

    return identify


def user_principal(transport: asyncio.BaseTransport, _authorization: str | None) -> str | None:
    """The user at the other end of a Unix socket; None if that cannot be found out."""
    try:
        return _user(unix_owner(transport.get_extra_info("socket").fileno()).uid)
    except OSError:
        return None


def no_principal(_transport: asyncio.BaseTransport, _authorization: str | None) -> None:
    """A server without tokens serves its own user."""
    return None


def _user(uid: int) -> str:
    return f"uid:{uid}"
