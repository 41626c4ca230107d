"""fs/watchMissing: one notice when a missing file appears.

Every directory on the way to a watched path is watched for changes of the next name in it. This
reports when the path appears, and when a part of the way is moved, replaced or gets a new mode.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Sequence

from exec_server.files.operations.oserrors import os_error
from exec_server.files.watch import inotify

_CHANGES = (
    inotify.IN_CREATE
    | inotify.IN_DELETE
    | inotify.IN_MOVED_FROM
    | inotify.IN_MOVED_TO
    | inotify.IN_ATTRIB
)


class Watch:
    """A queue of the kernel, and the names whose notices count."""

    def __init__(self, queue: int, names: set[tuple[int, bytes]]) -> None:
        self._queue = queue
        self._names = names
        self._loop: asyncio.AbstractEventLoop | None = None

    def arm(self, fire: Callable[[], None]) -> None:
        """Call *fire* once on the event loop when a name has changed since `watch`."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._queue, self._look, fire)

    def _look(self, fire: Callable[[], None]) -> None:
        for notice in inotify.read_notices(self._queue):
            if notice.mask & inotify.IN_Q_OVERFLOW or notice[::2] in self._names:
                self.disarm()
                fire()
                return

    def disarm(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._queue)
            self._loop = None

    def close(self) -> None:
        """Close the queue, which may take milliseconds. `disarm` must be called before."""
        os.close(self._queue)


def watch(missing: Sequence[bytes], present: bytes | None) -> Watch | None:
    """Watch for *missing* to appear and *present* to change; None if that is not possible."""
    try:
        queue = inotify.open_queue()
    except OSError:
        return None
    names: set[tuple[int, bytes]] = set()
    try:
        for path in missing:
            names |= _watch_way(queue, path, must_exist=False)
        if present is not None:
            names |= _watch_way(queue, present, must_exist=True)
    except OSError:
        os.close(queue)
        return None
    return Watch(queue, names)


def _watch_way(queue: int, path: bytes, *, must_exist: bool) -> set[tuple[int, bytes]]:
    """Watch each directory on the way to *path* that exists.

    Raises OSError if *path* exists but should not, or is missing but should exist, and if there is
    a link on the way.
    """
    names = set()
    directory = b"/"
    parts = path[1:].split(b"/") if path != b"/" else []
    for index, name in enumerate(parts):
        is_last = must_exist and index == len(parts) - 1
        mask = _CHANGES | (inotify.IN_MODIFY if is_last else 0)
        names.add((inotify.add_watch(queue, directory, mask), name))
        directory = os.path.join(directory, name)
        # The parent is watched before this look, so that no change is missed.
        if not _exists(directory):
            if must_exist:
                raise os_error(errno.ENOENT)
            return names
    if not must_exist or os.path.islink(path):
        raise os_error(errno.EEXIST)
    return names


def _exists(path: bytes) -> bool:
    with contextlib.suppress(FileNotFoundError):
        os.lstat(path)
        return True
    return False
