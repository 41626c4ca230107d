"""The kinds of environments, with what is configured for each."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import msgspec

from exec_server.limits import DEFAULT_LIMITS
from exec_server.transport.dial import is_program

Kind = Literal["local", "websocket", "program", "rendezvous"]
# Returns a token when it is needed; a token is never shown.
TokenSource = Callable[[], str]


class LocalEnvironment(msgspec.Struct, frozen=True):
    """This machine, with a server inside this process."""

    id: str
    kind: ClassVar[Kind] = "local"
    can_redial: ClassVar[bool] = True

    @property
    def where(self) -> str:
        """The address, to be shown."""
        return "this process"


class WebSocketEnvironment(msgspec.Struct, frozen=True):
    """A server at any URL that `exec_server.connect` takes."""

    id: str
    url: str
    token: TokenSource | None = None
    # The files for TLS, see `ConnectOptions`.
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    connect_timeout: float = DEFAULT_LIMITS.connect_timeout
    initialize_timeout: float = DEFAULT_LIMITS.initialize_timeout
    kind: ClassVar[Kind] = "websocket"

    @property
    def can_redial(self) -> bool:
        return not is_program(self.url)

    @property
    def where(self) -> str:
        """The URL without its query, which may contain the credentials of a relay."""
        return self.url.partition("?")[0]

    def __repr__(self) -> str:
        return f"WebSocketEnvironment({self.id!r}, {self.where!r})"


class ProgramEnvironment(msgspec.Struct, frozen=True):
    """A server that is started as a child process; each start is another server."""

    id: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = {}
    cwd: str | None = None
    initialize_timeout: float = DEFAULT_LIMITS.initialize_timeout
    kind: ClassVar[Kind] = "program"
    can_redial: ClassVar[bool] = False

    @property
    def where(self) -> str:
        """The address, to be shown."""
        return shlex.join(self.argv)

    def __repr__(self) -> str:
        return f"ProgramEnvironment({self.id!r}, {self.argv[0]!r})"


class RendezvousEnvironment(msgspec.Struct, frozen=True):
    """A server that is reached through a registry and its relay."""

    id: str
    registry_url: str
    environment_id: str
    token: TokenSource
    # The ChatGPT account, if the registry needs it.
    account_id: str | None = None
    # The file with the key of this machine; None means a new key for each process.
    identity: str | None = None
    kind: ClassVar[Kind] = "rendezvous"
    can_redial: ClassVar[bool] = True

    @property
    def where(self) -> str:
        """The address, to be shown."""
        return f"{self.registry_url} ({self.environment_id})"

    def __repr__(self) -> str:
        return f"RendezvousEnvironment({self.id!r}, {self.where!r})"


Environment = LocalEnvironment | WebSocketEnvironment | ProgramEnvironment | RendezvousEnvironment
