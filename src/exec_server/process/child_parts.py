"""What a process is connected with: its client, its outputs and its input, and what confines it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from exec_server.limits import Limits
from exec_server.process.echo_first import EchoFirst
from exec_server.process.pump import OutputGate
from exec_server.sandbox.model import Backend
from exec_server.state.retention import RetentionBudget
from exec_server.state.window import WindowBudget


class NumberedSize(NamedTuple):
    """The size of a terminal after the output with the number *seq*."""

    seq: int
    rows: int
    cols: int


class Outlet(Protocol):
    """Where events go: the client, while one is attached."""

    gate: OutputGate

    def push(self, *parts: bytes) -> None: ...

    def push_bulk(self, before: bytes, data: bytes, after: bytes) -> None:
        """Send an event in which the base64 of *data* stands between two texts."""

    def interrupt(self) -> None:
        """Lose the connection: an event could not be sent."""

    @property
    def is_attached(self) -> bool: ...


class ChildHome(NamedTuple):
    """What all processes of a session have in common."""

    outlet: Outlet
    limits: Limits
    windows: WindowBudget
    # The output of all processes that is retained, if it has a common bound.
    retention: RetentionBudget | None
    echo_first: EchoFirst


class Network(Protocol):
    """The way of a process to the network, which lives as long as the process."""

    def listen(self) -> dict[str, str]:
        """Begin to listen; return the variables that point the process at it."""

    def hold(self, on_failure: Callable[[str], object]) -> tuple[int, int] | None:
        """Descriptors that hold a sandbox before it runs its command; see `RequestedCommand`.

        The command runs once the network can be reached. *on_failure* is called with the reason if
        that never happens, and has to end the process.
        """

    def started(self) -> None:
        """The process runs."""

    def stop_asking(self) -> None: ...

    def close(self) -> None: ...


class Reader(Protocol):
    """Reads one output of a process; see `Pump`."""

    @property
    def is_ended(self) -> bool: ...

    def fileno(self) -> int: ...

    def resume(self) -> None: ...

    def expect_bulk(self, chunk_bytes: int) -> None: ...

    def drain(self, max_bytes: int) -> None: ...

    def close(self) -> None: ...


class ProcessInput(Protocol):
    """The stdin of a process; see `Stdin`."""

    @property
    def is_closing(self) -> bool: ...

    def write(self, data: bytes) -> asyncio.Future[None] | None: ...

    def end(self) -> None: ...

    def close(self) -> None: ...


class InputGuard(Protocol):
    """Knows whether the session of a process may type to it; see `SharedProcess`."""

    def check_owner_input(self) -> None:
        """Raise ControlLost if another participant drives."""

    def check_owner_size(self, rows: int, cols: int) -> None: ...

    @property
    def viewers(self) -> int:
        """How many look on besides the session."""

    @property
    def other_driver(self) -> str | None:
        """The name of the participant that drives instead of the session, if one does."""

    def close(self) -> None: ...


class Sandbox(Protocol):
    """The confinement of a process."""

    backend: Backend
    # Why the command is not run, if it is not.
    refusal: str | None
