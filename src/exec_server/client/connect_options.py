"""How a client connects: every option of `connect` is one field of one struct in this module.

    SessionOptions                      for every kind of connection
      ExecServerClientConnectOptions    + for the handshake
      RemoteExecServerConnectArgs       + the URL; for `ExecServerClient.connect_websocket`
      ConnectOptions                    + for every environment: `environments()`, `manager.connect`
        UrlOptions                      + for a URL: `connect`

The keyword arguments of `connect` and `environments` are generated from ConnectOptions and
UrlOptions by `scripts/sync_twin.py` (connect_keywords.py). All times are in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from exec_server.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from ssl import SSLContext

    from exec_server.client.network_policy import OnPolicyDecision, OnPolicyRequest
    from exec_server.client.session_link import ConnectionState

S = TypeVar("S", bound=msgspec.Struct)

DEFAULT_CLIENT_NAME = "exec-server-client"


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that every kind of connection takes."""

    client_name: str = DEFAULT_CLIENT_NAME
    # The deadline of a call that has no deadline of its own; None waits for ever.
    call_timeout: float | None = DEFAULT_LIMITS.call_timeout
    # How long the client tries to replace a lost connection; None: as long as the server is known
    # to keep the session.
    recover_for: float | None = None


class ExecServerClientConnectOptions(SessionOptions, frozen=True, kw_only=True):
    """Options for a connection that exists already."""

    # For the whole handshake.
    initialize_timeout: float = DEFAULT_LIMITS.initialize_timeout
    # The session of an earlier connection that is resumed; None begins a new session.
    resume_session_id: str | None = None
    # How many calls the server is asked to run at once, so that a long poll delays nothing else.
    # Servers that do not know this parameter answer one call at a time.
    concurrent_requests: int = DEFAULT_LIMITS.max_concurrent_requests


class RemoteExecServerConnectArgs(SessionOptions, frozen=True, kw_only=True):
    """The URL of a server, and how to connect to it."""

    # `ws://`, `wss://`, `unix://` or `stdio:`; other schemes are passed beside it.
    websocket_url: str
    # Until the WebSocket is open.
    connect_timeout: float = DEFAULT_LIMITS.connect_timeout
    initialize_timeout: float = DEFAULT_LIMITS.initialize_timeout
    resume_session_id: str | None = None
    # It is sent as `Authorization: Bearer TOKEN`.
    auth_token: str | None = None
    # For a server behind a registry: the fingerprint of its key, or `first-use`.
    pin: str | None = None
    # True if a lost connection is replaced and its session resumed; that of a program never is.
    reconnect: bool = True

    def __repr__(self) -> str:
        token = "None" if self.auth_token is None else "..."
        return f"RemoteExecServerConnectArgs({self.websocket_url!r}, auth_token={token})"


class ConnectOptions(SessionOptions, frozen=True, kw_only=True):
    """Options that a caller may give for any environment; see `connect`."""

    # It replaces the token that is configured for the environment. A function is called for each
    # connection, so that the token can be replaced while the client runs.
    token: str | Callable[[], str] | None = None
    # For a server behind a registry: the fingerprint of its key, or `first-use`. It is refused for
    # other servers.
    pin: str | None = None
    # From `session_token()` of an earlier client, whose session is resumed.
    session_token: str | None = None
    # True takes that session from a client that still holds it and is there; it loses the session.
    take_over: bool = False
    # True if a lost connection is replaced and its session resumed; that of a program never is.
    reconnect: bool = True
    on_state: Callable[[ConnectionState], None] | None = None
    on_policy_request: OnPolicyRequest | None = None
    on_policy_decision: OnPolicyDecision | None = None
    # The authorities of servers' certificates (PEM), instead of the system's.
    ca_file: str | None = None
    # The client's certificate (PEM), and its key if that is in a file of its own.
    client_cert: str | None = None
    client_key: str | None = None
    # It replaces the three files.
    ssl_context: SSLContext | None = None
    limits: Limits = DEFAULT_LIMITS

    def __repr__(self) -> str:
        # The tokens are secret.
        return f"{type(self).__name__}(client_name={self.client_name!r})"


class UrlOptions(ConnectOptions, frozen=True, kw_only=True):
    """Options for a server at a URL; the configuration of an environment has its own times."""

    # Until the transport is open.
    connect_timeout: float = DEFAULT_LIMITS.connect_timeout
    # For the whole handshake.
    initialize_timeout: float = DEFAULT_LIMITS.initialize_timeout
    # The session of an earlier connection that is resumed; None begins a new session.
    resume_session_id: str | None = None


def as_options(kind: type[S], source: msgspec.Struct, **changes: Any) -> S:
    """A *kind* with the values of the fields that it shares with *source*, and with *changes*."""
    shared = {*kind.__struct_fields__} & {*source.__struct_fields__} - {*changes}
    return kind(**{name: getattr(source, name) for name in shared}, **changes)
