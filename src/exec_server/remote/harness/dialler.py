"""Dials an environment through its registry: each connection has a new bundle and stream."""

from __future__ import annotations

import asyncio
import os
import random as randomness
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from exec_server.errors import ConfigurationError, ConnectError, RegistryError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.protocol.registry import NOISE_PREFIX, NOISE_SCHEMES
from exec_server.relay.keys import KeyPair, PublicKeys
from exec_server.remote.credentials.credentials import Credentials, check_confidential
from exec_server.remote.executor_trust import Trust
from exec_server.remote.harness.harness_connection import dial_bundle, process_identity
from exec_server.remote.registry_client import (
    Bundle,
    Registry,
    is_executor_offline,
    may_connect_later,
)
from exec_server.remote.registry_http import Http
from exec_server.remote.retry_delays import Random, Recovery, registry_pause
from exec_server.transport.connection import Connection

if TYPE_CHECKING:
    from ssl import SSLContext

_UNAUTHORIZED = 401


def parse_url(url: str) -> tuple[str, str]:
    """Return the registry and the environment of `noise+https://REGISTRY/ENVIRONMENT`.

    A path before the environment belongs to the registry. Without TLS only loopback addresses are
    allowed. Raises ConfigurationError.
    """
    base, slash, environment_id = url.removeprefix(NOISE_PREFIX).rpartition("/")
    if not slash or base.endswith(":/") or not environment_id or not url.startswith(NOISE_SCHEMES):
        raise ConfigurationError(
            f"invalid URL `{url}`; expected `noise+https://REGISTRY/ENVIRONMENT`"
        )
    check_confidential(base, "a token for an environment")
    return base, unquote(environment_id)


class NoiseDialler:
    """Dials an environment through its registry; each call makes another connection.

    The first call makes a few attempts. Later calls make one attempt each, and pause first if the
    last connection failed or ended at once. *trust* says which keys of the executor are accepted;
    by default those in the file of known executors, and any key if the file has none.
    """

    def __init__(
        self,
        registry_url: str,
        environment_id: str,
        credentials: Credentials,
        *,
        identity: KeyPair | None = None,
        trust: Trust | None = None,
        limits: Limits = DEFAULT_LIMITS,
        connect_timeout: float | None = None,
        ssl_context: SSLContext | None = None,
        environ: Mapping[str, str] = os.environ,
        random: Random = randomness.random,
    ) -> None:
        self._http = Http(limits=limits, ssl_context=ssl_context)
        self._registry = Registry(
            registry_url, environment_id, credentials, http=self._http, limits=limits
        )
        self.trust = trust or Trust(registry_url, environment_id, environ=environ)
        self._identity = identity or process_identity()
        self._limits = limits
        self._connect_timeout = connect_timeout
        self._ssl = ssl_context
        self._environ = environ
        self._random = random
        # The time of the last connection; None before the first.
        self._opened_at: float | None = None
        self._recovery = Recovery(random=random, limits=limits)

    async def __call__(self) -> Connection:
        """Return a new connection.

        Raises ConnectError if another call may succeed; RegistryError and ConnectionRejected are
        final.
        """
        connection: Connection | None = None
        try:
            if self._opened_at is None:
                connection = await self._first()
            else:
                connection = await self._next(self._opened_at)
            await self._http.close()
        except BaseException:
            # The caller may be cancelled when the connection is open already.
            if connection is not None:
                connection.abort()
            await self._http.close()
            raise
        self._opened_at = asyncio.get_running_loop().time()
        return connection

    async def executor_key(self) -> PublicKeys:
        """Return the key that the registry names, unchecked. Raises RegistryError."""
        try:
            return (await self._first_bundle()).executor_key
        finally:
            await self._http.close()

    async def _first(self) -> Connection:
        try:
            return await self._open(await self._first_bundle())
        except ConnectError as exc:
            if exc.status != _UNAUTHORIZED or isinstance(exc, RegistryError):
                raise
        # The signature in the bundle may have expired meanwhile.
        return await self._open(await self._first_bundle())

    async def _first_bundle(self) -> Bundle:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.bundle_window
        attempt = 0
        while True:
            seconds = min(self._limits.bundle_timeout, deadline - loop.time())
            try:
                return await self._registry.connect(self._identity.public, seconds=seconds)
            except RegistryError as exc:
                pause = registry_pause(attempt, random=self._random, limits=self._limits)
                attempt += 1
                is_over = attempt > self._limits.bundle_retries or loop.time() + pause >= deadline
                if is_over or not may_connect_later(exc):
                    raise
            await asyncio.sleep(pause)

    async def _next(self, opened_at: float) -> Connection:
        lived = asyncio.get_running_loop().time() - opened_at
        if pause := self._recovery.next_pause(lived=lived):
            await asyncio.sleep(pause)
        try:
            connection = await self._open(await self._next_bundle())
        except BaseException as exc:
            refusal = exc.__cause__
            is_offline = isinstance(refusal, RegistryError) and is_executor_offline(refusal)
            self._recovery.failed(is_offline=is_offline)
            raise
        self._recovery.succeeded()
        return connection

    async def _next_bundle(self) -> Bundle:
        try:
            return await self._registry.connect(
                self._identity.public, seconds=self._limits.bundle_timeout
            )
        except RegistryError as exc:
            if may_connect_later(exc):
                raise ConnectError(str(exc)) from exc
            raise

    async def _open(self, bundle: Bundle) -> Connection:
        fingerprint = bundle.executor_key.fingerprint
        self.trust.check(fingerprint)
        connection = await self._dial(bundle)
        try:
            # The peer has proved that it has the key, and nothing was sent to it yet.
            self.trust.remember(fingerprint)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _dial(self, bundle: Bundle) -> Connection:
        try:
            return await dial_bundle(
                bundle,
                environment_id=self._registry.environment_id,
                identity=self._identity,
                limits=self._limits,
                connect_timeout=self._connect_timeout,
                ssl_context=self._ssl,
                environ=self._environ,
            )
        except ConfigurationError as exc:
            raise ConnectError(f"the registry named an invalid rendezvous: {exc}") from None
