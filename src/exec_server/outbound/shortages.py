"""Failures because this machine, or this process, has run out of something."""

from __future__ import annotations

import errno
import os
import socket

# Descriptors of the process and of the machine, memory, threads and buffers.
_SHORTAGES = (
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.ENOBUFS,
)
_NO_THREAD = "can't start new thread"

# These may be caused by a shortage without being an OSError.
UNUSUAL = (MemoryError, RuntimeError, ImportError)


def shortage(error: BaseException) -> str | None:
    """Say what has run out, in the words of the operating system; None for other failures."""
    number = _number(error)
    return None if number is None else f"{os.strerror(number)} (os error {number})"


def _number(error: BaseException) -> int | None:
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, RuntimeError):
        return errno.EAGAIN if _NO_THREAD in str(error) else None
    if isinstance(error, OSError):
        if _of_resolver(error) == socket.EAI_MEMORY:
            return errno.ENOMEM
        if error.errno in _SHORTAGES:
            return error.errno
    # A library that cannot be loaded, and several failures in one, say it in their text.
    if isinstance(error, OSError | ImportError):
        text = str(error)
        return next((each for each in _SHORTAGES if os.strerror(each) in text), None)
    return None


def _of_resolver(error: OSError) -> int | None:
    """Return the code of a failed resolution; aiohttp wraps the exception that has it."""
    inner = getattr(error, "os_error", error)
    return inner.errno if isinstance(inner, socket.gaierror) else None
