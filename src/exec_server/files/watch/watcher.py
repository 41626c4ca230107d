"""fs/watchMissing: one notice when something appears that was missing.

Every directory on the way to a watched path is watched for what happens to the next name in it.
That is enough to see the path come to be, and any part of its way be moved, replaced or chmod-ed.
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
    """A queue of the kernel, and which of its notices count."""

    def __init__(self, queue: int, names: set[tuple[int, bytes]]) -> None:
        self._queue = queue
        self._names = names
        self._loop: asyncio.AbstractEventLoop | None = None

    def arm(self, fire: Callable[[], None]) -> None:
        """Call *fire* once, from the event loop, when something has changed since `watch`."""
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
        """Forget the queue, which may take milliseconds. `disarm` comes first."""
        os.close(self._queue)


def watch(missing: Sequence[bytes], present: bytes | None) -> Watch | None:
    """Watch for the *missing* to appear and the *present* to change; None when it cannot be."""
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
    """Watch each directory on the way to *path*, as far as there are any.

    Raises OSError when the path exists though it should not, or the other way round, and when
    there is a link on the way.
    """
    names = set()
    directory = b"/"
    parts = path[1:].split(b"/") if path != b"/" else []
    for index, name in enumerate(parts):
        is_last = must_exist and index == len(parts) - 1
        mask = _CHANGES | (inotify.IN_MODIFY if is_last else 0)
        names.add((inotify.add_watch(queue, directory, mask), name))
        directory = os.path.join(directory, name)
        # Looked at only once the directory above is watched: from then on nothing is missed.
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
