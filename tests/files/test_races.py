"""Directories that become links while they are used: no file outside is ever touched."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exec_server.errors import RpcError
from exec_server.files.operations import atomic_write, attributes, local, nofollow
from tests.requirements import requirement
from tests.support.trees import snapshot

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs renameat2")
_libc: Any = ctypes.CDLL(None, use_errno=True)

# This is enough for thousands of swaps and calls.
SECONDS = 0.25


class Arena:
    """`inside/door` is a directory with a victim, and at times a link to `outside`."""

    def __init__(self, root: Path) -> None:
        self.inside, self.outside = root / "inside", root / "outside"
        for folder in (self.inside / "door", self.outside):
            folder.mkdir(parents=True)
            (folder / "victim").write_text("untouched")
            (folder / "empty").mkdir()
        (self.inside / "decoy").symlink_to(self.outside)
        (self.inside / "file").write_text("mine")
        self.swaps = 0
        self._is_over = threading.Event()

    @property
    def door(self) -> bytes:
        return os.fsencode(self.inside / "door")

    @contextlib.contextmanager
    def swapping(self) -> Iterator[None]:
        """Swap the directory and the link again and again during the block."""
        thread = threading.Thread(target=self._swap)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()

    def _swap(self) -> None:
        door, decoy = os.fsencode(self.inside / "door"), os.fsencode(self.inside / "decoy")
        while not self._is_over.is_set():
            # One of the names may be gone for a moment.
            with contextlib.suppress(OSError):
                exchange(door, decoy)
                self.swaps += 1

    def restore(self) -> None:
        """Restore the directory to its state before the call."""
        for folder in ("door", "decoy"):
            with contextlib.suppress(OSError):
                fd = os.open(self.inside / folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
                try:
                    _restore(fd)
                finally:
                    os.close(fd)
        (self.inside / "file").touch()


def _restore(fd: int) -> None:
    with contextlib.suppress(OSError):
        os.rmdir("new/below", dir_fd=fd)
    for remove in (os.rmdir, os.unlink):
        with contextlib.suppress(OSError):
            remove("new", dir_fd=fd)
    with contextlib.suppress(OSError):
        os.mkdir("empty", dir_fd=fd)
    os.close(os.open("victim", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd))


def exchange(one: bytes, other: bytes) -> None:
    """Exchange two names in one step."""
    if _libc.renameat2(-100, one, -100, other, 2) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


CALLS: dict[str, Callable[[Arena], object]] = {
    "writeFile": lambda arena: nofollow.write_file(arena.door + b"/victim", b"evil"),
    "writeFile, new": lambda arena: nofollow.write_file(arena.door + b"/new", b"evil"),
    "writeFile, atomic": lambda arena: atomic_write.write_file(
        arena.door + b"/victim", b"evil", False
    ),
    "append": lambda arena: nofollow.append(arena.door + b"/victim", True, b"evil"),
    "createDirectory": lambda arena: nofollow.create_directory(arena.door + b"/new", False),
    "createDirectory, deep": lambda arena: nofollow.create_directory(
        arena.door + b"/new/below", True
    ),
    "remove": lambda arena: nofollow.remove(arena.door + b"/victim", False, True),
    "remove, directory": lambda arena: nofollow.remove(arena.door + b"/empty", False, True),
    "setPermissions": lambda arena: attributes.set_permissions_nofollow(
        arena.door + b"/victim", 0o777, 1, 1
    ),
    "rename, from": lambda arena: attributes.rename_nofollow(
        arena.door + b"/victim", os.fsencode(arena.inside / "file"), True
    ),
    "rename, to": lambda arena: attributes.rename_nofollow(
        os.fsencode(arena.inside / "file"), arena.door + b"/victim", True
    ),
}


@pytest.mark.parametrize("has_openat2", [True, False])
@pytest.mark.parametrize("call", CALLS)
@requirement("fs/nofollow:race-free", "fs/nofollow:every-component")
def test_nothing_outside_is_touched(tmp_path, monkeypatch, call, has_openat2):
    if not has_openat2:
        monkeypatch.setattr(nofollow, "_HAS_OPENAT2", False)
    elif not nofollow._HAS_OPENAT2:
        pytest.skip("the kernel has no openat2")
    arena = Arena(tmp_path)
    before = snapshot(os.fsencode(arena.outside))
    times = (arena.outside / "victim").stat().st_mtime_ns
    done = refused = 0
    with arena.swapping():
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline or not (done and refused) or arena.swaps < 10:
            try:
                CALLS[call](arena)
                done += 1
            except (OSError, RpcError):
                refused += 1
            arena.restore()
    assert snapshot(os.fsencode(arena.outside)) == before
    assert (arena.outside / "victim").stat().st_mtime_ns == times


@requirement("fs/remove:never-follows")
def test_a_removal_never_leaves_its_tree(tmp_path):
    """A directory in a listing may be a link by the time it is entered."""
    arena = Arena(tmp_path)
    before = snapshot(os.fsencode(arena.outside))
    removed = 0
    with arena.swapping():
        deadline = time.monotonic() + 2 * SECONDS
        while time.monotonic() < deadline or not removed or arena.swaps < 10:
            with contextlib.suppress(OSError):
                local.remove(os.fsencode(arena.inside), True, False)
                removed += 1
            for name in ("door/empty/deep", "door/a/b/c"):
                with contextlib.suppress(OSError):
                    os.makedirs(arena.inside / name)
            with contextlib.suppress(OSError):
                os.symlink(arena.outside, arena.inside / "decoy")
            # The call made it, while the door was a link.
            for name in ("empty/deep", "a/b/c", "a/b", "a"):
                with contextlib.suppress(OSError):
                    os.rmdir(arena.outside / name)
    assert snapshot(os.fsencode(arena.outside)) == before
