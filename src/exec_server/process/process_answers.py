"""What a client is told of a process: the results of `process/start`, `read` and `list`."""

from __future__ import annotations

from msgspec import UNSET

from exec_server.process.child import Child
from exec_server.process.limiting.asked_limits import granted_limits
from exec_server.protocol import process
from exec_server.protocol.base64 import Blob

# Clients know every sandbox on Linux by this name, whichever backend enforces it.
_SANDBOX_TYPE = "linuxSeccomp"


def start_result(child: Child) -> process.StartResult:
    result = process.StartResult(child.process_id, "none")
    if child.sandbox is not None:
        result.sandbox_type, result.sandbox_rung = _SANDBOX_TYPE, child.sandbox.backend
    if child.log.window is not None:
        result.flow_window = child.log.window
    if child.is_durable:
        result.durable = True
    if child.tells_limits:
        result.limits = granted_limits(child.asked_limits, child.granted)
    if child.tells_details and child.pid is not None:
        result.pid = child.pid
    if child.denials is not None:
        result.denials = child.denials.kinds
        result.denials_unavailable = child.denials.unavailable or UNSET
    return result


def has_news(child: Child, cursor: int) -> bool:
    """True if a reader at *cursor* can be answered at once."""
    if child.log.has_after(cursor) or child.state == "closed":
        return True
    return child.state == "exited" and cursor < child.log.next_seq - 1


def read_result(child: Child, cursor: int, max_bytes: int | None) -> process.ReadResult:
    """The retained output after *cursor*, and how far the process has come."""
    page = child.log.after(cursor, max_bytes=max_bytes)
    result = process.ReadResult(
        chunks=[process.ReadChunk(c.seq, c.stream, Blob(c.data)) for c in page.chunks],
        next_seq=page.next_seq,
        exited=child.state != "running",
        exit_code=child.exit_code,
        closed=child.state == "closed",
        failure=child.failure,
        sandbox_denied=child.is_sandbox_denied,
    )
    if page.dropped_bytes is not None:
        result.dropped_bytes = page.dropped_bytes
    if child.log.window is not None:
        result.flow_window = child.log.window
    if child.lost is not None and child.state != "running":
        result.lost = child.lost
    if page.has_more:
        result.has_more = True
    if child.end_signal is not None and result.exited:
        result.signal = child.end_signal
    if child.end is not None:
        result.end, result.usage = child.end, child.usage or UNSET
    return result


def starting_info(params: process.StartParams) -> process.ProcessInfo:
    """One entry of `process/list`: a process whose program does not run yet."""
    return process.ProcessInfo(
        params.process_id, "starting", None, params.argv, params.tty, None, 1
    )


def process_info(child: Child) -> process.ProcessInfo:
    """One entry of `process/list`: a process that runs or has ended."""
    info = process.ProcessInfo(
        child.process_id,
        child.state,
        child.pid,
        child.argv,
        child.is_tty,
        child.exit_code,
        child.log.next_seq,
    )
    if child.sandbox is not None:
        info.sandbox_type, info.sandbox_rung = _SANDBOX_TYPE, child.sandbox.backend
    if child.is_durable:
        info.durable = True
        info.started_at = child.started_at
    if child.lost is not None and child.state != "running":
        info.state, info.lost = "lost", child.lost
    if child.end is not None:
        info.end, info.usage = child.end, child.usage or UNSET
    return info
