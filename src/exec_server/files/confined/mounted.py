"""Whether what a helper's walls stand on is still there.

A mount goes away with the directory or file that it lies on. Somebody who replaces `.git`, or saves
a denied file under its old name, takes a warm helper's wall away, though the plan stays the same.
"""

from __future__ import annotations

import os

from exec_server.sandbox.model import Plan

# A descriptor keeps a number from being given to another file. Beyond so many, files are told apart
# by their last change as well, and so mistaken for others now and then, which costs a new helper.
_MAX_PINS = 64

_Identity = tuple[int, ...] | None


class Mounted:
    """The files at the paths of *plan*'s steps, as they were before they were mounted.

    Names that were missing then are looked at in `settle`, once they have been made.
    """

    def __init__(self, plan: Plan) -> None:
        self._pins: list[int] = []
        self._seen: dict[bytes, _Identity] = {}
        self._pinned: set[bytes] = set()
        for step in plan.steps:
            self._look(step.path)

    def settle(self) -> None:
        """The helper is there, and what was missing has been made for it."""
        for path in [path for path, seen in self._seen.items() if seen is None]:
            self._look(path)

    def is_still_there(self) -> bool:
        """Whether each path still has the file that was seen there."""
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
            # Missing, or there are no descriptors left.
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
