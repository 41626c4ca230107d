"""From the URL of a server to a function that opens a connection to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from exec_server.client.client_tls import tls_context
from exec_server.client.connect_options import UrlOptions
from exec_server.client.environments.bearer_tokens import RenewedToken
from exec_server.client.session_link import Dialler
from exec_server.errors import ConfigurationError
from exec_server.transport.connection import Connection
from exec_server.transport.dial import dial

# Returns how to dial a URL, or None if the URL is not of this scheme. The schemes that need other
# packages are passed as arguments; `exec_server.connecting` has them.
Scheme = Callable[[str, UrlOptions], Dialler | None]
Schemes = Sequence[Scheme]


def find_dialler(url: str, options: UrlOptions, schemes: Schemes) -> Dialler:
    """How to dial *url*: as the first of *schemes* says that knows it, or else directly."""
    for scheme in schemes:
        if (found := scheme(url, options)) is not None:
            return found
    if options.pin is not None:
        raise ConfigurationError("only a server behind a registry has a key that can be pinned")

    token = None if options.token is None else RenewedToken(options.token)
    ssl_context = tls_context(options) if url.startswith("wss:") else None

    def dial_directly() -> Awaitable[Connection]:
        return dial(
            url,
            limits=options.limits,
            bearer_token=None if token is None else token(),
            connect_timeout=options.connect_timeout,
            ssl_context=ssl_context,
        )

    return dial_directly
