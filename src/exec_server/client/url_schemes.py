"""Ways to servers that this package does not know itself, by what their URLs look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from exec_server.client.session_link import Dialler
from exec_server.limits import Limits

if TYPE_CHECKING:
    from ssl import SSLContext


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """What a client was asked to connect to, and with what."""

    url: str
    token: str | None
    # The fingerprint of the only executor that is meant, or `first-use`.
    pin: str | None = None
    connect_timeout: float
    ssl_context: SSLContext | None
    limits: Limits

    def __repr__(self) -> str:
        # The query and the token may be secret.
        return f"Where({self.url.partition('?')[0]!r})"


# Each says how to dial, or None when the URL is not one of its own. `exec_server.client_urls` fills
# it.
WAYS: list[Callable[[Where], Dialler | None]] = []


def find_way(where: Where) -> Dialler | None:
    """The first way that knows the URL; None for the ordinary one."""
    return next((found for way in WAYS if (found := way(where)) is not None), None)
