"""Standard input, output and error, so that a closed or full one is an error and not a crash.

This module loads little: it runs before anything else.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import sys
from collections.abc import Iterator

# Type checkers know this name; `typing` takes a while to load.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import TextIO

_NAMES = {1: "standard output", 2: "standard error"}
# A closed input is empty. A closed output gets a descriptor that cannot be written to, so that a
# program notices that its output is lost. A closed error stream takes messages and drops them.
_MODES = {0: os.O_RDONLY, 1: os.O_RDONLY, 2: os.O_WRONLY}


class OutputFailed(Exception):
    """Standard output or error cannot be written to, for example because a disk is full.

    This is no OSError: code that handles the errors of files must not catch it.
    """

    def __init__(self, fd: int, error: OSError) -> None:
        super().__init__(f"{_NAMES[fd]}: {error.strerror}")


class _OutputFile(io.FileIO):
    """Standard output; a write that fails raises OutputFailed."""

    def write(self, data: object) -> int:
        with output_errors(self.fileno()):
            return super().write(data)  # type: ignore[arg-type]


class _ErrorFile(io.FileIO):
    """Standard error; a message that cannot be written is dropped."""

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError:
            return memoryview(data).nbytes  # type: ignore[arg-type]


@contextlib.contextmanager
def output_errors(fd: int) -> Iterator[None]:
    """Turn the errors of a write to *fd* into OutputFailed.

    BrokenPipeError stays as it is. So does EIO, which a write to a closed terminal gives.
    """
    try:
        yield
    except (BrokenPipeError, BlockingIOError, InterruptedError):
        raise
    except OSError as exc:
        if fd not in _NAMES or (exc.errno == errno.EIO and _is_device(fd)):
            raise
        raise OutputFailed(fd, exc) from exc


def prepare() -> None:
    """Reopen closed standard descriptors, and make the errors of the streams noticeable.

    Without this, the next file or socket that is opened would get the number of a closed one.
    """
    for fd, mode in _MODES.items():
        try:
            os.fstat(fd)
        except OSError:
            _reopen(fd, mode)
    # A test that has replaced a stream keeps its own.
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(_OutputFile(1, "w", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(_ErrorFile(2, "w", closefd=False), sys.stderr, is_error=True)


def finish() -> None:
    """Write everything that is buffered. Raises OutputFailed or BrokenPipeError."""
    sys.stdout.flush()


def discard() -> None:
    """Drop buffered output, so that the interpreter does not fail when it flushes at its end."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)


def print_or_log(text: str) -> None:
    """Print a line that a server can do without; a failure is logged."""
    try:
        print(text, flush=True)
    except (OutputFailed, OSError) as exc:
        import logging

        logging.getLogger(__name__).error("cannot print `%s`: %s", text, exc)
        discard()


def say_farewell(text: str) -> None:
    """Tell a person on stderr what goes on without the server, if stderr still works."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def report(error: OutputFailed) -> int:
    """Say why output failed; the exit status is returned."""
    from exec_server.cli import exit_codes

    print(f"Error: {error}", file=sys.stderr)
    return exit_codes.FAILED


def _is_device(fd: int) -> bool:
    return stat.S_ISCHR(os.fstat(fd).st_mode)


def _reopen(fd: int, mode: int) -> None:
    opened = os.open(os.devnull, mode)
    if opened != fd:
        os.dup2(opened, fd)
        os.close(opened)
    # Programs that are started here need their standard descriptors, too.
    os.set_inheritable(fd, True)


def _stream(raw: io.FileIO, before: TextIO | None, *, is_error: bool = False) -> TextIO:
    """A text stream over *raw*, with the encoding of the one that Python has made, if it has."""
    is_line_buffered = is_error or raw.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(before, "encoding", None) or "utf-8",
        errors=getattr(before, "errors", None) or ("backslashreplace" if is_error else "strict"),
        line_buffering=is_line_buffered,
        write_through=is_error,
    )
