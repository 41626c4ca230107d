"""The contract between a transport and whoever speaks over it."""

from __future__ import annotations

from typing import Protocol


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


class Connection(Protocol):
    """One live transport that carries whole messages both ways, in order."""

    # How a message that does not parse is described to this peer.
    malformed_prefix: str
    # For logs and audit: what kind of transport it is and who is at its other end.
    transport_name: str
    peer_name: str

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
