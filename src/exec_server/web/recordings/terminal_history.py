"""What the terminals of the page have shown, so that a person can go back in them.

Each is a recording in a private directory, which is removed with the program. With *kept* the
recordings are made where `exec-server recordings` finds them, and stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from exec_server.audit.masking import PLAIN
from exec_server.recording.cast_format import CastHeader
from exec_server.recording.recorder import RecordedTerminal, TerminalRecorder
from exec_server.recording.recording_files import INDEX_SUFFIX

# A history that is larger begins anew with the current screen: a jump in it takes below a second.
LONGEST = 32 * 1024 * 1024
_TEMPORARY_QUOTA = 512 * 1024 * 1024
_KEPT_QUOTA = 1024 * 1024 * 1024
# How long a person who goes back waits for the disk.
_WRITE_SECONDS = 30.0
_PREFIX = "exec-server-page-"
_LOCK = "lock"
# A directory that is made at this moment is not locked yet.
_NEW_SECONDS = 60.0


class TerminalHistories:
    """Makes the histories of terminals. Raises OSError if the directory cannot be written."""

    def __init__(self, kept: str | None = None, *, secrets: Iterable[str] = ()) -> None:
        """*secrets* are texts that are never written."""
        self._lock: int | None = None
        self._temporary: Path | None = None
        if kept is None:
            self._temporary, self._lock = _private_directory()
        self._recorder = TerminalRecorder(
            kept or str(self._temporary),
            quota=_TEMPORARY_QUOTA if kept is None else _KEPT_QUOTA,
            secrets=secrets,
        )

    def begin(
        self, argv: list[str], size: tuple[int, int], draw: Callable[[], bytes]
    ) -> TerminalHistory:
        """The history of one terminal; *draw* gives what paints its current screen."""
        return TerminalHistory(
            self._recorder, argv, size, draw, is_temporary=self._temporary is not None
        )

    def close(self) -> None:
        """Write what waits, and remove what is not kept. It may block for some seconds."""
        self._recorder.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class TerminalHistory:
    """The history of one terminal."""

    def __init__(
        self,
        recorder: TerminalRecorder,
        argv: list[str],
        size: tuple[int, int],
        draw: Callable[[], bytes],
        *,
        is_temporary: bool,
    ) -> None:
        self._recorder = recorder
        self._argv = argv
        self._size = size
        self._draw = draw
        self._is_temporary = is_temporary
        self._written = 0
        self._recorded = self._record()

    @property
    def path(self) -> str | None:
        """The recording; None until its file is made."""
        return self._recorded.path

    async def written(self) -> None:
        """Wait until everything that was shown is in the file, within a limited time."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):
                # The loop may have ended meanwhile.
                loop.call_soon_threadsafe(done.set)

        self._recorder.put(tell)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WRITE_SECONDS):
                await done.wait()

    def output(self, data: bytes) -> None:
        self._written += len(data)
        if self._is_temporary and self._written > LONGEST:
            self._begin_anew()
        else:
            self._recorded.output(0, "pty", data)

    def resized(self, size: tuple[int, int]) -> None:
        self._size = size
        self._recorded.resized(size[1], size[0])

    def repainted(self, size: tuple[int, int], data: bytes) -> None:
        """The screen begins anew with *data*."""
        self.resized(size)
        self.output(b"\x1bc" + data)

    def driven(self, name: str, kind: str) -> None:
        self._recorded.driven(name, kind)

    def close(self, status: int | None) -> None:
        """The terminal has ended, or is left; what is not kept is removed by `forget`."""
        self._recorded.exit_status = lambda: status
        self._recorded.closed()

    def forget(self) -> None:
        """Remove the file, unless it is kept."""
        if self._is_temporary:
            self._recorder.put(partial(_remove, self._recorded))

    def _record(self) -> RecordedTerminal:
        header = CastHeader(
            columns=self._size[0],
            rows=self._size[1],
            started=time.time(),
            command=shlex.join(PLAIN.command(self._argv)),
            term="xterm-256color",
        )
        name = os.path.basename(self._argv[0]) if self._argv else "terminal"
        return self._recorder.record(name, header)

    def _begin_anew(self) -> None:
        self._recorded.closed()
        self.forget()
        self._recorded = self._record()
        screen = self._draw()
        self._written = len(screen)
        self._recorded.output(0, "pty", screen)


def _remove(recorded: RecordedTerminal) -> None:
    if recorded.path is not None:
        for path in (recorded.path, recorded.path + INDEX_SUFFIX):
            with contextlib.suppress(OSError):
                os.unlink(path)


def _private_directory() -> tuple[Path, int]:
    """A new directory, and a lock on it, which ends with the process."""
    base = Path(tempfile.gettempdir())
    _remove_leftovers(base)
    made = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getuid()}-", dir=base))
    lock = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return made, lock


def _remove_leftovers(base: Path) -> None:
    """Remove the directories of programs that were killed."""
    for left in base.glob(f"{_PREFIX}{os.getuid()}-*"):
        with contextlib.suppress(OSError):
            stat = left.lstat()
            is_new = time.time() - stat.st_mtime < _NEW_SECONDS
            if left.is_symlink() or stat.st_uid != os.getuid() or is_new:
                continue
            lock = os.open(left / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(lock)
