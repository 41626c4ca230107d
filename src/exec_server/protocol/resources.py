"""Limits of what a process may use, as asked for and as granted. All of it is ours."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Whole = Annotated[int, msgspec.Meta(ge=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
LimitName = Literal[
    "memory", "pids", "cpuRate", "cpuSeconds", "wall", "outputBytes", "disk", "openFiles"
]
# What holds a limit. "none" stands for a limit that this machine cannot hold.
Mechanism = Literal["cgroup2", "cgroup1", "rlimit", "watched", "none"]


class ResourceLimits(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """The `limits` of `process/start`. A limit that is absent limits nothing."""

    # Bytes of all processes of the command together.
    memory: Whole | None = None
    # Processes and threads at once.
    pids: Whole | None = None
    # Cores: 0.5 is half of one core.
    cpu_rate: Positive | None = None
    # Seconds on a core, of all processes together.
    cpu_seconds: Positive | None = None
    # Seconds since the start.
    wall: Positive | None = None
    # Bytes of stdout and stderr together.
    output_bytes: Whole | None = None
    # Bytes that the command may leave on disk.
    disk: Whole | None = None
    # Open files of each process.
    open_files: Whole | None = None
    # True refuses the start if one of the limits cannot be held.
    require: bool = False


class GrantedLimit(msgspec.Struct, rename="camel", frozen=True):
    """What became of one limit."""

    # The value that holds; the server may have lowered it.
    value: int | float
    mechanism: Mechanism
    # The limit is for all processes of the command together, or for each.
    scope: Literal["tree", "process"]
    # How far the command may get beyond the value, in words: "exact", "checked every 100 ms".
    grain: str
