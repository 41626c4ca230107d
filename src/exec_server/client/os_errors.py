"""Errors of the server's operating system as OSErrors, beside our own classes."""

from __future__ import annotations

import errno
import re
from typing import Any

from exec_server.errors import RpcError

_OS_ERROR = r"(?:\A|: )([^:]*?) ?\(os error (\d{1,9})\)\Z"
# Refusals without a number, as every server words them.
_REFUSALS = {
    "path contains a symbolic link": errno.ELOOP,
    "directory already exists": errno.EEXIST,
    "fs/copy requires recursive: true when sourcePath is a directory": errno.EISDIR,
}
# Python has a class for other numbers as well, but most kinds of ConnectionError, and TimeoutError,
# would be taken for errors of the connection to the server.
_OS_KINDS: dict[int, type[OSError]] = {
    errno.ENOENT: FileNotFoundError,
    errno.EACCES: PermissionError,
    errno.EPERM: PermissionError,
    errno.EISDIR: IsADirectoryError,
    errno.ENOTDIR: NotADirectoryError,
    errno.EEXIST: FileExistsError,
    errno.ECONNREFUSED: ConnectionRefusedError,
}
# The classes that were needed so far.
_classes: dict[tuple[type[RpcError], type[OSError]], type[RpcError]] = {}


def as_os_error(error: RpcError) -> RpcError:
    """*error* as an exception that is an OSError as well, if its errno is known or in its text."""
    if isinstance(error, OSError):
        return error
    found = re.search(_OS_ERROR, error.message)
    number = error.errno or _REFUSALS.get(error.message) or (int(found[2]) if found else None)
    if number is None:
        return error
    key = type(error), _OS_KINDS.get(number, OSError)
    if key not in _classes:
        _classes[key] = _made_class(*key)
    # The server's own words: on its system the number may mean something else than here.
    text = found[1] if found else error.message
    return _like(error, _classes[key](error.message), number, text)


def _like(error: RpcError, new: RpcError, number: int, text: str) -> RpcError:
    assert isinstance(new, OSError)
    new.errno, new.strerror, new.args = number, text, error.args
    vars(new).update({name: value for name, value in vars(error).items() if name != "errno"})
    return new


def _made_class(kind: type[RpcError], os_kind: type[OSError]) -> type[RpcError]:
    """A class of both; the members of OSError are where RpcError has None."""
    members = {
        "__module__": __name__,
        "__reduce__": _reduced,
        "errno": OSError.errno,
        "strerror": OSError.strerror,
        # The name that OSError has for it.
        "filename": property(_path),
    }
    return type(os_kind.__name__, (kind, os_kind), members)


def _path(error: RpcError) -> str | None:
    return error.path


def _reduced(error: RpcError) -> tuple[Any, ...]:
    """How it is pickled: as an error of our own, which becomes an OSError again."""
    return _rebuilt, (type(error).__bases__[0], error.message, error.errno, error.args, vars(error))


def _rebuilt(
    kind: type[RpcError], message: str, number: int, args: Any, facts: dict[str, Any]
) -> RpcError:
    error = kind(message)
    error.errno, error.args = number, args
    vars(error).update(facts)
    return as_os_error(error)
