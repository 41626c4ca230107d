"""Messages from and to the server, with the descriptors that come along.

A message is a length (4 bytes, big endian) and a marshalled tuple; both ends run the same
interpreter. Descriptors are attached to its first byte.

To the keeper::

    ("spawn", token, program, argv, env, cwd, size, wants_stdin, fence, mark, settings)
                                   size: (rows, cols) or None; wants_stdin: True for a pipe,
                                   "socket" for one that keeps packets apart; fence, mark: see below
                                   settings: a dict or None; "reports" asks for facts at the exit;
                                   "limits": see below
    ("signal", pid, signum)        to the group that pid leads
    ("echo",)                      answered by the same, once all messages before it are done
    ("limit", pid, name)           the program that pid leads has reached this limit: kill its tree
    ("end", mark, mask)            kill every process whose mark equals this one where mask has bits
    ("stop", grace)                end everything: by SIGTERM, and SIGHUP on a terminal; after grace
                                   seconds, or when another message comes, by SIGKILL

A mark tells to which start a process belongs, see tree_marks.py.

A fence confines the program (see sandbox/in_keeper.py, which is loaded when there is one). It says
first what it is and how many descriptors are attached to the message's first byte::

    None
    ("as", count, (uid, gid, groups), fence)           the program runs as this user, and behind
                                   the inner fence, if there is one; see sandbox/as_user.py
    ("confine", count, drops_capabilities, filter)     one descriptor at most: a Landlock ruleset
    ("bubblewrap", count, inherited, markers, expected, has_gate)
                                   program is bubblewrap; it inherits so many descriptors as 3 and
                                   up, then one to report on and one to read from before it runs
                                   the command; the next descriptor, if has_gate, is read from
                                   before that, too; the other descriptors are locks on these
                                   markers of placeholders; expected: see sandbox/guard.py

If a supervisor has to record what is refused, a last word has its orders, and a first descriptor is
its socket to the server (see sandbox/supervisor). If it dies, its program is killed.

A command in bubblewrap runs once a guard, which is a child of the keeper, has found the expected
mounts. If it does not find them, the exit status is NOT_RUN. A signal to a program in bubblewrap is
for the command inside. Its exit is reported once all processes inside are gone, and so is
everything that was made for them on the host. While it runs its mounts are watched, and it is
killed when a program outside has taken one away (see sandbox/wall_watch.py).

Limits are None or a dict of what the program and its descendants may use, by the names of
protocol/resources.py; `require` refuses the start if they cannot be held, and `ours` are processes
of the server, which may be moved to another control group. process/limiting/ has the rest.

From the keeper, with descriptors attached to the first byte::

    ("spawned", token, pid, fds, granted)
                                   fds: how many follow: stdout, stderr[, stdin]; or the
                                   terminal twice, to read from and to write to; granted: what
                                   became of each limit, if there are any
    ("failed", token, errno, text, part)   part: "cwd", "program" or "limits", or "" for none
    ("exited", pid, status, why, facts)    status as waitpid(2) gives it; why the keeper has killed
                                   the program, if it has; and what is known of its end (see
                                   exit_facts.py and process/limiting): both are left out if there
                                   is nothing to say
"""

from __future__ import annotations

import marshal
import struct

from exec_server.process.keeping.c_parts import socket

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The most descriptors that one message can bring, by the kernel's own limit.
MAX_FDS = 253
# More than this is allocated by mmap(2), which takes longer than to receive a usual message.
RECV_BYTES = 1 << 16
FD = struct.Struct("i")
# The flag is absent on some systems. (`socket.recv_fds` of 3.11 does not pass it on.)
CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class ServerMessages:
    """The messages of the server at the other end of *sock*."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._input = bytearray()
        # The descriptors of each "spawn" that was begun and not yet handled.
        self._fds: list[list[int]] = []

    def _receive(self) -> bool:
        """Receive what has arrived; False when the server is gone."""
        try:
            data, ancillary, flags, _ = self._sock.recvmsg(
                RECV_BYTES, socket.CMSG_SPACE(MAX_FDS * FD.size), CLOEXEC
            )
        except ConnectionError:
            return False
        # The kernel never joins messages that carry descriptors.
        if ancillary or flags & socket.MSG_CTRUNC:
            self._fds.append([fd for *_, raw in ancillary for (fd,) in FD.iter_unpack(raw)])
        self._input += data
        return bool(data)

    def _handle_input(self) -> bool:
        """Act on every whole message; False when one of them says stop."""
        while len(self._input) >= 4:
            end = 4 + int.from_bytes(self._input[:4], "big")
            if len(self._input) < end:
                break
            message = marshal.loads(self._input[4:end])
            del self._input[:end]
            if not self._handle(message):
                return False
        return True

    def _handle(self, message: tuple[Any, ...]) -> bool:
        """Act on *message*; False when it says stop."""
        raise NotImplementedError

    def _send(self, message: tuple[Any, ...], fds: list[int] | None = None) -> None:
        data = marshal.dumps(message)
        data = len(data).to_bytes(4, "big") + data
        try:
            # This is `socket.send_fds`, which the part in C does not have.
            rights = b"".join(map(FD.pack, fds or ()))
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if rights else []
            sent = self._sock.sendmsg([data], ancillary)
            if sent < len(data):
                self._sock.sendall(data[sent:])
        except ConnectionError:
            # The server is gone; the next receive says so.
            pass


class StartRequest:
    """One start, as a message "spawn" asks for it."""

    __slots__ = (
        "argv",
        "cwd",
        "env",
        "fence",
        "limits",
        "mark",
        "program",
        "settings",
        "size",
        "wants_report",
        "wants_stdin",
    )

    def __init__(
        self,
        program: bytes,
        argv: list[bytes],
        env: dict[bytes, bytes],
        cwd: bytes,
        size: tuple[int, int] | None,
        wants_stdin: bool | str,
        fence: tuple[Any, ...] | None = None,
        mark: int = 0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.program = program
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.size = size
        self.wants_stdin = wants_stdin
        self.fence = fence
        self.mark = mark
        self.settings = settings
        self.wants_report = settings is not None and bool(settings.get("reports"))
        self.limits: dict[str, Any] | None = None if settings is None else settings.get("limits")
