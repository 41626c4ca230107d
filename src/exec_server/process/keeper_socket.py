"""The server's end of the socket to a keeper: whole messages, with descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import marshal
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from exec_server.process.keeping.kept_descriptors import close_all
from exec_server.process.keeping.server_messages import CLOEXEC, FD, MAX_FDS, RECV_BYTES

_RECV_BYTES = RECV_BYTES
_RECV_FDS = socket.CMSG_SPACE(MAX_FDS * FD.size)
# Both ends may run different interpreters, and all of them know this format.
_MARSHAL_VERSION = 4
# The kernel itself takes a connection, unless many others wait already.
_CONNECT_SECONDS = 5.0


class KeeperSocket:
    """Sends and receives messages on *sock*, which it owns.

    *on_message* gets each message; *on_lost* is called once, when the other end is gone;
    *on_refused* gets a message whose descriptors the kernel does not take, and the reason.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        on_message: Callable[[tuple[Any, ...]], None],
        on_lost: Callable[[], None],
        on_refused: Callable[[tuple[Any, ...], int], None],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._on_message = on_message
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._input = bytearray()
        # How much has come before `_input`, up to the end of the message that is being handled; and
        # descriptors that no message has taken, each with a place in its message.
        self._handled = 0
        self._fds: deque[tuple[int, list[int]]] = deque()
        # Messages that wait for room, each with the descriptors that leave with its first byte.
        self._outbox: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._loop.add_reader(sock, self._on_readable)

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, message: tuple[Any, ...], fds: tuple[int, ...] = ()) -> None:
        """Send *message*, and close *fds* once they have left."""
        if self._is_closed:
            close_all(fds)
            return
        data = marshal.dumps(message, _MARSHAL_VERSION)
        self._outbox.append((len(data).to_bytes(4, "big") + data, fds))
        if len(self._outbox) == 1:
            self._flush()

    def take_fds(self) -> list[int]:
        """The descriptors of the message that is being handled."""
        if not self._fds or self._fds[0][0] > self._handled:
            return []
        return self._fds.popleft()[1]

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        while self._fds:
            close_all(self._fds.popleft()[1])
        self._clear_outbox()

    def _flush(self) -> None:
        while self._outbox and not self._is_closed:
            data, fds = self._outbox[0]
            try:
                sent = socket.send_fds(self._sock, [data], fds) if fds else self._sock.send(data)
            except BlockingIOError:
                self._loop.add_writer(self._sock, self._flush)
                return
            except OSError as exc:
                if exc.errno != errno.ETOOMANYREFS:
                    # Nothing more can be sent; what the other end has sent can still be read.
                    self._clear_outbox()
                    break
                # The kernel bounds how many descriptors may be in flight.
                self._on_refused(marshal.loads(data[4:]), exc.errno)
                sent = len(data)
            close_all(fds)
            if sent < len(data):
                self._outbox[0] = (data[sent:], ())
            else:
                self._outbox.popleft()
        if not self._is_closed:
            self._loop.remove_writer(self._sock)

    def _clear_outbox(self) -> None:
        while self._outbox:
            close_all(self._outbox.popleft()[1])

    def _on_readable(self) -> None:
        """Act on everything that has arrived.

        It reads until the socket is empty: if the keeper has ended with a message of ours unread,
        uvloop calls this only once more.
        """
        while not self._is_closed and (data := self._receive()) is not None:
            if data:
                self._on_data(data)
            else:
                self.close()
                self._on_lost()

    def _receive(self) -> bytes | None:
        """The next bytes; empty at the end of file, None if there are none now."""
        try:
            data, ancillary, flags, _ = self._sock.recvmsg(_RECV_BYTES, _RECV_FDS, CLOEXEC)
        except BlockingIOError:
            return None
        except OSError:
            return b""
        # The kernel returns no byte that was sent after those with which the descriptors came. If
        # this process has no room for more descriptors, they are missing, and a flag says so.
        if ancillary or flags & socket.MSG_CTRUNC:
            fds = [fd for *_, raw in ancillary for (fd,) in FD.iter_unpack(raw)]
            self._fds.append((self._handled + len(self._input) + len(data), fds))
        return data

    def _on_data(self, data: bytes) -> None:
        self._input += data
        while len(self._input) >= 4 and not self._is_closed:
            end = 4 + int.from_bytes(self._input[:4], "big")
            if len(self._input) < end:
                return
            message = _decoded(self._input[4:end])
            del self._input[:end]
            self._handled += end
            self._deliver(message)
            close_all(self.take_fds())

    def _deliver(self, message: tuple[Any, ...]) -> None:
        try:
            self._on_message(message)
        except Exception as exc:
            # The messages behind it are for others, who wait for them.
            text = f"a message of a keeper was not handled: {message[:1]!r:.80}"
            self._loop.call_exception_handler({"message": text, "exception": exc})


def _decoded(data: bytearray) -> tuple[Any, ...]:
    """A message; empty if it is none, which a keeper of another release may send."""
    try:
        message = marshal.loads(data)
    except (ValueError, EOFError, TypeError):
        return ()
    return message if isinstance(message, tuple) else ()


def connect(path: str, key: bytes, *, seconds: float = _CONNECT_SECONDS) -> socket.socket | None:
    """A connection to the keeper that listens at *path* and knows *key*; None if there is none.

    Raises TimeoutError if a keeper takes no connection for so many *seconds*: it hangs.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # With `settimeout` the kernel would refuse at once while others wait.
    limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    with contextlib.ExitStack() as stack:
        stack.callback(sock.close)
        try:
            sock.connect(path)
            sock.sendall(key)
        except (FileNotFoundError, ConnectionError):
            return None
        except BlockingIOError as exc:
            raise TimeoutError from exc
        stack.pop_all()
    return sock


def listen(path: str) -> socket.socket:
    """A socket that listens at *path*, where no keeper listens any more."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.ExitStack() as stack:
        stack.callback(sock.close)
        sock.bind(path)
        sock.listen(8)
        stack.pop_all()
    return sock
