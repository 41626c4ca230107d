"""Any program on a terminal of its own, for tests without an event loop."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from types import TracebackType
from typing import Self

_PATIENCE = 60


class PtyProgram:
    """A program on a terminal; the terminal exists before `start`."""

    def __init__(
        self, argv: list[str], *, env: dict[str, str], rows: int = 30, cols: int = 90
    ) -> None:
        self._argv = argv
        self._env = env
        self._fd, self._far = pty.openpty()
        self._shown = b""
        self._process: subprocess.Popen[bytes] | None = None
        self.resize(rows, cols)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._fd)
        os.close(self._far)

    def resize(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self._far, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def set_modes(self, *, ixon: bool, erase: bytes) -> None:
        modes = termios.tcgetattr(self._far)
        modes[0] = modes[0] | termios.IXON if ixon else modes[0] & ~termios.IXON
        modes[6][termios.VERASE] = erase
        termios.tcsetattr(self._far, termios.TCSANOW, modes)

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._argv,
            stdin=self._far,
            stdout=self._far,
            stderr=self._far,
            env=self._env,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def until(self, text: bytes) -> None:
        """Wait until *text* is shown; the next call looks after it."""
        deadline = time.monotonic() + _PATIENCE
        while text not in self._shown:
            assert self._read(deadline - time.monotonic()), f"{text!r} not in {self._shown!r}"
        self._shown = self._shown[self._shown.index(text) + len(text) :]

    def until_raw(self) -> None:
        """Wait until the program takes keys as they are; before, Ctrl-C is a signal for itself."""
        deadline = time.monotonic() + _PATIENCE
        while termios.tcgetattr(self._far)[3] & termios.ISIG:
            assert time.monotonic() < deadline, f"its terminal is not raw: {self._shown!r}"
            self._read(0.01)

    def wait(self) -> int:
        """The exit status; what is shown meanwhile is read, so that the program can end."""
        assert self._process is not None
        deadline = time.monotonic() + _PATIENCE
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"it did not end: {self._shown!r}"
            self._read(0.05)
        return self._process.returncode

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._fd], [], [], max(0.0, seconds))
        with contextlib.suppress(OSError):
            if ready:
                self._shown += os.read(self._fd, 65536)
        return bool(ready)
