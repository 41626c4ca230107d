"""An audit event with the field names of OCSF 1.3 (Open Cybersecurity Schema Framework).

What has no field there is in `unmapped`.
"""

from __future__ import annotations

import posixpath
import shlex
from typing import Any, NamedTuple

import msgspec

from exec_server.audit.event import AuditLine

_VERSION = "1.3.0"
_OTHER = 99
_REGULAR_FILE = 1


class EventClass(NamedTuple):
    """A class of OCSF, and one of its activities."""

    class_uid: int
    activity_id: int

    @property
    def category_uid(self) -> int:
        return self.class_uid // 1000


_FILE, _PROCESS, _LOGIN, _NETWORK, _HTTP = 1001, 1007, 3002, 4001, 4002
_LIFECYCLE, _CALL = 6002, 6003

_CLASSES: dict[str, EventClass] = {
    "process/start": EventClass(_PROCESS, 1),
    "process ended": EventClass(_PROCESS, 2),
    "process/terminate": EventClass(_PROCESS, 2),
    "process/signal": EventClass(_PROCESS, _OTHER),
    "http/request": EventClass(_HTTP, _OTHER),
    "initialize": EventClass(_LOGIN, 1),
    "connection refused": EventClass(_LOGIN, 1),
    "connection opened": EventClass(_NETWORK, 1),
    "connection closed": EventClass(_NETWORK, 2),
    "server started": EventClass(_LIFECYCLE, 3),
    "server stopped": EventClass(_LIFECYCLE, 4),
}
_FILE_ACTIVITIES = {
    "fs/readFile": 2,
    "fs/open": 14,
    "fs/writeFile": 3,
    "fs/append": 3,
    "fs/remove": 4,
    "fs/rename": 5,
    "fs/setPermissions": 7,
    "fs/createDirectory": 1,
    "fs/symlink": 1,
    "fs/copy": 1,
    "fs/signature": 2,
    "fs/search": 2,
    "fs/copyRanges": 3,
    "fs/getMetadata": 8,
    "fs/lstat": 8,
}
_HTTP_ACTIVITIES = {
    "CONNECT": 1,
    "DELETE": 2,
    "GET": 3,
    "HEAD": 4,
    "OPTIONS": 5,
    "POST": 6,
    "PUT": 7,
    "TRACE": 8,
}
# These are fields of OCSF, or are told in other ones.
_MAPPED = frozenset(
    "n prev hash at name principal address argv process process_pid cwd paths url http_method "
    "status code error exit_code uid pid session detail".split()
)


def class_of(line: AuditLine) -> EventClass:
    if line.name in _FILE_ACTIVITIES or line.name.startswith("fs/"):
        return EventClass(_FILE, _FILE_ACTIVITIES.get(line.name, _OTHER))
    if line.name == "http/request":
        return EventClass(_HTTP, _HTTP_ACTIVITIES.get(line.http_method.upper(), _OTHER))
    return _CLASSES.get(line.name, EventClass(_CALL, _OTHER))


def exported(line: AuditLine) -> dict[str, Any]:
    """The event as an object of OCSF."""
    kind = class_of(line)
    is_failure = line.code is not None or line.name == "connection refused"
    event: dict[str, Any] = {
        "metadata": _metadata(line),
        "time": int(line.at * 1000),
        "category_uid": kind.category_uid,
        "class_uid": kind.class_uid,
        "activity_id": kind.activity_id,
        "type_uid": kind.class_uid * 100 + kind.activity_id,
        "activity_name": line.name,
        "severity_id": 2 if is_failure else 1,
        "status_id": 2 if is_failure else 1,
        "actor": _actor(line),
    }
    if line.code is not None:
        event["status_code"] = str(line.code)
    if line.error or line.detail:
        event["status_detail" if is_failure else "message"] = line.error or line.detail
    if line.address:
        event["src_endpoint"] = _endpoint(line.address)
    event |= _objects(line, kind.class_uid)
    rest = {name: value for name, value in msgspec.to_builtins(line).items() if name not in _MAPPED}
    return event | ({"unmapped": rest} if rest else {})


def _metadata(line: AuditLine) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "product": {"name": "exec-server", "vendor_name": "exec-server"},
        "sequence": line.number,
        "uid": line.hash,
    }


def _actor(line: AuditLine) -> dict[str, Any]:
    actor: dict[str, Any] = {"user": {"name": line.principal or "unknown"}}
    if line.uid is not None:
        actor["user"]["uid"] = str(line.uid)
    if line.pid is not None:
        actor["process"] = {"pid": line.pid}
    if line.session:
        actor["session"] = {"uid": line.session}
    return actor


def _endpoint(address: str) -> dict[str, Any]:
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        return {"ip": host.strip("[]"), "port": int(port)}
    return {"name": address}


def _objects(line: AuditLine, class_uid: int) -> dict[str, Any]:
    """What the event is about."""
    found: dict[str, Any] = {}
    if line.process or line.argv:
        found["process"] = _process(line)
    if line.exit_code is not None:
        found["exit_code"] = line.exit_code
    if line.url:
        found["http_request"] = {"http_method": line.http_method, "url": {"url_string": line.url}}
    if line.status is not None:
        found["http_response"] = {"code": line.status}
    if line.paths:
        found["file"] = _file(line.paths[0])
        if len(line.paths) > 1:
            found["file_result"] = _file(line.paths[-1])
    if class_uid == _LOGIN:
        found["user"] = {"name": line.principal or "unknown"}
    if class_uid == _CALL:
        found["api"] = {"operation": line.name}
    return found


def _process(line: AuditLine) -> dict[str, Any]:
    process: dict[str, Any] = {"uid": line.process}
    if line.process_pid is not None:
        process["pid"] = line.process_pid
    if line.argv:
        process["cmd_line"] = shlex.join(line.argv)
        process["name"] = posixpath.basename(line.argv[0])
    if line.cwd:
        process["working_directory"] = line.cwd
    return process


def _file(path: str) -> dict[str, Any]:
    return {"path": path, "name": posixpath.basename(path), "type_id": _REGULAR_FILE}
