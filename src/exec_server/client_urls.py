"""`connect` for every URL, including those of servers behind a registry.

The client knows `ws://`, `wss://`, `unix://` and `stdio:`. This module adds, as SCHEMES,
`noise+https://REGISTRY/ENVIRONMENT` and WebSocket URLs with `role=harness`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Unpack
from urllib.parse import urlsplit

from exec_server.client.client import ExecServerClient, open_url
from exec_server.client.client_tls import tls_context
from exec_server.client.connect_keywords import UrlKeywords
from exec_server.client.connect_options import ConnectOptions, UrlOptions, with_keywords_of
from exec_server.client.environments.bearer_tokens import RenewedToken
from exec_server.client.environments.kinds import RendezvousEnvironment
from exec_server.client.session_link import Dialler
from exec_server.errors import ConfigurationError
from exec_server.protocol.registry import HARNESS_QUERY, NOISE_SCHEMES, REGISTRY_TOKEN_VARIABLE

if TYPE_CHECKING:
    from exec_server.client.url_schemes import Schemes
    from exec_server.remote.harness.dialler import NoiseDialler

__all__ = ["SCHEMES", "ExecServerClient", "connect", "noise_dialler", "open", "rendezvous"]


_IS_BLOCK = (
    "connect() is a block: `async with exec_server.connect(url) as client:`; "
    "without a block use `client = await exec_server.open(url)`"
)


class _Connecting(AbstractAsyncContextManager[ExecServerClient]):
    """What `connect` returns: a block, and an explanation for a program that forgets the block."""

    def __init__(self, url: str, options: UrlKeywords) -> None:
        self._url = url
        self._options = options
        self._client: ExecServerClient | None = None

    async def __aenter__(self) -> ExecServerClient:
        client = await open_url(self._url, UrlOptions(**self._options), schemes=SCHEMES)
        self._client = await client.__aenter__()
        return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.__aexit__(kind, exc, traceback)

    def __await__(self) -> NoReturn:
        raise TypeError(_IS_BLOCK)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"no `{name}` here: {_IS_BLOCK}", name=name, obj=self)


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
    return _Connecting(url, options)


@with_keywords_of(UrlOptions)
async def open(url: str, **options: Unpack[UrlKeywords]) -> ExecServerClient:
    """Connect to a server without a block, for notebooks and for objects that hold a client.

    The parameters are those of `connect`. Close it with `await client.close()`; a client that is
    dropped before that is disconnected with a ResourceWarning.
    """
    client = await open_url(url, UrlOptions(**options), schemes=SCHEMES)
    client._warn_if_forgotten()
    return client


def noise_dialler(
    url: str, options: UrlOptions, environ: Mapping[str, str] = os.environ
) -> NoiseDialler:
    """How to dial `noise+https://REGISTRY/ENVIRONMENT`. Raises ConfigurationError."""
    from exec_server.remote.credentials.credentials import HarnessToken
    from exec_server.remote.executor_trust import Trust
    from exec_server.remote.harness.dialler import NoiseDialler, parse_url
    from exec_server.remote.identity import harness_identity

    registry_url, environment_id = parse_url(url)
    token = options.token or environ.get(REGISTRY_TOKEN_VARIABLE, "").strip()
    if not token:
        raise ConfigurationError("an environment behind a registry needs a token")
    return NoiseDialler(
        registry_url,
        environment_id,
        HarnessToken(RenewedToken(token)),
        identity=harness_identity(environ),
        trust=Trust(registry_url, environment_id, pin=options.pin, environ=environ),
        limits=options.limits,
        connect_timeout=options.connect_timeout,
        ssl_context=tls_context(options),
    )


def rendezvous(environment: RendezvousEnvironment, options: ConnectOptions) -> NoiseDialler:
    """How to dial an environment behind a registry that is configured or was paired."""
    from exec_server.remote.credentials.credentials import HarnessToken
    from exec_server.remote.executor_trust import Trust
    from exec_server.remote.harness.dialler import NoiseDialler
    from exec_server.remote.identity import harness_identity

    registry_url, environment_id = environment.registry_url, environment.environment_id
    token = RenewedToken(options.token or environment.token)
    return NoiseDialler(
        registry_url,
        environment_id,
        HarnessToken(token, account_id=environment.account_id),
        identity=harness_identity(os.environ, environment.identity),
        trust=Trust(registry_url, environment_id, pin=options.pin),
        limits=options.limits,
        ssl_context=tls_context(options),
    )


# The schemes; see `exec_server.client.url_schemes`.


def _noise(url: str, options: UrlOptions) -> Dialler | None:
    return noise_dialler(url, options) if url.startswith(NOISE_SCHEMES) else None


def _plaintext(url: str, options: UrlOptions) -> Dialler | None:
    """The older relay, which a URL asks for with `role=harness`."""
    if not url.startswith(("ws://", "wss://")):
        return None
    if HARNESS_QUERY not in urlsplit(url).query.split("&"):
        return None
    if options.pin is not None:
        raise ConfigurationError("in the older relay executors have no keys that could be pinned")
    from exec_server.remote.harness.harness_connection import dial_plaintext

    token = None if options.token is None else RenewedToken(options.token)
    ssl_context = tls_context(options)

    return lambda: dial_plaintext(
        url,
        bearer_token=None if token is None else token(),
        limits=options.limits,
        connect_timeout=options.connect_timeout,
        ssl_context=ssl_context,
    )


SCHEMES: Schemes = (_noise, _plaintext)
