"""How a process ended, and what it used. All of it is ours."""

from __future__ import annotations

from typing import Literal

import msgspec

Cause = Literal[
    # The program returned a status. A status such as 137 says nothing else.
    "exited",
    # A signal ended it; `by` says who sent it, if that is known.
    "signal",
    # The kernel killed it because its own memory limit was reached, or that of a group around it.
    "memory",
    "outerMemory",
    # The server ended it because of the limit that `limit` names.
    "limit",
    # The sandbox could not be kept up, so the process was ended.
    "sandbox",
    # A client asked for its end, or the server stopped.
    "terminated",
    # The keeper is gone, or the machine was restarted.
    "lost",
    "unknown",
]


class EndedBy(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """Who ended a process."""

    # "client": through this server. "process": another process of the machine. "self": it did it
    # itself, or one of its own processes did.
    kind: Literal["client", "server", "kernel", "process", "self"]
    principal: str | None = None
    session_id: str | None = None
    pid: int | None = None
    exe: str | None = None


class EndReport(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """Why a process ended. It is never guessed: `unknown` comes with its reason in `evidence`."""

    cause: Cause
    # The name of the signal, such as SIGKILL, if one ended the process.
    signal: str | None = None
    by: EndedBy | None = None
    # The name of the limit that was reached.
    limit: str | None = None
    # What the cause was concluded from, in words for a person.
    evidence: str | None = None


class Usage(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """What a process and its descendants used. A value that is not known is absent."""

    # Seconds.
    wall: float | None = None
    cpu: float | None = None
    # Bytes.
    peak_memory: int | None = None
    read: int | None = None
    written: int | None = None
    # The most processes at once.
    processes: int | None = None
    # Where the values come from: "cgroup2", "cgroup1" or "rusage". With "rusage" the peak is that
    # of the largest process.
    source: str | None = msgspec.field(default=None, name="from")
    # True if the peak may have been less: the kernel counts the memory of the process that starts a
    # program until the program is executed.
    peak_memory_at_most: bool = False
