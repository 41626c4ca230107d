"""The handshake: `initialize`, then the notification `initialized`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from exec_server.protocol.environment import EnvironmentInfo
from exec_server.protocol.method import Event, Method, Nothing
from exec_server.protocol.participants import Kind

Taken = Annotated[int, msgspec.Meta(ge=0)]
Counted = Annotated[int, msgspec.Meta(ge=1)]
ClientKey = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class TakeOver(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """How a client asks for a session that another connection may still hold."""

    # The generation of the connection that the client has lost. If this one holds the session, the
    # client takes it over at once. If it is left out, the server first asks the holder for a sign
    # of life.
    generation: Counted | None = None
    # A random text of this client, and the number of its attempt, which grows. With them a client
    # also takes over from its own earlier attempts, whose answers it did not receive.
    client: ClientKey | None = None
    attempt: Counted | None = None
    # True takes the session from any connection at once (capability `sessionTakeOverForce`).
    force: bool = False


class InitializeParams(msgspec.Struct, rename="camel", omit_defaults=True):
    client_name: str
    resume_session_id: str | None = None
    # Ours: how many requests the client wants to run at once. Without it they run in order, one
    # after the other.
    concurrent_requests: int | None = None
    # Ours, with a session to resume: the processes with a window that this client follows, each
    # with the last number that the client has taken. All others lose their windows.
    flow_processes: dict[str, Taken] | None = None
    # Ours, with a session to resume.
    take_over: TakeOver | None = None
    # Ours: errors of this connection have `data`, if there is more to say than code and message.
    error_details: bool = False
    # Ours: the client understands `process/presence` and `process/controlChanged`.
    sharing: bool = False
    # Ours: the client understands packed messages, and sends them if the server agrees.
    packed: bool = False


class InitializeResult(msgspec.Struct, rename="camel", omit_defaults=True):
    # The oldest servers answer `{}`, without an id.
    session_id: str | None = None
    environment_info: EnvironmentInfo | None = None
    concurrent_requests: int | None = None
    # Ours: the retention that `session/retain` has granted to this session.
    retained_seconds: float | None = None
    # Ours: how many times the session was attached, with this one, and a random text for this run
    # of the server, which alone knows the session. Clients that ask for nothing of ours are not
    # told.
    generation: int | None = None
    server_instance: str | None = None
    # Ours: both sides may send packed messages from now on.
    packed: bool = False


class RetainParams(msgspec.Struct, rename="camel"):
    # How long the server keeps the session and its ended processes while no connection holds it.
    # 0 or less asks for the server's default.
    seconds: float


class RetainResult(msgspec.Struct, rename="camel"):
    # The time that the server grants.
    seconds: float


class ProtocolDocument(msgspec.Struct):
    """The protocol as an OpenRPC document."""

    openrpc: str
    info: dict[str, Any]
    methods: list[dict[str, Any]]
    components: dict[str, Any]


class WhoamiResult(msgspec.Struct, rename="camel", omit_defaults=True):
    """The principal of this connection, as the server's operator has described it."""

    principal: str
    # The scopes that it has: `exec`, `files:read`, `files:write`, `http`, `admin`.
    may: list[str]
    # The floors and quotas that it has, by name; what is absent restricts nothing.
    floors: dict[str, Any] = {}
    quotas: dict[str, Any] = {}
    # "agent" if it cannot call itself a person in `process/watch` and `process/control`.
    kind: Kind | None = None


# Opens a session, or resumes one whose connection was lost. It is the first request.
INITIALIZE = Method(
    "initialize", InitializeParams, InitializeResult, family="lifecycle", dialect="documented"
)
# Asks the server to keep the session longer than usual while no connection holds it.
RETAIN = Method("session/retain", RetainParams, RetainResult, family="session", is_control=True)
# Shows that the other side is there. Both sides may send it.
PING = Method("session/ping", Nothing, Nothing, family="session", is_control=True)
# Tells which principal the connection belongs to, and what that may do.
WHOAMI = Method("session/whoami", Nothing, WhoamiResult, family="session", is_control=True)
# Describes the protocol as an OpenRPC document.
DISCOVER = Method("rpc.discover", Nothing, ProtocolDocument, family="session")
# The client has read the answer to `initialize`. Other requests may follow.
INITIALIZED = Event("initialized", Nothing, dialect="documented")
