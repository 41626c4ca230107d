"""The contract between a transport and whoever speaks over it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


class Receiver(Protocol):
    """Is called by a connection, always from the event loop and never after `connection_lost`."""

    def message_received(self, data: bytes) -> None:
        """One whole message arrived."""

    def writing_paused(self) -> None:
        """The peer reads more slowly than we write; what can wait should."""

    def writing_resumed(self) -> None:
        """The peer has caught up."""

    def connection_lost(self) -> None:
        """Nothing more will arrive or leave; called exactly once."""


class Assembly(Protocol):
    """Where the pieces of one message go; a piece is good only until the call ends."""

    def add(self, piece: memoryview) -> None: ...

    def is_utf8(self) -> bool:
        """Whether it may be called text; asked at the end."""

    def finish(self) -> Any:
        """What `message_received` is given."""


@runtime_checkable
class Assembler(Protocol):
    """A receiver that takes large messages piece by piece. Others get them joined."""

    def assemble(self) -> Assembly:
        """For a message that begins to arrive."""


class Connection(Protocol):
    """One live transport that carries whole messages both ways, in order."""

    # For logs and audit: what kind of transport it is and who is at its other end.
    transport_name: str
    peer_name: str

    @property
    def malformed_prefix(self) -> str | None:
        """How a malformed message is described to this peer; None when it ends the connection."""

    @property
    def unsent_bytes(self) -> int:
        """How much waits here because the peer does not read."""

    def attach(self, receiver: Receiver) -> None:
        """Deliver everything to *receiver* from now on."""

    def send(self, *parts: bytes) -> None:
        """Send one message, given in pieces. Never blocks; sending after the end does nothing."""

    def close(self, reason: str = "", *, is_violation: bool = False) -> None:
        """Send what is queued, say goodbye, end. Idempotent; `connection_lost` follows."""

    def abort(self) -> None:
        """End at once, dropping what is queued."""

    def pause_reading(self) -> None:
        """Let the peer feel that we are behind."""

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""
