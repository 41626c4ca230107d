"""What a method promises beyond its shapes: its errors, limits, order, and since when it exists."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from exec_server import errors

T = TypeVar("T")
ErrorKind = type[errors.RpcError]

# The release of this project that its own methods and events appear in first.
_OURS = "exec-server 0.2.0"
# The first of the releases 0.120.0, 0.135.0, 0.150.0, 0.160.0 and 0.166.0 that knows a method;
# all others are in 0.120.0, which is the first release with a server.
_SINCE: dict[str, tuple[str, ...]] = {
    "Codex 0.135.0": ("http/request", "http/request/bodyDelta"),
    "Codex 0.150.0": (
        "capabilityRoots/discoverV1",
        "environment/info",
        "environment/status",
        "environmentConfig/read",
        "fs/canonicalize",
        "fs/close",
        "fs/open",
        "fs/readBlock",
        "fs/walk",
        "network/policyDecision",
        "network/policyRequest",
        "process/signal",
    ),
    "Codex 0.166.0": (
        "capabilities/discoverV2",
        "fs/missingChanged",
        "fs/watchMissing",
        "fs/writeBlock",
    ),
}

# Every request may fail with these: it is malformed or comes before the handshake, its parameters
# have another shape, the principal may not do it, or the audit log cannot be written.
EVERY: tuple[ErrorKind, ...] = (
    errors.InvalidRequest,
    errors.InvalidParams,
    errors.ScopeRefused,
    errors.AuditUnavailable,
)
_OS = (errors.InternalError,)
_FLOOR = (errors.FloorRefused,)
_QUOTA = (errors.FloorRefused, errors.QuotaReached)
_DRIVEN = (errors.ControlLost, errors.ControlRefused)

# By the beginning of the name; the longest one counts.
_ERRORS: dict[str, tuple[ErrorKind, ...]] = {
    "initialize": (errors.SessionAttached, *_QUOTA),
    "environment": (*_OS, *_FLOOR),
    "capabilit": (*_OS, *_FLOOR),
    "fs/": (errors.NotFound, *_OS, *_QUOTA),
    "http/": (*_OS, *_QUOTA),
    "job/": _OS,
    "network/": _OS,
    "process/start": (*_OS, *_QUOTA),
    "process/read": _OS,
    "process/write": (*_OS, *_DRIVEN),
    "process/closeStdin": (*_OS, *_DRIVEN),
    "process/signal": (*_OS, *_DRIVEN),
    "process/resize": (*_OS, *_DRIVEN),
    "process/terminate": (*_OS, *_DRIVEN),
    "process/control": (*_OS, *_DRIVEN),
    "process/grant": (*_OS, *_QUOTA),
    "process/denials": (*_OS, *_FLOOR),
    "process/": _OS,
    "rpc.": (),
    "server/": _OS,
    "session/": (*_OS, *_QUOTA),
    "stream/": (errors.NotFound, *_OS, *_QUOTA),
}

# Fields of `Limits` that bound a method, by the beginning of its name.
_LIMITS: dict[str, tuple[str, ...]] = {
    "initialize": ("detached_session_seconds", "max_concurrent_requests"),
    "fs/readFile": ("read_file_bytes",),
    "fs/open": ("file_handles", "handle_id_bytes"),
    "fs/readBlock": ("block_bytes",),
    "fs/writeBlock": ("block_bytes",),
    "fs/readDirectory": ("directory_entries",),
    "fs/walk": ("walk_depth", "walk_directories", "walk_entries", "walk_answer_bytes"),
    "fs/search": ("searches", "search_matches", "search_seconds"),
    "fs/watchMissing": ("watched_paths",),
    "fs/watch": ("session_watches", "watch_directories", "watch_kept_changes"),
    "http/request": ("http_body_bytes", "http_delta_bytes", "http_streams"),
    "job/": ("job_journal_bytes", "job_journal_total_bytes", "job_keep_seconds"),
    "process/start": ("default_rows", "default_cols", "max_flow_window", "shell_snapshots"),
    "process/output": ("chunk_bytes", "bulk_chunk_bytes"),
    "process/read": ("retained_bytes", "retained_chunks", "closed_process_seconds"),
    "process/write": ("stdin_queue_writes", "stdin_queue_bytes", "remembered_write_ids"),
    "session/retain": ("max_detached_session_seconds", "retained_sessions", "retained_processes"),
    "stream/": ("session_streams", "stream_window", "stream_connect_timeout"),
}
# Every message is bounded by these.
MESSAGE_LIMITS = ("message_bytes", "frame_bytes", "json_values", "json_depth")

_NUMBERED = (
    "`seq` of output, exit and close of one process counts from 1 without a gap. Events may arrive "
    "in another order, and the numbers tell the right one."
)
_ORDER: dict[str, str] = {
    "initialize": "The first request of a connection. Only `initialized` may follow it.",
    "initialized": "Sent once, after the answer to `initialize`.",
    "process/start": "The first event of the process comes after the answer.",
    "process/output": _NUMBERED,
    "process/exited": _NUMBERED + " Output of other holders of the pipes may have higher numbers.",
    "process/closed": _NUMBERED + " The close has the highest number.",
    "process/read": "Chunks have ascending numbers, all higher than `afterSeq`.",
    "process/write": "Writes of a process are done in the order of their requests; a `writeId` is "
    "done once.",
    "process/terminate": "Answered while other requests wait.",
    "http/request": "The answer comes before the first `http/request/bodyDelta`.",
    "http/request/bodyDelta": "`seq` counts from 1 for each request without a gap; the last one "
    "says `done`.",
    "fs/readBlock": "Blocks may be read in any order.",
    "fs/searchFound": "Before and after the answer to `fs/search`; the last one has `end`.",
    "stream/data": "In order for each stream and direction, within the window of its reader.",
    "stream/end": "After the last `stream/data` of its direction.",
}
_REQUESTS = (
    "Requests of a connection are answered in their order, unless `initialize` has asked for more "
    "at a time."
)


class Promises(NamedTuple):
    """What is promised of one method or event."""

    since: str
    errors: tuple[ErrorKind, ...]
    limits: tuple[str, ...]
    order: str


def promises_of(name: str, *, is_ours: bool, is_request: bool) -> Promises:
    """What is promised of the method or event *name*."""
    since = next((release for release, names in _SINCE.items() if name in names), "Codex 0.120.0")
    order = _ORDER.get(name, _REQUESTS if is_request else "")
    return Promises(
        _OURS if is_ours else since,
        (*EVERY, *_longest(_ERRORS, name)) if is_request else (),
        _longest(_LIMITS, name),
        order,
    )


def _longest(table: dict[str, tuple[T, ...]], name: str) -> tuple[T, ...]:
    found = [beginning for beginning in table if name.startswith(beginning)]
    return table[max(found, key=len)] if found else ()
