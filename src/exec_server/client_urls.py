"""`connect` and `open` for every URL, as programs call them; connecting.py does their work."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Unpack

from exec_server.client.client import ExecServerClient, open_url
from exec_server.client.connect_keywords import UrlKeywords
from exec_server.client.connect_options import UrlOptions
from exec_server.client.keyword_help import with_keywords_of
from exec_server.connecting import SCHEMES, Connecting

__all__ = ["ExecServerClient", "connect", "open"]


@with_keywords_of(UrlOptions)
def connect(
    url: str, **options: Unpack[UrlKeywords]
) -> AbstractAsyncContextManager[ExecServerClient]:
    """Connect to a server; leaving the block disconnects.

    *url* is `ws://HOST:PORT`, `wss://HOST`, `unix://PATH`, `stdio:PROGRAM ARGS...` for a server
    that is started as a child and reached through its stdin and stdout, or
    `noise+https://REGISTRY/ENVIRONMENT` for a server behind a registry. *token* is sent as a bearer
    token, to the server or to the registry. Raises ConnectError if no connection is made. After
    the block the server ends what still runs, unless the session is resumed in time.

    A lost connection is replaced and the session resumed, unless *reconnect* is false; *on_state*
    is called with each new state. The client tries for 25 seconds, or for as long as `retain` has
    granted, or for *recover_for* seconds. *session_token* comes from `session_token()` of an
    earlier client: its session is resumed, and `attach` continues its processes; *take_over* takes
    it from a client that still holds it.
    *on_policy_request* decides which hosts processes with a managed network may reach, and
    *on_policy_decision* is called with each decision.

    *pin* is for servers behind a registry, and replaces trust in that registry: it is the
    fingerprint of the executor's key, or `first-use` to trust the first key that is seen and no
    other key after that. UntrustedExecutor is raised for another key.

    Over TLS the authorities of the system are trusted, or instead those in *ca_file*. A server or
    registry that asks for a certificate gets *client_cert*, with *client_key*.
    """
    return Connecting(url, options)


@with_keywords_of(UrlOptions)
async def open(url: str, **options: Unpack[UrlKeywords]) -> ExecServerClient:
    """Connect to a server without a block, for notebooks and for objects that hold a client.

    The parameters are those of `connect`. Close it with `await client.close()`; a client that is
    dropped before that is disconnected with a ResourceWarning.
    """
    client = await open_url(url, UrlOptions(**options), schemes=SCHEMES)
    client._warn_if_forgotten()
    return client
