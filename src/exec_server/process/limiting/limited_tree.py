"""One command with limits, and what of it has to be looked at.

The keeper loads this file by its path; only the standard library is available there.
"""

from __future__ import annotations

import time

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from exec_server.process.limiting.cgroups import Group
    from exec_server.process.limiting.limited_start import LimitedStart
    from exec_server.process.limiting.tree_usage import TreeUsage


class LimitedTree:
    """One command with limits, from its start to the end of its last process."""

    def __init__(
        self, limited: LimitedStart, pid: int, mark: int, namespace: Any, usage: TreeUsage
    ) -> None:
        self.pid = pid
        self.mark = mark
        # The namespace of a command in bubblewrap.
        self.namespace = namespace
        self.group: Group | None = limited.group
        # True while its first process has not been reaped.
        self.is_live = True
        # The limit that was reached; the tree is killed until nothing is left.
        self.reached: str | None = None
        self.usage = usage
        # The processes that were seen, with the time of their start.
        self.known: dict[int, int] = {}
        value = limited.value
        self.has_memory_group = value("memory", "cgroup1", "cgroup2") is not None
        self.memory = value("memory", "watched")
        self.pids = value("pids", "watched")
        self.cpu_seconds = value("cpuSeconds", "watched")
        self.disk = value("disk", "watched")
        wall = value("wall", "watched")
        self.ends_at = None if wall is None else time.monotonic() + wall
        # When the exact reading of its memory, which takes long, may be made again.
        self.read_again_at = 0.0

    @property
    def reads_processes(self) -> bool:
        """True if its processes have to be looked at one by one."""
        if self.memory is not None or self.pids is not None or self.disk is not None:
            return True
        counted = self.group is not None and self.group.cpu_seconds() is not None
        return self.cpu_seconds is not None and not counted

    @property
    def is_looked_at(self) -> bool:
        watched = (self.memory, self.pids, self.cpu_seconds, self.disk)
        is_watched = any(value is not None for value in watched) or self.has_memory_group
        return is_watched or self.reached is not None
