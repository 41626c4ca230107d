"""Programs that tests start, kill, pause and start again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.servers import tied


class ClosesAtExit:
    """A context manager that calls `close` at the end of its block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError


class Daemon:
    """A program whose output goes to a log file. It ends with the thread that starts it."""

    def __init__(
        self, folder: Path, name: str, words: Sequence[str | Path], **options: Any
    ) -> None:
        """*options* are those of `subprocess.Popen`."""
        self._log = folder / f"{name}.log"
        self._name = name
        self._words = words
        self._options = options
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def is_wanted(self) -> bool:
        """True if it was started and not killed since."""
        return self._child is not None

    @property
    def has_ended(self) -> bool:
        """True if it has ended by itself."""
        return self._child is not None and self._child.poll() is not None

    @property
    def is_running(self) -> bool:
        return self.is_wanted and not self.has_ended

    @property
    def pid(self) -> int:
        assert self._child is not None, f"{self._name} does not run"
        return self._child.pid

    def start(self) -> None:
        """Start it, and do not wait until it is ready."""
        assert not self.is_running, f"{self._name} runs"
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                [*tied(), *self._words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                **self._options,
            )

    def signal(self, signum: int) -> None:
        assert self._child is not None, f"{self._name} does not run"
        self._child.send_signal(signum)

    def pause(self) -> None:
        """Stop it until `resume`; return when all of its threads have stopped."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    @property
    def returncode(self) -> int | None:
        return None if self._child is None else self._child.poll()

    def wait(self, timeout: float) -> None:
        """Wait for its end; raises subprocess.TimeoutExpired."""
        if self._child is not None:
            self._child.wait(timeout)

    def kill(self) -> None:
        """Send SIGKILL, and return when it is gone. It need not run."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace")
