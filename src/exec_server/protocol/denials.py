"""What a sandbox refused, and how it can be allowed. All of it is ours."""

from __future__ import annotations

from typing import Literal

import msgspec

from exec_server.protocol.method import Event, Method

DenialKind = Literal["write", "read", "socket", "host", "syscall"]
# How long a grant holds: for the calls that are held now, while the process runs, or for everything
# that the session starts. "never" refuses the held calls, and nothing is asked about this again.
GrantScope = Literal["once", "process", "session", "never"]


# The grant of a record that only a start with a network would avoid.
NETWORK_GRANT = "network=on"


class Denial(msgspec.Struct, rename="camel", omit_defaults=True):
    """One thing that was refused, however often it was tried."""

    # Names this record within its process.
    denial_id: str
    kind: DenialKind
    # A path, an address, a host with its port, or the name of a system call.
    target: str
    # For example "open", "rename", "unlink", "connect", "bind".
    operation: str
    # The rule that refused it, in words that a person can search for.
    rule: str
    count: int = 1
    # The first process that tried it.
    pid: int | None = None
    exe: str | None = None
    # What `process/grant` takes to allow it; absent if it cannot be allowed.
    grant: str | None = None
    # True while the call waits for `process/grant`; it fails when the time is over.
    held: bool = False


class DeniedEvent(msgspec.Struct, rename="camel"):
    """A new record, or one whose call is held again. Counts are in `process/denials`."""

    process_id: str
    denial: Denial


class DenialsParams(msgspec.Struct, rename="camel"):
    process_id: str


class DenialsResult(msgspec.Struct, rename="camel"):
    """Everything that was refused so far."""

    denials: list[Denial]
    # How many refusals there were in all.
    total: int
    # How many of them belong to no record, because there were too many different ones.
    unlisted: int
    # How many calls could not be read, so that it is unknown whether they were refused.
    unseen: int
    # Why the supervisor records nothing, if it does not.
    unavailable: str | None = None


class GrantParams(msgspec.Struct, rename="camel"):
    process_id: str
    # The `grant` of a record of this process.
    grant: str
    scope: GrantScope = "once"
    # True ends the process and starts it again, with the same id and a wider sandbox. The scope
    # "process" then means the new one. Its events are numbered from 1 again.
    restart: bool = False


class GrantResult(msgspec.Struct, rename="camel", omit_defaults=True):
    # How many held calls went on.
    released: int
    # True if the running process has the grant from now on. A grant for the session also holds for
    # what is started later.
    in_place: bool
    # The id of the process, if it was started again.
    restarted: str | None = None


# Lists what the sandbox of a process has refused so far, with true counts.
DENIALS = Method("process/denials", DenialsParams, DenialsResult, family="exec")
# Allows, or refuses for good, what one of these records is about.
GRANT = Method("process/grant", GrantParams, GrantResult, family="exec", is_control=True)
# The sandbox of a process has refused something for the first time, or a call waits for a grant.
DENIED = Event("process/denied", DeniedEvent)
