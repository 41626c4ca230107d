"""The shape of an audit event: who did what, when, from where, and how it ended."""

from __future__ import annotations

import msgspec


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An audit event: who did what, when and from where. It never has relayed content."""

    at: float
    name: str
    principal: str = ""
    token_id: str = ""
    environment_id: str = ""
    address: str = ""
    detail: str = ""


class WorkEvent(AuditEvent, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a server that does work for clients. A field that does not apply is left out.

    It never has output, input, values of variables, or the content of files.
    """

    # The short digest of the session's id, as the log has it. The id itself would let others in.
    session: str = ""
    # The user and the process at the other end of a Unix socket.
    uid: int | None = None
    pid: int | None = None
    # The client's name of the process, and its number on this machine.
    process: str = ""
    process_pid: int | None = None
    argv: list[str] | None = None
    cwd: str = ""
    # The names of the variables that the client has set.
    env: list[str] | None = None
    sandbox: str = ""
    limits: dict[str, float] | None = None
    grant: str = ""
    paths: list[str] | None = None
    # Of an `http/request`; `status` is that of its answer.
    http_method: str = ""
    url: str = ""
    status: int | None = None
    # The code and text of the error that the client got; without a code there was none.
    code: int | None = None
    error: str = ""
    # The end of a process.
    exit_code: int | None = None
    signal: str = ""
    cause: str = ""
    ended_by: str = ""
    usage: dict[str, float] | None = None
    # Bytes that came from the client, and that went to it.
    bytes_in: int | None = None
    bytes_out: int | None = None
    seconds: float | None = None


class AuditLine(WorkEvent, frozen=True, kw_only=True, omit_defaults=True):
    """An event as a file has it: with its number, and the hashes that join it to its neighbours."""

    number: int = msgspec.field(default=0, name="n")
    previous: str = msgspec.field(default="", name="prev")
    hash: str = ""
