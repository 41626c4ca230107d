"""The descriptors of one program, and our ends of them."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

from exec_server.process.keeping.c_parts import socket
from exec_server.process.keeping.kept_descriptors import close_all, descriptors


class Stdio:
    """The descriptors of one program: its own three, and our ends of them."""

    def __init__(self) -> None:
        self.ours: list[int] = []
        # The program's stdin (None for /dev/null), stdout and stderr.
        self.theirs: tuple[int | None, int, int] = (None, 1, 2)
        self.terminal: str | None = None
        self._opened: list[int] = []

    def open_pipes(self, wants_stdin: bool | str) -> None:
        out_reader, out_writer = self._pipe()
        err_reader, err_writer = self._pipe()
        self.ours = [out_reader, err_reader]
        self.theirs = (None, out_writer, err_writer)
        if wants_stdin:
            in_reader, in_writer = self._packets() if wants_stdin == "socket" else self._pipe()
            self.ours.append(in_writer)
            self.theirs = (in_reader, out_writer, err_writer)

    def open_terminal(self, size: tuple[int, int]) -> None:
        master, slave = os.openpty()
        self._opened += (master, slave)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.terminal = os.ttyname(slave)
        self.ours = [master, master]
        self.theirs = (slave, slave, slave)

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._opened += ends
        return ends

    def _packets(self) -> tuple[int, int]:
        theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ends = theirs.detach(), ours.detach()
        self._opened += ends
        return ends

    def keep_outputs(self) -> list[int]:
        """Our ends of the outputs once more, for the caller, who has to close them."""
        kept: list[int] = []
        try:
            kept.extend(map(descriptors.kept, self.ours[: 2 if self.terminal is None else 1]))
        except OSError:
            close_all(kept)
            raise
        return kept

    def close(self) -> None:
        close_all(self._opened)
