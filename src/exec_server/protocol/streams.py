"""`stream/*`: byte streams to ports and Unix sockets of the server's machine.

Both ends send `stream/data`, `stream/end`, `stream/ack` and `stream/reset`. Positions count bytes
from the start of one direction. The end of a direction takes one position as well, so an
acknowledgement of one more than all bytes says that the end was taken.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.protocol.base64 import Blob
from exec_server.protocol.method import Event, Method, Nothing
from exec_server.protocol.numbers import Count

FAMILY = "stream"

StreamId = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
StreamWindow = Annotated[int, msgspec.Meta(ge=1)]


class OpenParams(msgspec.Struct, rename="camel", omit_defaults=True):
    # The client chooses the id. A repeated request with the same id is answered like the first.
    stream_id: StreamId
    # Either a host and a port, or the path of a Unix socket.
    host: str | None = None
    port: Port | None = None
    path: str | None = None
    # How many bytes may be sent and not acknowledged, in each direction.
    window: StreamWindow | None = None
    # After how many bytes the client acknowledges at the latest; without it, after a quarter of the
    # window.
    acks: StreamWindow | None = None


class OpenResult(msgspec.Struct, rename="camel", omit_defaults=True):
    # The size of the window that the server grants.
    window: int
    # The address that the server has connected to; absent for a Unix socket.
    address: str | None = None
    port: int | None = None
    # After how many bytes the server acknowledges at the latest.
    acks: int | None = None


class ListenParams(msgspec.Struct, rename="camel", omit_defaults=True):
    listener_id: StreamId
    # Either a host and a port (0 lets the system choose), or the path of a Unix socket.
    host: str | None = None
    port: Port | None = None
    path: str | None = None
    # The window of each stream that is accepted, and when the client acknowledges its bytes.
    window: StreamWindow | None = None
    acks: StreamWindow | None = None


class ListenResult(msgspec.Struct, rename="camel", omit_defaults=True):
    address: str | None = None
    port: int | None = None
    path: str | None = None


class CloseParams(msgspec.Struct, rename="camel"):
    # Streams and listeners. Streams that are not over are reset.
    ids: list[StreamId]


class HeldStream(msgspec.Struct, rename="camel"):
    # All bytes up to this position have been received.
    received: Count


class ResumeParams(msgspec.Struct, rename="camel", omit_defaults=True):
    # The streams that the client still has; the server drops all others.
    streams: dict[str, HeldStream] = {}
    # The listeners that the client still has, each with the number of the last stream of it that
    # the client was told of.
    listeners: dict[str, Count] = {}


class ResumedStream(msgspec.Struct, rename="camel", omit_defaults=True):
    # All bytes up to this position have been received.
    received: int = 0
    # True if the stream is over and the server has taken everything; it was not broken off.
    over: bool = False
    # Why the stream was broken off, or that the server does not know it.
    reset: str | None = None


class ResumeResult(msgspec.Struct, rename="camel"):
    streams: dict[str, ResumedStream]
    # The listeners that the server still has.
    listeners: list[str]


class StreamListParams(msgspec.Struct, rename="camel", omit_defaults=True):
    # False lists those of this session, true those of all sessions of the principal.
    all: bool = False


class StreamInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    id: str
    kind: Literal["stream", "listener"]
    # Where it leads, or where it listens: `127.0.0.1:80` or a path.
    address: str
    session: str
    # For a stream: what has come from the client, and what was sent to it.
    bytes_in: int = 0
    bytes_out: int = 0
    # For a stream that was accepted: its listener.
    listener_id: str | None = None


class StreamListResult(msgspec.Struct, rename="camel"):
    streams: list[StreamInfo]


class DataEvent(msgspec.Struct, rename="camel", gc=False):
    stream_id: str
    # The position of the first byte.
    position: Count
    chunk: Blob


class EndEvent(msgspec.Struct, rename="camel", omit_defaults=True):
    stream_id: str
    # The number of bytes before the end.
    position: Count
    # True if the sender does not take data any more either.
    closed: bool = False


class StreamAckEvent(msgspec.Struct, rename="camel", gc=False):
    stream_id: str
    # Everything before this position was taken.
    position: Count


class ResetEvent(msgspec.Struct, rename="camel"):
    stream_id: str
    reason: str


class AcceptedEvent(msgspec.Struct, rename="camel", omit_defaults=True):
    listener_id: str
    stream_id: str
    # The streams of a listener are numbered from 1.
    number: int
    window: int
    # The address of the other end; absent for a Unix socket.
    address: str | None = None
    port: int | None = None
    # After how many bytes the server acknowledges at the latest.
    acks: int | None = None


class PortsParams(msgspec.Struct, rename="camel", omit_defaults=True):
    # Only those of this process of the session; None stands for all processes of the session.
    process_id: str | None = None
    # True asks for the processes of all sessions of the principal.
    all: bool = False


class ListeningPort(msgspec.Struct, rename="camel"):
    port: int
    # The addresses that it listens on, such as `127.0.0.1` and `::`.
    addresses: list[str]
    process_id: str
    pid: int
    # The name of the program that listens.
    command: str | UnsetType = UNSET


class PortsResult(msgspec.Struct, rename="camel"):
    ports: list[ListeningPort]


# Connects to a TCP port or a Unix socket, as the server's machine sees it.
OPEN = Method("stream/open", OpenParams, OpenResult, family=FAMILY)
# Listens on a TCP port or a Unix socket of the server's machine.
LISTEN = Method("stream/listen", ListenParams, ListenResult, family=FAMILY)
# Ends streams and listeners at once.
CLOSE = Method("stream/close", CloseParams, Nothing, family=FAMILY, is_control=True)
# After a lost connection: continues streams where both ends were, and drops all others.
RESUME = Method("stream/resume", ResumeParams, ResumeResult, family=FAMILY, is_control=True)
# Lists streams and listeners.
LIST = Method("stream/list", StreamListParams, StreamListResult, family=FAMILY, is_control=True)
# Lists the TCP ports that processes of the client listen on, also those that a process has left.
PORTS = Method("process/ports", PortsParams, PortsResult, family="exec", is_control=True)

# Bytes of a stream. Both sides send it.
DATA = Event("stream/data", DataEvent)
# One direction of a stream has ended. Both sides send it.
END = Event("stream/end", EndEvent)
# Everything before a position was taken, so that more may be sent. Both sides send it.
ACK = Event("stream/ack", StreamAckEvent)
# The stream was broken off. Both sides send it.
RESET = Event("stream/reset", ResetEvent)
# A listener has accepted a stream.
ACCEPTED = Event("stream/accepted", AcceptedEvent)

# The events that a client sends as well.
FROM_CLIENTS: dict[str, Event[Any]] = {event.name: event for event in (DATA, END, ACK, RESET)}

# Most messages are data, so these are put together from prepared pieces.
_encode = msgspec.json.Encoder().encode
DATA_TAIL = b'"}}'


def data_head(stream_id: str) -> bytes:
    """The message of a `stream/data` up to its position; `DATA_MIDDLE` and the base64 follow."""
    return b'{"method":"%b","params":{"streamId":%b,"position":' % (
        DATA.name.encode(),
        _encode(stream_id),
    )


DATA_MIDDLE = b',"chunk":"'
