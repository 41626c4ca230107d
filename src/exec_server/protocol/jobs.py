"""`job/*` and `server/stop`: durable jobs, which outlive the server. All of it is ours."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.protocol.ends import EndReport, Usage
from exec_server.protocol.method import Method, Nothing

JobState = Literal["running", "exited", "closed", "lost"]
Age = Annotated[float, msgspec.Meta(ge=0)]


class JobInfo(msgspec.Struct, rename="camel", omit_defaults=True):
    """One process, of any session of the same user. All are durable unless others are asked for."""

    session_id: str
    process_id: str
    argv: list[str]
    # As the client gave it to `process/start`.
    cwd: str
    tty: bool
    # "exited" while other processes still hold its output open, then "closed".
    state: JobState
    exit_code: int | None
    # Why the exit status is unknown and stays so; None if the process was not lost.
    lost: str | None
    # None once the process has ended.
    pid: int | None
    # Milliseconds since 1970. A process that was lost has no end.
    started_at: int
    ended_at: int | None
    next_seq: int
    # True while a client holds the session.
    attached: bool
    # The principal that it belongs to; told in answer to `all` only.
    owner: str | None = None
    # How much output there was so far, retained or not; earlier servers do not say it.
    output_bytes: int | UnsetType = UNSET
    # What it is called, if the start has said it.
    name: str | None = None
    # How often its sandbox has refused something, if that is recorded.
    denied: int | UnsetType = UNSET
    # How many look on besides the session itself; and the name of the one that drives, if that is
    # another one.
    viewers: int = 0
    driver: str | None = None
    # False for a process that ends with the server.
    durable: bool = True
    # Why the process ended, and what it used, if its start has asked for a report.
    end: EndReport | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET


class JobListParams(msgspec.Struct, rename="camel", omit_defaults=True):
    # True lists the jobs of all principals, which needs the scope `admin`.
    all: bool = False
    # True also lists processes that are not durable (capability `processWatch`).
    every: bool = False


class JobListResult(msgspec.Struct, rename="camel"):
    jobs: list[JobInfo]


class PruneParams(msgspec.Struct, rename="camel", omit_defaults=True):
    """Which ended and lost jobs to forget, with their output; without a condition, all of them."""

    # Only those that ended, or were found lost, at least this long ago.
    older_than_seconds: Age | None = None
    session_id: str | None = None
    process_id: str | None = None
    # True means the jobs of all principals, which needs the scope `admin`.
    all: bool = False


class PruneResult(msgspec.Struct, rename="camel"):
    removed: int


class StopParams(msgspec.Struct, rename="camel", omit_defaults=True):
    # True ends durable jobs, too: by SIGTERM, and after a time of grace by SIGKILL.
    jobs: bool = False


# Lists the durable jobs of the client's principal, or all of its processes, in whatever session.
LIST = Method("job/list", JobListParams, JobListResult, family="job", is_control=True)
# Forgets durable jobs that are over, with their output.
PRUNE = Method("job/prune", PruneParams, PruneResult, family="job", is_control=True)
# Stops the server, and with `jobs` the durable jobs, too.
STOP = Method("server/stop", StopParams, Nothing, family="server", is_control=True)
