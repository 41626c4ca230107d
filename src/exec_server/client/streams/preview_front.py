"""PreviewFront: web pages of a server's ports, each port at an origin of its own.

A page of port 3000 of the server `build` is at `http://p3000.build.localhost:PORT`. The front reads
the head of the first request of a connection, to see which port it is for. From then on the bytes
pass as they are, so that WebSockets, server-sent events and uploads work, and the program sees the
same Host in all of them. A request with any other Host is refused: a page of another origin could
otherwise reach the program by a name of its own that leads to this machine.

Some programs refuse every name except `localhost`. For them the front can say that name, in Host
and in the page's own Origin. It knows the first request of a connection alone, so each connection
then has one request, or becomes a WebSocket.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable

from exec_server.client.streams.client_streams import ClientStreams
from exec_server.client.streams.forwards import PortForward, in_words
from exec_server.client.streams.stream_place import StreamPlace
from exec_server.errors import ExecServerError
from exec_server.streams.byte_stream import ByteStream

_HEAD_BYTES = 64 * 1024
_SECONDS = 60.0
_HOST = re.compile(rb"\r\nhost:[ \t]*([^\r\n]*?)[ \t]*(?=\r\n)", re.IGNORECASE)
# Names of this machine that no foreign page can have.
_OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")
_LABEL = re.compile(r"[^a-z0-9]+")


def host_label(server: str) -> str:
    """The name of a server as a part of a host name."""
    text = server.partition("://")[2] or server
    return _LABEL.sub("-", text.partition("?")[0].lower())[:63].strip("-") or "server"


class PreviewFront(PortForward):
    """Serves *ports* of a server on *sock*; *label* names the server."""

    def __init__(
        self,
        owner: ClientStreams,
        sock: socket.socket,
        label: str,
        ports: set[int],
        on_error: Callable[[str], None] | None,
        *,
        as_localhost: bool = False,
        allow_other_users: bool = False,
    ) -> None:
        super().__init__(owner, sock, StreamPlace(), on_error, allow_other_users=allow_other_users)
        self._as_localhost = as_localhost
        self._label = label
        self._ports = ports
        self._port = sock.getsockname()[1]

    def show(self, port: int) -> None:
        """Serve one more port."""
        self._ports.add(port)

    def hide(self, port: int) -> None:
        """Serve a port no longer; connections that it has go on."""
        self._ports.discard(port)

    def url(self, port: int) -> str:
        """The address of the page of *port*."""
        return f"http://p{port}.{self._label}.localhost:{self._port}/"

    async def _connect(self, sock: socket.socket) -> ByteStream | None:
        try:
            async with asyncio.timeout(_SECONDS):
                head = await _read_head(sock)
        except TimeoutError:
            head = None
        if head is None:
            return None
        port = self._asked_port(head)
        if port is None:
            await _answer(sock, "421 Misdirected Request", self._advice(head))
            return None
        try:
            stream, _ = await self._owner.open(StreamPlace("localhost", port))
        except (ExecServerError, OSError) as exc:
            self._report(f"port {port}: {in_words(exc)}")
            text = f"Port {port} of {self._label} does not answer: {in_words(exc)}"
            await _answer(sock, "502 Bad Gateway", text)
            return None
        if self._as_localhost:
            head = renamed_head(head, self.url(port).rstrip("/"), port)
        stream.write(head)
        return stream

    def _advice(self, head: bytes) -> str:
        """What is answered to another Host. A page of a foreign name could read it."""
        name = (_asked_host(head) or "").removesuffix(f":{self._port}")
        if name not in _OWN_NAMES and not name.endswith(".localhost"):
            return "This is no page of that name."
        return f"The pages here are: {' '.join(self.url(port) for port in sorted(self._ports))}"

    def _asked_port(self, head: bytes) -> int | None:
        """The port that the Host of a request names; None if it is not exactly one of ours."""
        asked = _asked_host(head)
        for port in self._ports:
            if asked == f"p{port}.{self._label}.localhost:{self._port}":
                return port
        return None


def _asked_host(head: bytes) -> str | None:
    """The Host of a request; None if it has none, or several."""
    hosts = _HOST.findall(head.partition(b"\r\n\r\n")[0] + b"\r\n")
    return hosts[0].decode("latin-1").lower() if len(hosts) == 1 else None


def renamed_head(data: bytes, origin: str, port: int) -> bytes:
    """*data*, which begins with the head of a request, with `localhost` in place of *origin*.

    Another origin than the page's own is left as it is: the program has to see it. Except for a
    WebSocket, the connection ends with the answer.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    fields = [(line.partition(b":")[0].strip().lower(), line) for line in lines]
    is_upgrade = any(name == b"upgrade" for name, _ in fields)
    renamed = [first]
    for name, line in fields:
        if name == b"host":
            line = b"Host: localhost:%d" % port
        elif name == b"origin" and line.partition(b":")[2].strip() == origin.encode():
            line = b"Origin: http://localhost:%d" % port
        elif name in (b"connection", b"keep-alive") and not is_upgrade:
            continue
        renamed.append(line)
    if not is_upgrade:
        renamed.append(b"Connection: close")
    return b"\r\n".join(renamed) + end + rest


async def _read_head(sock: socket.socket) -> bytes | None:
    """What has come up to the end of the first head, and maybe more; None if it is too long."""
    loop = asyncio.get_running_loop()
    data = b""
    while b"\r\n\r\n" not in data:
        if len(data) > _HEAD_BYTES:
            await _answer(sock, "431 Request Header Fields Too Large", "The request is too long.")
            return None
        more = await loop.sock_recv(sock, 65536)
        if not more:
            return None
        data += more
    return data


async def _answer(sock: socket.socket, status: str, text: str) -> None:
    body = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nX-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    with contextlib.suppress(OSError):
        await asyncio.get_running_loop().sock_sendall(sock, head.encode() + body)
        sock.shutdown(socket.SHUT_WR)
