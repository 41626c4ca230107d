"""What watches over sandboxed programs: guards, supervisors, and the watch over their mounts."""

from __future__ import annotations

import os

from exec_server.process.keeping.c_parts import signal
from exec_server.process.keeping.late_parts import confine
from exec_server.process.keeping.process_trees import signal_each

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    from collections.abc import Callable
    from typing import Any

# The exit status of a guard that found something else than expected; see sandbox/guard.py.
GUARD_REFUSED = 2
# Why a program ends whose supervisor has died; every call that it makes fails from then on.
UNSUPERVISED = "exec-server: the supervisor of the sandbox died, so the command was ended"


class SandboxWatch:
    """Watches over the sandboxes of programs in *live*; *kill* ends one of them."""

    def __init__(
        self,
        live: dict[int, Any],
        poll: select.poll | select.epoll,
        kill: Callable[[int], None],
    ) -> None:
        self._live = live
        self._poll = poll
        self._kill = kill
        # The guards that run, each with the pid of its bubblewrap; and the bubblewraps whose guard
        # did not let the command run.
        self.guards: dict[int, int] = {}
        self._refused: set[int] = set()
        # The supervisors that run, each with the pid and the mark of its program.
        self.supervisors: dict[int, tuple[int, int]] = {}
        # The watch over the mounts of sandboxes that run, once there was one; and why programs were
        # killed because of it.
        self.walls: Any = None
        self._reasons: dict[int, str] = {}

    def look(self, ready: set[int]) -> None:
        """Kill the programs whose sandboxes have lost a mount. Call it once there are `walls`."""
        self._end_unwalled(self.walls.lost(ready))

    def reaped(self, pid: int) -> None:
        """The program with *pid* has ended."""
        if self.walls is not None:
            self.walls.remove(pid)
        # A guard that still waits would hold the output open.
        guards = [guard for guard, guarded in self.guards.items() if guarded == pid]
        signal_each(guards, signal.SIGKILL)

    def end_guard(self, pid: int, status: int) -> None:
        """The guard of *pid* has ended; if the command was not allowed to run, end its sandbox."""
        if pid not in self._live:
            return
        if not status:
            self._watch_walls(pid)
            return
        if os.waitstatus_to_exitcode(status) == GUARD_REFUSED:
            self._refused.add(pid)
        self._kill(pid)

    def end_unsupervised(self, pid: int) -> None:
        """The supervisor of *pid* has died."""
        self._end_unwalled([(pid, UNSUPERVISED)])

    def taken_refusal(self, pid: int) -> bool:
        """True if the command in the sandbox of *pid*, which has ended, was not allowed to run."""
        if pid not in self._refused:
            return False
        self._refused.discard(pid)
        return True

    def taken_reason(self, pid: int, status: int) -> str | None:
        """Why *pid* was killed, if it was."""
        reason = self._reasons.pop(pid, None)
        # It may have ended by itself a moment before.
        return reason if os.WIFSIGNALED(status) else None

    def _watch_walls(self, pid: int) -> None:
        """Watch the mounts of the sandbox of *pid*, whose command runs now."""
        if self.walls is None:
            self.walls = confine().wall_watch(self._poll)
        try:
            reason = self._live[pid].watched_by(self.walls, pid)
        except OSError as exc:
            reason = self.walls.unwatched(exc)
        if reason is not None:
            self._end_unwalled([(pid, reason)])

    def _end_unwalled(self, lost: list[tuple[int, str]]) -> None:
        """Kill the programs whose sandboxes have lost a mount, each with its reason."""
        for pid, reason in lost:
            if pid in self._live and pid not in self._reasons:
                self._reasons[pid] = reason
                self._kill(pid)
