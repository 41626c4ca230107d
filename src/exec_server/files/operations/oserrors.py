"""Errors of the operating system as errors of the protocol."""

from __future__ import annotations

import errno
import os

from exec_server.errors import InternalError, InvalidRequest, NotFound, RpcError
from exec_server.protocol.paths import to_uri

_CODES: dict[int | None, type[RpcError]] = {
    errno.ENOENT: NotFound,
    errno.EACCES: InvalidRequest,
    errno.EPERM: InvalidRequest,
    errno.EINVAL: InvalidRequest,
}


def rpc_error(exc: OSError) -> RpcError:
    """The error for the client; its code depends only on the errno."""
    error = _CODES.get(exc.errno, InternalError)(text_of(exc))
    error.errno = exc.errno
    name = exc.filename
    # A name without its directory, or the name of a descriptor, means nothing to the client.
    if isinstance(name, bytes) and name.startswith(b"/") and not name.startswith(b"/proc/self/fd/"):
        error.path = to_uri(name)
    return error


def text_of(exc: OSError) -> str:
    number = exc.errno or 0
    return f"{os.strerror(number)} (os error {number})"


def os_error(number: int) -> OSError:
    """The exception of a system call that fails with errno *number*."""
    return OSError(number, os.strerror(number))


def lossy(path: bytes) -> str:
    """A path as text for people; bytes that are not UTF-8 become U+FFFD."""
    return path.decode("utf-8", "replace")
