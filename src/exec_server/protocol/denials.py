"""What a sandbox refused, and how it can be allowed. All of it is ours."""

from __future__ import annotations

from typing import Literal

import msgspec

DenialKind = Literal["write", "read", "socket", "host", "syscall"]


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
