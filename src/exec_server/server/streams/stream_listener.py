"""StreamListener: a socket that accepts streams for a client."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
from collections.abc import Callable

from exec_server.server.streams.dialling import failed, read_host, resolve
from exec_server.server.streams.stream_rules import StreamRules, joined
from exec_server.transport.loopback_users import is_on_loopback, user_refusal
from exec_server.transport.stale_sockets import remove_stale_socket

logger = logging.getLogger(__name__)

# A host and a port; None for a Unix socket.
PeerAddress = tuple[str, int] | None

_BACKLOG = 128
# After a lack of descriptors it tries again so much later.
_PAUSE_SECONDS = 0.5


class StreamListener:
    """Accepts connections on *sock*, which it owns, while `on_accepted` wants more."""

    def __init__(
        self,
        listener_id: str,
        sock: socket.socket,
        *,
        window: int,
        path: str | None,
        is_for_all: bool = False,
    ) -> None:
        """Unless it *is_for_all*, a port of the loopback refuses other users of this machine."""
        sock.setblocking(False)
        self._is_private = not is_for_all and is_on_loopback(sock)
        self.id = listener_id
        self.window = window
        # After how many bytes its client acknowledges, if the client has said it.
        self.acks: int | None = None
        self.path = path
        # How many streams it has accepted.
        self.count = 0
        # Called with each connection, and where it comes from.
        self.on_accepted: Callable[[StreamListener, socket.socket, PeerAddress], None] | None = None
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._is_accepting = False

    @property
    def address(self) -> tuple[str, int] | None:
        """The host and port that it listens on; None for a Unix socket."""
        if self.path is not None:
            return None
        host, port = self._sock.getsockname()[:2]
        return host, port

    @property
    def shown(self) -> str:
        address = self.address
        return self.path or "" if address is None else joined(*address)

    def resume(self) -> None:
        if not self._is_accepting and self._sock.fileno() >= 0:
            self._is_accepting = True
            self._loop.add_reader(self._sock, self._accept)

    def pause(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._sock)

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            self.pause()
            self._sock.close()
            if self.path is not None:
                with contextlib.suppress(OSError):
                    os.unlink(self.path)

    def _accept(self) -> None:
        try:
            # The address comes with it: a connection that was reset has none any more.
            sock, peer = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:
            # There are no descriptors left, for example.
            self.pause()
            self._loop.call_later(_PAUSE_SECONDS, self.resume)
            return
        refusal = user_refusal(sock) if self._is_private else None
        if refusal is not None:
            logger.info("%s: %s", self.shown, refusal)
        if self.on_accepted is None or refusal is not None:
            sock.close()
        else:
            self.on_accepted(self, sock, None if self.path is not None else (peer[0], peer[1]))


async def bind_tcp(
    text: str, port: int, *, rules: StreamRules, seconds: float
) -> tuple[socket.socket, bool]:
    """A socket that listens on *text*, a name or an address of this machine, if the rules allow it.

    An empty name stands for the loopback. The second value is true if it is for all users.
    """
    addresses = await resolve(read_host(text or "localhost"), port, seconds=seconds)
    # The first one of a name such as `localhost` is enough, and IPv4 is what programs expect.
    address = min(addresses, key=lambda each: each.version)
    is_for_all = rules.check_listening(address, port)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
        if isinstance(address, ipaddress.IPv6Address):
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, True)
        sock.bind((str(address), port))
        sock.listen(_BACKLOG)
    except OSError as exc:
        sock.close()
        raise failed(f"cannot listen on {joined(str(address), port)}", exc) from exc
    return sock, is_for_all


def bind_unix(path: str) -> socket.socket:
    """A Unix socket at *path* for the server's own user alone; a stale one is replaced."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # The file gets this mode when it is made, so there is no moment with another one.
        os.fchmod(sock.fileno(), 0o600)
        remove_stale_socket(path)
        sock.bind(path)
        sock.listen(_BACKLOG)
    except OSError as exc:
        sock.close()
        raise failed(f"cannot listen on {path}", exc) from exc
    return sock
