"""Recordings for tests: made up, or of real programs."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from exec_server.recording.cast_format import CastEvent, CastHeader
from exec_server.recording.cast_reader import CastReader
from exec_server.recording.cast_writer import CastWriter
from tests.support.wire import PATIENCE

COLUMNS, ROWS = 80, 24


def write_cast(
    path: Path,
    chunks: Iterable[bytes],
    *,
    header: CastHeader | None = None,
    secrets: Iterable[str] = (),
    step: float = 1.0,
) -> Path:
    """A recording whose chunks come *step* seconds after one another."""
    writer = CastWriter(path, header or CastHeader(columns=COLUMNS, rows=ROWS), secrets=secrets)
    moment = 0.0
    for chunk in chunks:
        writer.output(moment, chunk)
        moment += step
    writer.exited(moment, 0)
    writer.close(moment)
    return path


def events(path: Path) -> list[CastEvent]:
    return [event for event, _ in CastReader(path).events()]


def output(path: Path) -> str:
    return "".join(event.data for event in events(path) if event.code == "o")


def program_output(
    argv: Sequence[str], keys: Sequence[tuple[bytes, bytes]], *, home: Path
) -> list[bytes]:
    """What a program prints on a terminal; each key is typed when the text before it was shown."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", LC_ALL="C.UTF-8", HOME=str(home))
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "ASCIINEMA_CONFIG_HOME"):
            os.environ.pop(name, None)
        os.execvp(argv[0], list(argv))
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    chunks: list[bytes] = []
    left = list(keys)
    deadline = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            if left and left[0][0] in b"".join(chunks):
                os.write(fd, left.pop(0)[1])
            ready, _, _ = select.select([fd], [], [], 0.2)
            if ready:
                try:
                    data = os.read(fd, 4096)
                except OSError:
                    break
                if not data:
                    break
                chunks.append(data)
    finally:
        os.close(fd)
        os.waitpid(pid, 0)
    assert not left, f"{left[0][0]!r} was not shown: {b''.join(chunks)[-500:]!r}"
    return chunks
