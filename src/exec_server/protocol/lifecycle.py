"""The handshake: `initialize`, then the notification `initialized`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from exec_server.protocol.environment import EnvironmentInfo
from exec_server.protocol.method import Event, Method, Nothing

Taken = Annotated[int, msgspec.Meta(ge=0)]


class InitializeParams(msgspec.Struct, rename="camel", omit_defaults=True):
    client_name: str
    resume_session_id: str | None = None
    # Ours: how many requests the client wants to run at once. Without it they run in order, one
    # after the other.
    concurrent_requests: int | None = None
    # Ours, with a session to resume: the processes with a window that this client follows, each
    # with the last number that the client has taken. All others lose their windows.
    flow_processes: dict[str, Taken] | None = None


class InitializeResult(msgspec.Struct, rename="camel", omit_defaults=True):
    # The oldest servers answer `{}`, without an id.
    session_id: str | None = None
    environment_info: EnvironmentInfo | None = None
    concurrent_requests: int | None = None
    # Ours: the retention that `session/retain` has granted to this session.
    retained_seconds: float | None = None


class RetainParams(msgspec.Struct, rename="camel"):
    # How long the server keeps the session and its ended processes while no connection holds it.
    # 0 or less asks for the server's default.
    seconds: float


class RetainResult(msgspec.Struct, rename="camel"):
    # The time that the server grants.
    seconds: float


INITIALIZE = Method("initialize", InitializeParams, InitializeResult, family="lifecycle")
# This method is ours.
RETAIN = Method("session/retain", RetainParams, RetainResult, family="session", is_control=True)
INITIALIZED = Event("initialized", Nothing)
