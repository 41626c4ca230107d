"""EnvironmentManager: the configured servers, by name.

::

    async with exec_server.environments() as manager:       # ~/.codex/environments.toml, variables
        manager.names                                        # ("local", "build-box"), default first
        box = await manager.client("build-box")              # shared, connected on first use
        await box.run(["make"])

    async with manager.connect("build-box", session_token=...) as box:   # not shared
        ...

    manager.resolve("build-box")                  # a name, or any URL that `connect` takes
    manager.describe()                            # facts to show, without secrets
    await manager.status("build-box")             # ready, pending or disconnected
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

import msgspec

from exec_server.client.client import ExecServerClient
from exec_server.client.connect_keywords import ConnectKeywords
from exec_server.client.connect_options import ConnectOptions
from exec_server.client.environments import environments_toml, paired, token_places
from exec_server.client.environments.bearer_tokens import GivenToken
from exec_server.client.environments.kinds import Environment, Kind, WebSocketEnvironment
from exec_server.client.environments.lazy import EnvironmentStatus, LazyClient
from exec_server.client.environments.open_environment import Connectors, open_environment
from exec_server.errors import ConfigurationError
from exec_server.limits import DEFAULT_LIMITS

logger = logging.getLogger(__name__)

_NO_CONNECTORS = Connectors()


class EnvironmentFacts(msgspec.Struct, frozen=True):
    """The facts about an environment that may be shown."""

    name: str
    kind: Kind
    # A URL or a command line.
    where: str
    is_default: bool


class EnvironmentManager:
    """Environments by name, several at once, each connected on its first use.

    All callers that ask for the same name share a client and its session. Leaving the block, or
    `close`, disconnects all clients and ends the programs that were started for them.
    """

    def __init__(
        self,
        configuration: environments_toml.Configuration,
        connectors: Connectors = _NO_CONNECTORS,
        **options: Unpack[ConnectKeywords],
    ) -> None:
        """*options* are those of `exec_server.connect`, for every client of this manager."""
        self._default = configuration.default
        self._warnings = configuration.warnings
        self._connectors = connectors
        self._options = ConnectOptions(**options)
        self._lazy = {each.id: self._new(each) for each in configuration.environments}

    # The environments.

    @property
    def default(self) -> str | None:
        """The environment that is used if none is named; None if there is no default."""
        return self._default

    @property
    def names(self) -> tuple[str, ...]:
        """All environments, the default first."""
        return tuple(sorted(self._lazy, key=lambda name: name != self._default))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Texts for people about keys of the configuration that Codex refuses."""
        return self._warnings

    def describe(self, servers: Iterable[str] | None = None) -> list[EnvironmentFacts]:
        """The facts about each environment, or about *servers*, which are names or URLs.

        Raises ConfigurationError for a name that is not configured.
        """
        wanted = self.names if servers is None else dict.fromkeys(servers)
        return [self._facts(self.resolve(each)) for each in wanted]

    def _facts(self, environment: Environment) -> EnvironmentFacts:
        name = environment.id
        return EnvironmentFacts(name, environment.kind, environment.where, name == self._default)

    def resolve(self, name_or_url: str | None = None) -> Environment:
        """The environment of a name, the default environment, or the one at a URL.

        Raises ConfigurationError for a name that is not configured.
        """
        if name_or_url is None:
            if self._default is None:
                raise ConfigurationError("no default environment: name one")
            return self._lazy[self._default].environment
        if ":" in name_or_url:
            return WebSocketEnvironment(name_or_url, name_or_url)
        return self._find(name_or_url).environment

    def _find(self, name: str) -> LazyClient:
        try:
            return self._lazy[name]
        except KeyError:
            known = ", ".join(self.names) or "none"
            raise ConfigurationError(
                f"environment `{name}` is not configured; there are: {known}"
            ) from None

    # Clients.

    async def client(self, name: str | None = None) -> ExecServerClient:
        """The shared client of an environment, connected now if it is not yet.

        Do not close it: other callers may use it, and the manager closes it.
        """
        return await self._find(self.resolve(name).id).get()

    def connect(
        self, name_or_url: str | None = None, **options: Unpack[ConnectKeywords]
    ) -> AbstractAsyncContextManager[ExecServerClient]:
        """A client that is not shared; leaving the block disconnects it. See `exec_server.connect`.

        *options* replace those of the manager.
        """
        merged = msgspec.structs.replace(self._options, **options)
        return open_environment(self.resolve(name_or_url), merged, self._connectors)

    async def status(self, name: str | None = None) -> EnvironmentStatus:
        """The status of an environment; it is not connected for that."""
        return await self._find(self.resolve(name).id).status()

    def warm_up(self) -> None:
        """Begin to connect to the servers that have a URL; programs are started on first use."""
        for lazy in self._lazy.values():
            if lazy.environment.kind == "websocket":
                lazy.start()

    async def add(
        self,
        name: str,
        url: str,
        *,
        token: str | None = None,
        connect_timeout: float = DEFAULT_LIMITS.connect_timeout,
    ) -> None:
        """Add a WebSocket environment, or replace one; the default stays what it is."""
        environments_toml.check_id(name, taken=())
        where = environments_toml.check_url(url)
        secret = None if token is None else GivenToken(token)
        old = self._lazy.get(name)
        self._lazy[name] = self._new(
            WebSocketEnvironment(name, where, secret, connect_timeout=connect_timeout)
        )
        if old is not None:
            await old.close()

    def _new(self, environment: Environment) -> LazyClient:
        return LazyClient(environment, self._options, self._connectors)

    # The end.

    async def close(self) -> None:
        """Disconnect all clients, at the same time. Idempotent."""
        await asyncio.gather(*(lazy.close() for lazy in self._lazy.values()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def load_environments(
    home: Path | None = None,
    env: Mapping[str, str] = os.environ,
    *,
    connectors: Connectors = _NO_CONNECTORS,
    **options: Unpack[ConnectKeywords],
) -> EnvironmentManager:
    """The environments of the variables and of `environments.toml` in *home*, by default Codex's.

    After these come the environments that `exec-server pair` has added. Nothing is connected yet.
    Raises ConfigurationError for a configuration that is not valid.
    """
    directory = environments_toml.home_directory(env) if home is None else home
    found = token_places.add_to(environments_toml.load(directory, env), directory, env)
    found = paired.add_to(found, paired.folder(env))
    for text in found.warnings:
        logger.warning("%s", text)
    return EnvironmentManager(found, connectors, **options)
