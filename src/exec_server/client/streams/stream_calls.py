"""The client's calls for byte streams: `open_connection`, `start_server` and `forward`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from exec_server.client.streams.stream_place import AnyPlace, StreamPlace
from exec_server.streams.byte_stream import ByteStream

# What carries streams is loaded with the first one: most commands use none.
if TYPE_CHECKING:
    from exec_server.client.client_session import ClientSession
    from exec_server.client.streams.client_streams import ClientStreams
    from exec_server.client.streams.forwards import PortForward
    from exec_server.client.streams.remote_transport import RemoteTransport
    from exec_server.client.streams.stream_server import RemoteServer

# As in asyncio: how many bytes a line may have, and half of what a reader holds.
_LIMIT = 64 * 1024

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
F = TypeVar("F", bound="PortForward")
OnConnected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None]


class StreamCalls:
    """The part of a client that carries byte streams; servers without them raise MethodNotFound."""

    _session: ClientSession

    async def open_connection(self, host: str, port: int, *, limit: int = _LIMIT) -> Pair:
        """Connect to *host* and *port* as the server's machine sees them.

        Returns a reader and a writer, as `asyncio.open_connection` does. They continue after a lost
        connection to the server; if the session is lost, they raise ConnectionResetError. An error
        of the server's system is an OSError. By default servers allow only their loopback.
        """
        return await self._open_pair(StreamPlace.tcp(host, port), limit)

    async def open_unix_connection(
        self, path: str | os.PathLike[str], *, limit: int = _LIMIT
    ) -> Pair:
        """Connect to a Unix socket of the server's machine; see `open_connection`.

        The server's operator has to allow it.
        """
        return await self._open_pair(StreamPlace.unix(path), limit)

    async def _open_pair(self, place: StreamPlace, limit: int) -> Pair:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=limit, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await self.create_stream(lambda: protocol, place)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def create_stream(
        self, protocol_factory: Callable[[], asyncio.Protocol], place: AnyPlace | StreamPlace
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect to *place*, as `loop.create_connection` does, with a protocol of the caller."""
        where = place if isinstance(place, StreamPlace) else StreamPlace.of(place)
        stream, peer = await self._session.streams.open(where)
        try:
            protocol = protocol_factory()
        except BaseException:
            stream.break_off("the protocol could not be made")
            raise
        transport = _transport(stream, peer if peer is not None else where.path)
        transport.start(protocol)
        return transport, protocol

    async def start_server(
        self,
        client_connected_cb: OnConnected,
        host: str = "localhost",
        port: int = 0,
        *,
        limit: int = _LIMIT,
    ) -> RemoteServer:
        """Listen on a port of the server's machine, as `asyncio.start_server` does.

        The callback gets a reader and a writer for each connection. With port 0 the system there
        chooses one; `address` of the result has it. By default servers allow only their loopback.
        """
        return await self._listen(client_connected_cb, StreamPlace.tcp(host, port), limit)

    async def start_unix_server(
        self,
        client_connected_cb: OnConnected,
        path: str | os.PathLike[str],
        *,
        limit: int = _LIMIT,
    ) -> RemoteServer:
        """Listen on a Unix socket of the server's machine; see `start_server`.

        The server's operator has to allow it. The socket is for the server's user alone.
        """
        return await self._listen(client_connected_cb, StreamPlace.unix(path), limit)

    async def _listen(self, callback: OnConnected, place: StreamPlace, limit: int) -> RemoteServer:
        from exec_server.client.streams.stream_server import RemoteServer

        loop = asyncio.get_running_loop()

        def accepted(stream: ByteStream, peer: tuple[str, int] | None) -> None:
            reader = asyncio.StreamReader(limit=limit, loop=loop)
            protocol = asyncio.StreamReaderProtocol(reader, callback, loop=loop)
            _transport(stream, peer).start(protocol)

        return RemoteServer(await self._session.streams.listen(place, accepted))

    async def forward(
        self,
        listen: AnyPlace,
        to: AnyPlace,
        *,
        on_error: Callable[[str], None] | None = None,
        allow_other_users: bool = False,
    ) -> PortForward:
        """Listen on this machine, and connect each connection with *to* on the server's machine.

        Both may be a port of the loopback, a host with a port, or the path of a Unix socket.
        *on_error* is called with the reason if a connection cannot be made there. Close the result,
        or use it as a block. On the loopback, connections of other users of this machine are
        refused, unless *allow_other_users* is true.
        """
        from exec_server.client.streams.forwards import open_forward

        return await open_forward(
            self._session.streams,
            StreamPlace.of(listen),
            StreamPlace.of(to),
            on_error,
            allow_other_users=allow_other_users,
        )

    async def forward_back(
        self, listen: AnyPlace, to: AnyPlace, *, on_error: Callable[[str], None] | None = None
    ) -> RemoteServer:
        """Listen on the server's machine, and connect each connection with *to* on this machine."""
        from exec_server.client.streams.forwards import open_reverse

        return await open_reverse(
            self._session.streams, StreamPlace.of(listen), StreamPlace.of(to), on_error
        )

    async def forward_socks(
        self,
        listen: AnyPlace,
        *,
        on_error: Callable[[str], None] | None = None,
        allow_other_users: bool = False,
    ) -> PortForward:
        """Listen on this machine as a SOCKS5 proxy, whose connections begin at the server.

        Names are resolved on the server's machine. For *allow_other_users* see `forward`.
        """
        from exec_server.client.streams.forwards import SocksForward

        return await SocksForward.open(
            self._session.streams,
            StreamPlace.of(listen),
            on_error,
            allow_other_users=allow_other_users,
        )

    def forward_with(self, make: Callable[[ClientStreams], F]) -> F:
        """A forward of the caller's own kind; *make* gets what opens streams of this client."""
        return make(self._session.streams)

    def adopt_forward(self, forward: PortForward) -> None:
        """Let this client make the new connections of a forward whose own client is lost."""
        forward.use(self._session.streams)


def _transport(stream: ByteStream, peer: Any) -> RemoteTransport:
    from exec_server.client.streams.remote_transport import RemoteTransport

    return RemoteTransport(stream, {"peername": peer})
