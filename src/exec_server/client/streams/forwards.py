"""Forwards: ports of this machine that lead to the server's machine, and the other way round."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Self

from exec_server.client.streams import socks5
from exec_server.client.streams.client_streams import ClientStreams
from exec_server.client.streams.stream_place import StreamPlace
from exec_server.client.streams.stream_server import RemoteServer
from exec_server.errors import ExecServerError
from exec_server.streams.byte_stream import ByteStream
from exec_server.streams.socket_bridge import SocketBridge
from exec_server.transport.loopback_users import is_on_loopback, user_refusal
from exec_server.transport.stale_sockets import remove_stale_socket

OnError = Callable[[str], None]

_BACKLOG = 128


class PortForward:
    """A listener on this machine; leaving its block closes it, with the connections that it has."""

    def __init__(
        self,
        owner: ClientStreams,
        sock: socket.socket,
        to: StreamPlace,
        on_error: OnError | None,
        *,
        allow_other_users: bool = False,
    ) -> None:
        self._owner = owner
        # An address beyond the loopback is for other machines, too.
        self._is_private = not allow_other_users and is_on_loopback(sock)
        self._sock = sock
        self._to = to
        self._on_error = on_error
        self._path: str | None = sock.getsockname() if sock.family == socket.AF_UNIX else None
        self._tasks: set[asyncio.Task[None]] = set()
        self._bridged: set[ByteStream] = set()
        self._accepting = asyncio.get_running_loop().create_task(self._accept(), name="forward")
        self.connections = 0

    @property
    def address(self) -> tuple[str, int] | str:
        """The host and port that it listens on, or the path of a Unix socket."""
        if self._path is not None:
            return self._path
        host, port = self._sock.getsockname()[:2]
        return host, port

    def use(self, owner: ClientStreams) -> None:
        """Make new connections over another client from now on."""
        self._owner = owner

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(self._sock)
            except OSError as exc:
                # There are no descriptors left, for example.
                self._report(f"cannot accept a connection: {exc}")
                await asyncio.sleep(0.5)
                continue
            self.connections += 1
            task = loop.create_task(self._serve(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, sock: socket.socket) -> None:
        refusal = user_refusal(sock) if self._is_private else None
        if refusal is not None:
            self._report(refusal)
            reset(sock)
            return
        try:
            stream = await self._connect(sock)
        except (ExecServerError, OSError) as exc:
            self._report(in_words(exc))
            reset(sock)
        except BaseException:
            sock.close()
            raise
        else:
            if stream is None:
                sock.close()
            else:
                self._bridge(sock, stream)

    async def _connect(self, sock: socket.socket) -> ByteStream | None:
        """The stream for a connection that was accepted; None if there is none."""
        return (await self._owner.open(self._to))[0]

    def _bridge(self, sock: socket.socket, stream: ByteStream) -> None:
        self._bridged.add(stream)
        SocketBridge(
            sock, stream, self._owner.turns, on_closed=lambda: self._bridged.discard(stream)
        )

    def _report(self, text: str) -> None:
        if self._on_error is not None:
            self._on_error(text)

    def close(self) -> None:
        """Stop listening, and end the connections."""
        self._accepting.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        self._sock.close()
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        for stream in tuple(self._bridged):
            stream.break_off("the forward is closed")

    async def wait_closed(self) -> None:
        """Wait until nothing of it is left, after `close`."""
        await asyncio.wait([self._accepting, *self._tasks])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        await self.wait_closed()


class SocksForward(PortForward):
    """A SOCKS5 proxy on this machine, whose connections begin at the server."""

    @classmethod
    async def open(
        cls,
        owner: ClientStreams,
        listen: StreamPlace,
        on_error: OnError | None,
        *,
        allow_other_users: bool = False,
    ) -> SocksForward:
        sock = await listening_socket(listen)
        return cls(owner, sock, StreamPlace(), on_error, allow_other_users=allow_other_users)

    async def _connect(self, sock: socket.socket) -> ByteStream | None:
        try:
            place = await socks5.asked_place(sock)
        except socks5.NotSocks as exc:
            self._report(str(exc))
            return None
        try:
            stream, _ = await self._owner.open(place)
        except (ExecServerError, OSError) as exc:
            self._report(f"{place}: {in_words(exc)}")
            await socks5.refuse(sock, exc)
            return None
        try:
            await socks5.confirm(sock)
        except BaseException as exc:
            stream.break_off("the program has left")
            if isinstance(exc, OSError):
                return None
            raise
        return stream


async def open_forward(
    owner: ClientStreams,
    listen: StreamPlace,
    to: StreamPlace,
    on_error: OnError | None,
    *,
    allow_other_users: bool = False,
) -> PortForward:
    """Listen on *listen* here for connections to *to* there."""
    sock = await listening_socket(listen)
    return PortForward(owner, sock, to, on_error, allow_other_users=allow_other_users)


async def open_reverse(
    owner: ClientStreams, listen: StreamPlace, to: StreamPlace, on_error: OnError | None
) -> RemoteServer:
    """Listen on *listen* there for connections to *to* here."""
    tasks: set[asyncio.Task[None]] = set()

    async def connect(stream: ByteStream) -> None:
        try:
            sock = await _connected_socket(to)
        except OSError as exc:
            if on_error is not None:
                on_error(f"{to}: {exc.strerror or exc}")
            stream.break_off(f"{to}: {exc.strerror or exc}")
        else:
            SocketBridge(sock, stream, owner.turns)

    def accepted(stream: ByteStream, _peer: tuple[str, int] | None) -> None:
        task = asyncio.get_running_loop().create_task(connect(stream))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    return RemoteServer(await owner.listen(listen, accepted))


async def listening_socket(place: StreamPlace) -> socket.socket:
    """A socket of this machine that listens on *place*; a stale one is replaced. Raises OSError."""
    if place.path is not None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        address: tuple[str, int] | str = place.path
    else:
        family, address = await _resolved(place)
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
    try:
        sock.setblocking(False)
        if place.path is not None:
            # The file gets this mode when it is made.
            os.fchmod(sock.fileno(), 0o600)
            remove_stale_socket(place.path)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError as exc:
        sock.close()
        raise OSError(exc.errno, f"cannot listen on {place}: {exc.strerror}") from exc
    return sock


async def _connected_socket(place: StreamPlace) -> socket.socket:
    if place.path is not None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        address: tuple[str, int] | str = place.path
    else:
        family, address = await _resolved(place)
        sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _resolved(place: StreamPlace) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """The first address of a place; IPv4 is what programs expect of `localhost`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, (str(address[0]), int(address[1]))


def in_words(exc: ExecServerError | OSError) -> str:
    """*exc* without the number that Python puts before the text of an OSError."""
    if isinstance(exc, OSError) and not isinstance(exc, ExecServerError):
        return exc.strerror or str(exc)
    return str(exc)


def reset(sock: socket.socket) -> None:
    """Close *sock* in such a way that its program sees an error."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, (1).to_bytes(4, "little") + bytes(4))
    sock.close()
