"""What the door opens to: a server, or one process on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from exec_server.client.client import ExecServerClient
from exec_server.client.process.remote_process import RemoteProcess

# Input of a command that is passed on at once.
INPUT_BYTES = 1 << 20


class DoorTarget(msgspec.Struct, frozen=True):
    """Where the channels of one ssh connection lead to."""

    # Connects when it is first awaited; the same client every time. Raises ExecServerError.
    client: Callable[[], Awaitable[ExecServerClient]]
    # Attaches to the process that the host's name has named, if it has. Raises ExecServerError.
    attach: Callable[[], Awaitable[RemoteProcess]] | None = None
