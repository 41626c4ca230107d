"""How a client connects."""

from __future__ import annotations

import msgspec

from exec_server.limits import DEFAULT_LIMITS

DEFAULT_CLIENT_NAME = "exec-server-client"


class ExecServerClientConnectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What every transport needs; times are in seconds."""

    client_name: str = DEFAULT_CLIENT_NAME
    # For the whole handshake.
    initialize_timeout: float = DEFAULT_LIMITS.initialize_timeout
    # A session of an earlier connection to go on with; None begins a new one.
    resume_session_id: str | None = None
    # For each call that has no deadline of its own; None waits for ever.
    call_timeout: float | None = DEFAULT_LIMITS.call_timeout
    # How many calls the server is asked to run at once, so that a long poll delays nothing else.
    # Servers that do not know the question answer one call at a time.
    concurrent_requests: int = DEFAULT_LIMITS.max_concurrent_requests
    # How long a lost connection is tried to be replaced; None for as long as the server is known to
    # keep the session.
    recover_for: float | None = None


class RemoteExecServerConnectArgs(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is, and how to connect to it."""

    # Any URL that `exec_server.connect` takes.
    websocket_url: str
    client_name: str = DEFAULT_CLIENT_NAME
    # Until the WebSocket is open.
    connect_timeout: float = DEFAULT_LIMITS.connect_timeout
    initialize_timeout: float = DEFAULT_LIMITS.initialize_timeout
    resume_session_id: str | None = None
    call_timeout: float | None = DEFAULT_LIMITS.call_timeout
    # Sent as `Authorization: Bearer TOKEN`.
    auth_token: str | None = None
    # For a server behind a registry: the fingerprint of its key, or `first-use`.
    pin: str | None = None
    # Whether a lost connection is replaced and its session resumed; a program's never is.
    reconnect: bool = True
    recover_for: float | None = None

    def __repr__(self) -> str:
        token = "None" if self.auth_token is None else "..."
        return f"RemoteExecServerConnectArgs({self.websocket_url!r}, auth_token={token})"

    @property
    def options(self) -> ExecServerClientConnectOptions:
        """The part that does not depend on the transport."""
        return ExecServerClientConnectOptions(
            client_name=self.client_name,
            initialize_timeout=self.initialize_timeout,
            resume_session_id=self.resume_session_id,
            call_timeout=self.call_timeout,
            recover_for=self.recover_for,
        )
