"""What `connect` does for every URL, including those of servers behind a registry.

The client knows `ws://`, `wss://`, `unix://` and `stdio:`. This module adds, as SCHEMES,
`noise+https://REGISTRY/ENVIRONMENT` and WebSocket URLs with `role=harness`. It is apart from
client_urls.py, which needs `inspect` for the help of `connect`: a command does without both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from exec_server.client.client import ExecServerClient, open_url
from exec_server.client.client_tls import tls_context
from exec_server.client.connect_options import ConnectOptions, UrlOptions
from exec_server.client.environments.bearer_tokens import RenewedToken
from exec_server.client.environments.kinds import RendezvousEnvironment
from exec_server.client.session_link import Dialler
from exec_server.errors import ConfigurationError
from exec_server.protocol.registry import HARNESS_QUERY, NOISE_SCHEMES, REGISTRY_TOKEN_VARIABLE

if TYPE_CHECKING:
    from exec_server.client.connect_keywords import UrlKeywords
    from exec_server.client.url_schemes import Schemes
    from exec_server.remote.harness.dialler import NoiseDialler

_IS_BLOCK = (
    "connect() is a block: `async with exec_server.connect(url) as client:`; "
    "without a block use `client = await exec_server.open(url)`"
)


class Connecting(AbstractAsyncContextManager[ExecServerClient]):
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
