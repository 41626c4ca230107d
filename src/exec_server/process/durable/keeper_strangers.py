"""Connections to the durable keeper that have not sent its key yet.

The keeper imports this file, so it imports the standard library only.
"""

from __future__ import annotations

import functools
import os
import socket
import struct

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

KEY_BYTES = 32
# Connections that have not sent the key yet; the oldest gives way to a new one.
MAX_STRANGERS = 8


class KeeperStrangers:
    """Admits a connection once it has sent *key*.

    *watch* and *unwatch* begin and end to wait for a descriptor; *admit* gets the connection.
    """

    def __init__(
        self,
        listener: socket.socket,
        key: bytes,
        *,
        watch: Callable[[int, Callable[[], object]], None],
        unwatch: Callable[[int], None],
        admit: Callable[[socket.socket], None],
    ) -> None:
        self._listener = listener
        self._key = key
        self._watch = watch
        self._unwatch = unwatch
        self._admit = admit
        # What each connection has sent of the key.
        self._strangers: dict[socket.socket, bytes] = {}

    def accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] != os.geteuid():
            sock.close()
            return
        sock.setblocking(False)
        if len(self._strangers) >= MAX_STRANGERS:
            self._turn_away(next(iter(self._strangers)))
        self._strangers[sock] = b""
        self._watch(sock.fileno(), functools.partial(self._identify, sock))
        self._identify(sock)

    def _identify(self, sock: socket.socket) -> None:
        """Read the key from a new connection, and nothing beyond it."""
        said = self._strangers[sock]
        try:
            more = sock.recv(KEY_BYTES - len(said))
        except BlockingIOError:
            return
        except OSError:
            more = b""
        said += more
        if more and len(said) < KEY_BYTES:
            self._strangers[sock] = said
        elif _is_same(said, self._key):
            self._unwatch(sock.fileno())
            del self._strangers[sock]
            self._admit(sock)
        else:
            self._turn_away(sock)

    def _turn_away(self, sock: socket.socket) -> None:
        del self._strangers[sock]
        self._unwatch(sock.fileno())
        sock.close()

    def turn_all_away(self) -> None:
        for stranger in tuple(self._strangers):
            self._turn_away(stranger)


def _is_same(said: bytes, key: bytes) -> bool:
    """True if both are the same key; takes as long for each wrong one."""
    differences = sum(a != b for a, b in zip(said, key, strict=False))
    return len(said) == len(key) == KEY_BYTES and not differences
