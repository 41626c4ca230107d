"""What a request asks for, between the server's own bounds, as the keeper is told."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Any

from exec_server.errors import InvalidRequest
from exec_server.limits import Limits
from exec_server.process.spawn import Granted
from exec_server.protocol.limit_words import limits_in, shown_limit
from exec_server.protocol.resources import GrantedLimit, ResourceLimits
from exec_server.state.limit_bounds import bounded

_NOT_HELD = "not held"


def keeper_limits(asked: ResourceLimits | None, limits: Limits) -> dict[str, Any] | None:
    """The limits of a start; None if there are none.

    Raises InvalidRequest if they are required and this server does not allow as much.
    """
    if asked is None and not limits.process_default and not limits.process_max:
        return None
    wanted = {} if asked is None else limits_in(asked)
    maximum = dict(limits.process_max)
    values, lowered = bounded(wanted, default=dict(limits.process_default), maximum=maximum)
    if asked is not None and asked.require and lowered:
        beyond = "; ".join(
            f"`{name}` may be at most {shown_limit(name, maximum[name])}" for name in lowered
        )
        raise InvalidRequest(f"the limits are beyond what this server allows: {beyond}")
    if not values:
        return None
    is_required = asked is not None and asked.require
    return {**values, "require": is_required, "ours": [os.getpid()]}


@functools.cache
def control_groups() -> tuple[bytes, ...]:
    """The mounts of control groups. A command that may write to them could lift its limits."""
    found: set[bytes] = set()
    with contextlib.suppress(OSError), open("/proc/self/mounts", "rb") as mounts:
        for line in mounts:
            _, path, kind, *_ = line.split()
            if kind in (b"cgroup", b"cgroup2") and os.path.isdir(path):
                found.add(path)
    return tuple(sorted(found))


def granted_limits(
    asked: dict[str, Any] | None, granted: Granted | None
) -> dict[str, GrantedLimit]:
    """What the client is told. An older keeper that goes on with durable jobs grants nothing."""
    if granted is not None:
        return {name: GrantedLimit(*words) for name, words in granted.items()}  # type: ignore[arg-type]
    names = {
        name: value for name, value in (asked or {}).items() if name not in ("require", "ours")
    }
    return {name: GrantedLimit(value, "none", "tree", _NOT_HELD) for name, value in names.items()}
