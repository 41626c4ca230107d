"""Checks that the mount points of a helper are still in place.

A mount disappears when the file or directory under it is replaced. If a program replaces `.git`, or
saves a denied file under its old name, a warm helper loses that mount although its plan is equal.
"""

from __future__ import annotations

import os

from exec_server.sandbox.model import Plan

# An open descriptor keeps the inode's number from being used again. Files beyond this number are
# compared by their time of change as well; a change then costs a new helper without need.
_MAX_PINS = 64

_Identity = tuple[int, ...] | None


class Mounted:
    """The files at the paths of *plan*'s steps, as they were before they were mounted."""

    def __init__(self, plan: Plan) -> None:
        self._pins: list[int] = []
        self._seen: dict[bytes, _Identity] = {}
        self._pinned: set[bytes] = set()
        for step in plan.mounts:
            self._look(step.path)

    def is_still_there(self) -> bool:
        """True if each path still leads to the file that was recorded."""
        return all(
            seen is None or _identity(path, is_pinned=path in self._pinned) == seen
            for path, seen in self._seen.items()
        )

    def close(self) -> None:
        while self._pins:
            os.close(self._pins.pop())

    def _look(self, path: bytes) -> None:
        try:
            if len(self._pins) < _MAX_PINS:
                self._pins.append(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC))
                self._pinned.add(path)
                self._seen[path] = _key(os.fstat(self._pins[-1]), is_pinned=True)
                return
        except OSError:
            # The file is missing, or there are no descriptors left.
            pass
        self._seen[path] = _identity(path, is_pinned=False)


def _identity(path: bytes, *, is_pinned: bool) -> _Identity:
    try:
        return _key(os.lstat(path), is_pinned=is_pinned)
    except OSError:
        return None


def _key(found: os.stat_result, *, is_pinned: bool) -> tuple[int, ...]:
    number = found.st_dev, found.st_ino
    return number if is_pinned else (*number, found.st_ctime_ns)
