"""The client together with the ways to servers that do not listen themselves.

Importing this teaches `connect` and everything on top of it two more kinds of URLs:
`noise+https://REGISTRY/ENVIRONMENT`, and WebSocket URLs with `role=harness`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from exec_server.client.client import ExecServerClient, connect
from exec_server.client.environments.kinds import RendezvousEnvironment
from exec_server.client.environments.open_environment import ConnectOptions
from exec_server.client.session_link import Dialler
from exec_server.client.url_schemes import WAYS, Where
from exec_server.errors import ConfigurationError
from exec_server.protocol.registry import HARNESS_QUERY, NOISE_SCHEMES, REGISTRY_TOKEN_VARIABLE

if TYPE_CHECKING:
    from exec_server.remote.harness.dialler import NoiseDialler

__all__ = ["ExecServerClient", "connect", "noise_dialler", "rendezvous"]


def _noise(where: Where) -> Dialler | None:
    return noise_dialler(where) if where.url.startswith(NOISE_SCHEMES) else None


def noise_dialler(where: Where, environ: Mapping[str, str] = os.environ) -> NoiseDialler:
    """The way to `noise+https://REGISTRY/ENVIRONMENT`. Raises ConfigurationError."""
    from exec_server.remote.credentials.credentials import HarnessToken
    from exec_server.remote.executor_trust import Trust
    from exec_server.remote.harness.dialler import NoiseDialler, parse_url

    registry_url, environment_id = parse_url(where.url)
    token = where.token or environ.get(REGISTRY_TOKEN_VARIABLE, "").strip()
    if not token:
        raise ConfigurationError("an environment behind a registry needs a token")
    return NoiseDialler(
        registry_url,
        environment_id,
        HarnessToken(token),
        trust=Trust(registry_url, environment_id, pin=where.pin, environ=environ),
        limits=where.limits,
        connect_timeout=where.connect_timeout,
        ssl_context=where.ssl_context,
    )


def _plaintext(where: Where) -> Dialler | None:
    """The older relay, when the URL asks for it by `role=harness`."""
    if not where.url.startswith(("ws://", "wss://")):
        return None
    if HARNESS_QUERY not in urlsplit(where.url).query.split("&"):
        return None
    if where.pin is not None:
        raise ConfigurationError("in the older relay executors have no keys that could be pinned")
    from exec_server.remote.harness.harness_connection import dial_plaintext

    return functools.partial(
        dial_plaintext,
        where.url,
        bearer_token=where.token,
        limits=where.limits,
        connect_timeout=where.connect_timeout,
        ssl_context=where.ssl_context,
    )


def rendezvous(environment: RendezvousEnvironment, options: ConnectOptions) -> NoiseDialler:
    """The way to an environment that the variables of the process name."""
    from exec_server.remote.credentials.credentials import HarnessToken
    from exec_server.remote.executor_trust import Trust
    from exec_server.remote.harness.dialler import NoiseDialler

    registry_url, environment_id = environment.registry_url, environment.environment_id
    token = options.token or environment.token()
    return NoiseDialler(
        registry_url,
        environment_id,
        HarnessToken(token, account_id=environment.account_id),
        trust=Trust(registry_url, environment_id, pin=options.pin),
        limits=options.limits,
        ssl_context=options.ssl_context,
    )


WAYS[:] = [_noise, _plaintext]
