"""What the door opens to: a server, or one process on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import msgspec

from exec_server.client.client import ExecServerClient
from exec_server.protocol.process import Stream

# Input of a command that is passed on at once.
INPUT_BYTES = 1 << 20


class LeaveProcess(Exception):
    """The user has typed the key that leaves an attached process."""


class ShownChunk(Protocol):
    """A part of the output."""

    @property
    def stream(self) -> Stream: ...

    @property
    def data(self) -> bytes: ...


class DoorProcess(Protocol):
    """What a session needs of a process: one of its own, or one that ran before."""

    @property
    def is_terminal(self) -> bool: ...

    @property
    def signal(self) -> int | None: ...

    def __aiter__(self) -> AsyncIterator[ShownChunk]: ...

    async def wait(self) -> int: ...

    async def write(self, data: bytes) -> None: ...

    async def resize(self, rows: int, cols: int) -> None: ...

    async def send_signal(self, signum: int | str) -> None: ...


class AttachedProcess(DoorProcess, Protocol):
    """A process that ran before. Its `write` raises LeaveProcess, and ControlLost."""

    async def leave(self) -> bytes:
        """Let it run on; what restores the terminal of the one who leaves is returned."""


class AttachWish(msgspec.Struct, frozen=True, kw_only=True):
    """How an ssh client wants to take part in a process."""

    # The command of ssh.
    words: str
    # True for a person at a terminal; rows and columns of it.
    has_terminal: bool
    size: tuple[int, int] | None
    # Shows a remark as it is, on the client's standard error.
    show: Callable[[str], None]


class FilePlace(Protocol):
    """Room for one open file at a client."""

    async def client(self) -> ExecServerClient:
        """The client for this file; another one if the session of the last one is lost."""

    def leave(self) -> None:
        """The file is closed."""


class DoorTarget(msgspec.Struct, frozen=True):
    """Where the channels of one ssh connection lead to."""

    # Connects when it is first awaited, and again if the session is lost; otherwise it is the same
    # client every time. Raises ExecServerError.
    client: Callable[[], Awaitable[ExecServerClient]]
    # Attaches to the process that the host's name has named, if it has. Raises ExecServerError.
    attach: Callable[[AttachWish], Awaitable[AttachedProcess]] | None = None
    # Finds room for a file of sftp, if there is sftp.
    file_place: Callable[[], FilePlace] | None = None
