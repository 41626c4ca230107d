"""Which scopes a request of each method needs. A method that is missing here needs `admin`."""

from __future__ import annotations

from typing import Any

from exec_server.access.principal import Scope
from exec_server.protocol import (
    denials,
    environment,
    file_delta,
    file_search,
    file_watch,
    fs,
    http,
    jobs,
    lifecycle,
    process,
    screen,
    sharing,
    streams,
)
from exec_server.protocol.method import Method

# Every principal may use these.
_FREE: tuple[Scope, ...] = ()
_EXEC: tuple[Scope, ...] = ("exec",)
_READ: tuple[Scope, ...] = ("files:read",)
_WRITE: tuple[Scope, ...] = ("files:write",)
_BOTH: tuple[Scope, ...] = ("files:read", "files:write")
_ADMIN: tuple[Scope, ...] = ("admin",)

NEEDS: dict[Method[Any, Any], tuple[Scope, ...]] = {
    lifecycle.INITIALIZE: _FREE,
    lifecycle.RETAIN: _FREE,
    lifecycle.PING: _FREE,
    lifecycle.WHOAMI: _FREE,
    lifecycle.DISCOVER: _FREE,
    environment.INFO: _FREE,
    environment.STATUS: _FREE,
    # These read files of the machine.
    environment.READ_CONFIG: _READ,
    environment.DISCOVER_ROOTS: _READ,
    environment.DISCOVER: _READ,
    process.START: _EXEC,
    process.READ: _EXEC,
    process.WRITE: _EXEC,
    process.SIGNAL: _EXEC,
    process.TERMINATE: _EXEC,
    process.RESIZE: _EXEC,
    process.CLOSE_STDIN: _EXEC,
    process.LIST: _EXEC,
    # A process of another principal needs `admin`, see the handler.
    sharing.WATCH: _EXEC,
    sharing.UNWATCH: _EXEC,
    sharing.CONTROL: _EXEC,
    screen.SCREEN: _EXEC,
    screen.WAIT_FOR: _EXEC,
    denials.DENIALS: _EXEC,
    # A principal with floors is granted nothing, see the handler.
    denials.GRANT: _EXEC,
    # With `all` they need `admin`, see the handlers.
    jobs.LIST: _EXEC,
    jobs.PRUNE: _EXEC,
    jobs.STOP: _ADMIN,
    fs.READ_FILE: _READ,
    # This depends on its mode, see `missing_scope_to_open`.
    fs.OPEN: _BOTH,
    fs.READ_BLOCK: _READ,
    fs.WRITE_BLOCK: _WRITE,
    # A connection can close only what it has opened.
    fs.CLOSE: _FREE,
    fs.GET_METADATA: _READ,
    fs.LSTAT: _READ,
    fs.READ_LINK: _READ,
    fs.CANONICALIZE: _READ,
    fs.READ_DIRECTORY: _READ,
    fs.WALK: _READ,
    fs.WATCH_MISSING: _READ,
    fs.WRITE_FILE: _WRITE,
    fs.APPEND: _WRITE,
    fs.SYMLINK: _WRITE,
    fs.CREATE_DIRECTORY: _WRITE,
    fs.REMOVE: _WRITE,
    fs.RENAME: _WRITE,
    fs.SET_PERMISSIONS: _WRITE,
    # It reads one file and writes the other.
    fs.COPY: _BOTH,
    file_delta.SIGNATURE: _READ,
    file_delta.COPY_RANGES: _BOTH,
    file_search.SEARCH: _READ,
    # A connection can end only its own searches, and a session its own watches.
    file_search.CANCEL_SEARCH: _FREE,
    file_watch.WATCH: _READ,
    file_watch.UNWATCH: _FREE,
    http.REQUEST: ("http",),
    # A command can do the same. A principal with floors is refused, see the handler.
    streams.OPEN: _EXEC,
    streams.LISTEN: _EXEC,
    streams.CLOSE: _EXEC,
    streams.RESUME: _EXEC,
    streams.LIST: _EXEC,
    streams.PORTS: _EXEC,
}


def missing_scope(may: frozenset[Scope], method: Method[Any, Any]) -> Scope | None:
    """The first scope for *method* that is not among *may*; None if there is none."""
    return _first_missing(may, NEEDS.get(method, _ADMIN))


def missing_scope_to_open(may: frozenset[Scope], params: fs.OpenParams) -> Scope | None:
    """The scope that is missing to open a file as *params* say."""
    return _first_missing(may, _READ if params.mode == "read" else _WRITE)


def _first_missing(may: frozenset[Scope], needed: tuple[Scope, ...]) -> Scope | None:
    if "admin" in may:
        return None
    return next((scope for scope in needed if scope not in may), None)
