"""What the audit log says about a request and its answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from exec_server.access.principal import Floors, Principal
from exec_server.audit.masking import Masker
from exec_server.errors import RpcError
from exec_server.printable import printable, short_digest
from exec_server.process.child import Child
from exec_server.protocol import (
    denials,
    file_search,
    file_watch,
    fs,
    http,
    jobs,
    lifecycle,
    process,
    sharing,
    streams,
)
from exec_server.protocol.base64 import Blob, LazyBlob
from exec_server.protocol.ends import EndReport, Usage
from exec_server.protocol.method import Encoded
from exec_server.protocol.paths import PathUri
from exec_server.protocol.permissions import AtPath, Disabled, External, Managed, Restricted
from exec_server.protocol.resources import GrantedLimit, ResourceLimits
from exec_server.protocol.sandbox import SandboxContext

# The members of a WorkEvent, by name.
Facts = dict[str, Any]

# Requests that neither start, change nor read anything of the machine, or that are parts of
# another one: blocks belong to `fs/open`, input to `process/start`, and the end to a search.
UNAUDITED = frozenset(
    (
        "process/read",
        "process/write",
        "process/resize",
        "process/closeStdin",
        "process/list",
        "process/ports",
        "process/screen",
        "process/waitFor",
        "job/list",
        "stream/list",
        "stream/resume",
        "session/ping",
        "environment/info",
        "environment/status",
        fs.READ_BLOCK.name,
        fs.WRITE_BLOCK.name,
        fs.CLOSE.name,
        file_search.CANCEL_SEARCH.name,
        file_watch.UNWATCH.name,
    )
)
# The most names of variables, and of paths, in one line.
_MOST_NAMES = 100
_LONGEST = 4096
_SESSION_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# The names of texts in parameters, and in events.
_NAMED = {"process_id": "process", "watch_id": "process", "grant": "grant"}


def request_facts(params: Struct, masker: Masker, who: Principal) -> Facts:
    """What *params* ask for in the name of *who*, without secrets and content."""
    describe = _DESCRIBED.get(type(params))
    if describe is None:
        return _plain_facts(params)
    facts = describe(params, masker)
    if isinstance(params, process.StartParams):
        facts |= _floor_facts(params, facts["detail"], who.floors)
    return facts


def without_session_ids(text: str) -> str:
    """*text* with the digests of session ids in their place: an id lets others in."""
    return _SESSION_ID.sub(lambda found: short_digest(found.group().lower()), text)


def result_facts(result: object) -> Facts:
    """What was answered, without content."""
    if isinstance(result, Encoded):
        return {"bytes_out": sum(map(len, result.parts)) + len(result.bulk or b"")}
    if isinstance(result, process.StartResult):
        return _started(result)
    if isinstance(result, http.RequestResult):
        return {"status": result.status, "bytes_out": len(result.body_base64.data)}
    if isinstance(result, fs.ReadFileResult):
        return {"bytes_out": len(result.data_base64.data)}
    if isinstance(result, jobs.PruneResult):
        return {"detail": f"{result.removed} removed"}
    return {}


def _started(result: process.StartResult) -> Facts:
    facts: Facts = {}
    if isinstance(result.pid, int):
        facts["process_pid"] = result.pid
    if isinstance(result.limits, dict):
        facts["limits"] = {name: _granted(limit) for name, limit in result.limits.items()}
    return facts


def _granted(limit: GrantedLimit) -> float:
    return limit.value


# Parameters.


def _start_facts(params: process.StartParams, masker: Masker) -> Facts:
    details = {
        "tty": params.tty,
        "durable": params.durable,
        "learning, without a sandbox": params.learn,
        f"granted before: {_cut(' '.join(params.granted))}": bool(params.granted),
        f"as {_cut(params.user or '')[:64]}": params.user is not None,
    }
    return {
        "process": params.process_id,
        "argv": masker.command(params.argv),
        "cwd": _shown(PathUri(params.cwd)),
        "env": sorted(params.env)[:_MOST_NAMES] or None,
        "sandbox": sandbox_words(params.sandbox),
        "limits": _asked(params.limits),
        "detail": ", ".join(name for name, is_asked in details.items() if is_asked),
    }


def _floor_facts(params: process.StartParams, detail: str, floors: Floors) -> Facts:
    """What floors decide about a start that leaves it open."""
    facts: Facts = {}
    if floors.run_as is not None and params.user is None:
        facts["detail"] = ", ".join(filter(None, (detail, f"as {floors.run_as}")))
    if floors.sandbox is not None and params.sandbox is None:
        folders = f"={':'.join(floors.sandbox.folders)}" if floors.sandbox.folders else ""
        network = "" if floors.sandbox.network else ", no network"
        facts["sandbox"] = f"{floors.sandbox.kind}{folders}{network}"
    return facts


def _asked(limits: ResourceLimits | None) -> dict[str, float] | None:
    if limits is None:
        return None
    asked: dict[str, float] = msgspec.to_builtins(limits)
    return asked


def _open_facts(params: fs.OpenParams, _masker: Masker) -> Facts:
    return {**_plain_facts(params), "detail": params.mode}


def _http_facts(params: http.RequestParams, masker: Masker) -> Facts:
    body = params.body_base64
    return {
        "http_method": params.method[:32],
        "url": _cut(masker.url(params.url)),
        "bytes_in": None if body is None else len(body.data),
    }


def _initialize_facts(params: lifecycle.InitializeParams, _masker: Masker) -> Facts:
    asked = params.resume_session_id
    how = "a new session" if asked is None else "a session is resumed"
    facts: Facts = {"detail": f"{how} by {_cut(params.client_name)[:64]}"}
    if asked is not None:
        facts["session"] = short_digest(asked)
    return facts


def _signal_facts(params: process.SignalParams, _masker: Masker) -> Facts:
    return {"process": params.process_id, "signal": params.signal[:32]}


def _stop_facts(params: jobs.StopParams, _masker: Masker) -> Facts:
    return {"detail": "with its jobs" if params.jobs else ""}


def _grant_facts(params: denials.GrantParams, _masker: Masker) -> Facts:
    again = ", and the process is started again" if params.restart else ""
    facts = _plain_facts(params)
    return {**facts, "detail": f"{params.scope}{again}"}


def _stream_facts(params: streams.OpenParams | streams.ListenParams, _masker: Masker) -> Facts:
    place = params.path or f"{params.host or ''}:{params.port}"
    return {"detail": printable(_cut(place))}


def _watch_facts(params: sharing.WatchParams, _masker: Masker) -> Facts:
    how = "its screen is read once" if params.once else f"by {params.kind} {params.name}".strip()
    # Later requests name the watch in place of the process.
    facts: Facts = {"process": params.process_id, "detail": f"{how}, as {params.watch_id}"}
    return {**_plain_facts(params), **facts}


def _search_facts(params: file_search.SearchParams, masker: Masker) -> Facts:
    pattern = " ".join(masker.command([params.pattern]))
    return {**_plain_facts(params), "detail": printable(_cut(f"{params.mode}: {pattern}"))}


def _file_watch_facts(params: file_watch.WatchParams, _masker: Masker) -> Facts:
    # The id of a watch of files is not that of a process.
    return {**_plain_facts(params), "process": None}


def _control_facts(params: sharing.ControlParams, _masker: Masker) -> Facts:
    return {**_plain_facts(params), "detail": params.action}


def _retain_facts(params: lifecycle.RetainParams, _masker: Masker) -> Facts:
    return {"detail": f"{params.seconds:g} seconds"}


_DESCRIBED: dict[type, Callable[[Any, Masker], Facts]] = {
    process.StartParams: _start_facts,
    process.SignalParams: _signal_facts,
    denials.GrantParams: _grant_facts,
    sharing.WatchParams: _watch_facts,
    sharing.ControlParams: _control_facts,
    fs.OpenParams: _open_facts,
    file_search.SearchParams: _search_facts,
    file_watch.WatchParams: _file_watch_facts,
    http.RequestParams: _http_facts,
    lifecycle.InitializeParams: _initialize_facts,
    lifecycle.RetainParams: _retain_facts,
    jobs.StopParams: _stop_facts,
    streams.OpenParams: _stream_facts,
    streams.ListenParams: _stream_facts,
}


def _plain_facts(params: Struct) -> Facts:
    """The process, paths, sandbox and sizes that any other parameters have."""
    facts: Facts = {}
    paths: list[str] = []
    for name, value in msgspec.structs.asdict(params).items():
        if isinstance(value, PathUri):
            paths.append(_shown(value))
        elif isinstance(value, list):
            paths += map(_shown, _paths(value))
        elif isinstance(value, Blob | LazyBlob):
            facts["bytes_in"] = len(value.data) if isinstance(value, Blob) else value.size
        elif isinstance(value, SandboxContext):
            facts["sandbox"] = sandbox_words(value)
        elif name in _NAMED and isinstance(value, str):
            facts[_NAMED[name]] = _cut(value)
    if paths:
        facts["paths"] = paths[:_MOST_NAMES]
    return facts


def _paths(values: list[Any]) -> Iterator[PathUri]:
    """The paths in a list, or in the members of what is in it."""
    for value in values[:_MOST_NAMES]:
        if isinstance(value, PathUri):
            yield value
        elif isinstance(value, Struct):
            members = msgspec.structs.asdict(value).values()
            yield from (each for each in members if isinstance(each, PathUri))


def _shown(path: PathUri) -> str:
    """A path as people write it; a path of another platform stays as it is."""
    try:
        return _cut(path.native.decode("utf-8", "backslashreplace"))
    except RpcError:
        return _cut(path.text)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def sandbox_words(sandbox: SandboxContext | None) -> str:
    """A sandbox in short: what it lets be written, and whether there is a network."""
    if sandbox is None:
        return ""
    intent = sandbox.intent
    permissions = intent.permissions
    if isinstance(permissions, Disabled):
        return "disabled"
    network = "" if permissions.network == "enabled" else ", no network"
    if isinstance(permissions, External):
        return f"external{network}"
    return f"{_file_words(permissions, intent.workspace_roots or ())}{network}"


def _file_words(permissions: Managed, roots: tuple[PathUri, ...]) -> str:
    rules = permissions.file_system
    if not isinstance(rules, Restricted):
        return "all files"
    writes = [entry.path for entry in rules.entries if entry.kind == "write"]
    if not writes:
        return "read-only"
    named = [path.path for path in writes if isinstance(path, AtPath)]
    folders = [_shown(folder) for folder in (*roots, *named)][:_MOST_NAMES]
    return f"workspace-write={':'.join(folders)}" if folders else "workspace-write"


# Ends.


@runtime_checkable
class Reported(Protocol):
    """A process whose end was explained."""

    end: EndReport | None
    usage: Usage | None


def end_facts(child: Child) -> Facts:
    """How a process has ended, and what is known of why."""
    facts: Facts = {
        "process": child.process_id,
        "process_pid": child.pid,
        "exit_code": child.exit_code,
        "bytes_in": child.input_bytes,
        "bytes_out": child.log.total_bytes,
        "detail": child.lost or child.failure or "",
    }
    if isinstance(child, Reported):
        facts |= _report_facts(child.end, child.usage)
    return facts


def _report_facts(end: EndReport | None, usage: Usage | None) -> Facts:
    facts: Facts = {}
    if isinstance(end, EndReport):
        facts |= {"cause": end.cause, "signal": end.signal or ""}
        if end.limit is not None:
            facts["detail"] = f"limit {end.limit}"
        if end.by is not None:
            facts["ended_by"] = " ".join(filter(None, (end.by.kind, end.by.principal, end.by.exe)))
    if isinstance(usage, Usage):
        numbers = msgspec.to_builtins(usage)
        if numbers.pop("peakMemoryAtMost", False):
            # The audit has only what is known.
            del numbers["peakMemory"]
        facts["usage"] = {
            name: value for name, value in numbers.items() if isinstance(value, int | float)
        }
    return facts
