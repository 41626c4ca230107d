"""The contract between a transport and its user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from exec_server.transport.socket_owner import UnixOwner


class Receiver(Protocol):
    """The user of a connection. It is called from the event loop, never after `connection_lost`."""

    def message_received(self, data: bytes) -> None:
        """One whole message arrived."""

    def writing_paused(self) -> None:
        """The peer reads more slowly than we write; messages that can wait should wait."""

    def writing_resumed(self) -> None:
        """The peer has caught up."""

    def connection_lost(self) -> None:
        """Nothing more will arrive or leave; called exactly once."""


class Assembly(Protocol):
    """Takes the pieces of one message; each piece is valid only until its call ends."""

    def add(self, piece: memoryview) -> None: ...

    def is_utf8(self) -> bool:
        """True if all of it is UTF-8; called at the end."""

    def finish(self) -> Any:
        """Return the argument for `message_received`."""


class Assembler(Protocol):
    """A receiver that takes large messages piece by piece. Other receivers get them joined."""

    def assemble(self) -> Assembly:
        """Return the Assembly for a message that begins to arrive."""

    def cut(self, data: memoryview) -> Any:
        """Take a whole message from a buffer that is reused after the call.

        Return the argument for `message_received`, which then is UTF-8; or None to get a copy.
        """

    def join(self, pieces: Sequence[bytes | memoryview]) -> Any:
        """Return the argument for `message_received` for a message that came in *pieces*."""


@runtime_checkable
class Audible(Protocol):
    """A connection that notices bytes before they are a whole message."""

    @property
    def arrived(self) -> object:
        """A value that changes whenever bytes have come."""

    @property
    def departed(self) -> object:
        """A value that changes while a large backlog leaves; the peer then cannot answer yet."""


@runtime_checkable
class Pingable(Protocol):
    """A connection whose other end answers pings without the help of its user."""

    def ping(self) -> None:
        """Ask for a sign of life."""


class Identity(Protocol):
    """Who a peer is, as the server that the connection is for has found out."""

    @property
    def name(self) -> str: ...


@runtime_checkable
class LocalConnection(Protocol):
    """A connection whose other end may be a process of this machine that is known."""

    # None if it is not known.
    owner: UnixOwner | None


class Connection(Protocol):
    """One live transport that carries whole messages both ways, in order."""

    # For logs and audit: the kind of transport, and the address of the peer.
    transport_name: str
    peer_name: str
    # Who the peer is, if the transport knows it; None stands for the user of this process.
    principal: str | None
    # The same with the rights that it has, for the server alone.
    identity: Identity | None

    @property
    def malformed_prefix(self) -> str | None:
        """The beginning of the error for a malformed message; None if that ends the connection."""

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes that wait here because the peer does not read."""

    def attach(self, receiver: Receiver) -> None:
        """Deliver everything to *receiver* from now on."""

    def send(self, message: bytes, *more: bytes) -> None:
        """Send one message, maybe in pieces. Never blocks; sending after the end does nothing."""

    def close(self, reason: str = "", *, is_violation: bool = False) -> None:
        """Send what is queued, say goodbye, end. Idempotent; `connection_lost` follows."""

    def abort(self) -> None:
        """End at once, dropping what is queued."""

    def pause_reading(self) -> None:
        """Stop reading, so that the peer has to wait."""

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""


@runtime_checkable
class BytesConnection(Protocol):
    """A connection whose messages may be any bytes, and not only text."""

    carries_bytes: bool

    def send_bytes(self, *parts: bytes) -> None:
        """`Connection.send` for a message that is not text."""


def bytes_sender(connection: Connection) -> Callable[..., None] | None:
    """The `send_bytes` of *connection*; None if it carries only text."""
    if isinstance(connection, BytesConnection) and connection.carries_bytes:
        return connection.send_bytes
    return None


def introduce(connection: Connection, identity: Identity | None) -> None:
    """Tell *connection* who its peer is."""
    connection.identity = identity
    connection.principal = None if identity is None else identity.name
