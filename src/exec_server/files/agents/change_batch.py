"""The names that have changed since the last report."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any

from exec_server.protocol.paths import to_uri

# The most changes in one line.
_MOST = 1000


class ChangeBatch:
    """Collects names below *root*, and describes them as they are when they are reported.

    A name is `created` if it was made or moved there since the last report, whatever became of it
    before. With *only* the other names do not count.
    """

    def __init__(self, root: bytes, *, only: bytes | None = None) -> None:
        self._root = root
        self._only = only
        # The names, and whether each is new.
        self._names: dict[bytes, bool] = {}
        self._needs_rescan = False

    def __bool__(self) -> bool:
        return bool(self._names) or self._needs_rescan

    @property
    def is_large(self) -> bool:
        return len(self._names) >= 20 * _MOST

    def add(self, path: bytes, *, is_new: bool) -> None:
        if self._only is None or path == self._only:
            self._names[path] = is_new or self._names.get(path, False)

    def rescan(self) -> None:
        """Notices were lost: everything has to be looked at again."""
        self._needs_rescan = True
        self._names.clear()

    def take(self) -> Iterator[dict[str, Any]]:
        """The messages for what was collected; the next collection begins."""
        names, self._names = self._names, {}
        if self._needs_rescan:
            self._needs_rescan = False
            yield {"changes": [], "rescan": [to_uri(self._root)]}
        changes = []
        for path, is_new in names.items():
            changes.append(self._change(path, is_new=is_new))
            if len(changes) == _MOST:
                yield {"changes": changes}
                changes = []
        if changes:
            yield {"changes": changes}

    def _change(self, path: bytes, *, is_new: bool) -> dict[str, str]:
        full = os.path.join(self._root, path)
        kind = _type(full)
        how = "removed" if kind == "missing" else "created" if is_new else "modified"
        return {"path": to_uri(full), "kind": how, "type": kind}


def _type(path: bytes) -> str:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return "missing"
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISREG(mode):
        return "file"
    return "symlink" if stat.S_ISLNK(mode) else "other"
