"""Marks, which tell to which start a process belongs.

A mark is a number that every descendant of a program has, however often it has forked and whatever
session it is in. It is a soft limit that children inherit and that limits nothing: so many
microseconds of real-time scheduling (RLIMIT_RTTIME) take longer than the machine lives. A program
could change its own limit on purpose; it then lives on until the keeper ends.
"""

from __future__ import annotations

import resource

from exec_server.process.keeping.process_trees import (
    below,
    kill_group_of,
    own_children,
    processes,
)

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import KeysView

# All bits of a mark.
WHOLE_MARK = (1 << 63) - 1


def set_mark(mark: int) -> None:
    """Give *mark* to the programs that are started from now on."""
    if mark and hasattr(resource, "RLIMIT_RTTIME"):
        _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
        if hard == resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_RTTIME, (mark, hard))


def mark_of(pid: int) -> int:
    """The mark of a process; 0 if it has none or is gone."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            text = file.read()
    except OSError:
        return 0
    words = text.partition(b"Max realtime timeout")[2].split(maxsplit=1)
    return int(words[0]) if words and words[0].isdigit() else 0


class MarkedTrees:
    """Knows the marks of the programs *live*, and kills the trees whose marks are being ended."""

    def __init__(self, live: KeysView[int]) -> None:
        self._live = live
        self.marks: dict[int, int] = {}
        # The marks that are being ended, each with its mask; and descendants of what was killed for
        # that, which end as well, although they may have another mark.
        self.ending: set[tuple[int, int]] = set()
        self._doomed: set[int] = set()

    def reaped(self, pid: int) -> int:
        """A child has ended; returns its mark, 0 for none."""
        self._doomed.discard(pid)
        return self.marks.pop(pid, 0)

    def stop_ending(self) -> None:
        self.ending.clear()
        self._doomed.clear()

    def kill(self) -> None:
        """Kill every child of ours with a mark that is being ended.

        When a process dies its children become ours, with the same mark, and the keeper comes back
        here. A mark is done once no child of ours has it.
        """
        found: set[tuple[int, int]] = set()
        ended: list[int] = []
        for pid in own_children(self._live):
            mark = self.marks[pid] if pid in self.marks else mark_of(pid)
            matching = {end for end in self.ending if mark & end[1] == end[0]}
            found |= matching
            if matching or (pid in self._doomed and pid not in self._live):
                ended.append(pid)
        # The table takes long to read where there are many processes.
        if orphans := set(ended) - self._live:
            self._doomed |= below(orphans, processes())
        for pid in ended:
            kill_group_of(pid)
        self.ending &= found
        if not self.ending:
            self._doomed.clear()
