"""A lane: runs a bounded number of jobs at once and keeps the others in order."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Job = TypeVar("Job")


class Lane(Generic[Job]):
    """At most *width* jobs at a time; the others wait in order."""

    __slots__ = ("_running", "_waiting", "_width")

    def __init__(self, width: int) -> None:
        self._width = width
        self._running = 0
        self._waiting: deque[Job] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def has_room(self) -> bool:
        """True if a job may run now; then none waits."""
        return self._running < self._width

    def enter(self, job: Job) -> bool:
        """True if *job* may run now; otherwise it waits."""
        if self._running >= self._width:
            self._waiting.append(job)
            return False
        self._running += 1
        return True

    def leave(self) -> Job | None:
        """A job has ended: return the next one, which runs now, or None when none waits."""
        if self._waiting:
            return self._waiting.popleft()
        self._running -= 1
        return None
