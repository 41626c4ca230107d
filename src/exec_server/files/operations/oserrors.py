"""What the operating system refuses, as the wire says it."""

from __future__ import annotations

import errno
import os

from exec_server.errors import InternalError, InvalidRequest, NotFound, RpcError

_CODES: dict[int | None, type[RpcError]] = {
    errno.ENOENT: NotFound,
    errno.EACCES: InvalidRequest,
    errno.EPERM: InvalidRequest,
    errno.EINVAL: InvalidRequest,
}


def rpc_error(exc: OSError) -> RpcError:
    """The error that *exc* is to a client: its code goes by the errno alone."""
    return _CODES.get(exc.errno, InternalError)(text_of(exc))


def text_of(exc: OSError) -> str:
    number = exc.errno or 0
    return f"{os.strerror(number)} (os error {number})"


def os_error(number: int) -> OSError:
    """What a system call that fails with errno *number* raises."""
    return OSError(number, os.strerror(number))


def lossy(path: bytes) -> str:
    """A path for people to read; what is not UTF-8 in it becomes U+FFFD."""
    return path.decode("utf-8", "replace")
