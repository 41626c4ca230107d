"""Moving a directory that has a protected path below it."""

from __future__ import annotations

import os

from .attempt import Stage, call, plain

_AT_FDCWD, _EXCHANGE = -100, 2
# A directory of the workspace, one in it, and a writable root of its own in that one.
ABOVE, ROOT = "above", "above/middle/root"


def _rename(path: str) -> None:
    os.rename(path, path + "-moved")
    os.rename(path + "-moved", path)


def _exchange(path: str) -> None:
    os.makedirs("fake", exist_ok=True)
    for _ in range(2):
        call("renameat2", _AT_FDCWD, path.encode(), _AT_FDCWD, b"fake", _EXCHANGE)


@plain
def above_renamed(stage: Stage) -> None:
    """rename the directory above a writable root"""
    _rename(os.path.dirname(ROOT))


@plain
def above_all_renamed(stage: Stage) -> None:
    """rename the directory two levels above a writable root"""
    _rename(ABOVE)


@plain
def above_root_renamed(stage: Stage) -> None:
    """rename a writable root that is inside another"""
    _rename(ROOT)


@plain
def above_exchanged(stage: Stage) -> None:
    """exchange the directory above a writable root with another"""
    _exchange(os.path.dirname(ROOT))


@plain
def above_all_exchanged(stage: Stage) -> None:
    """exchange the directory two levels above a writable root with another"""
    _exchange(ABOVE)


@plain
def above_by_descriptor(stage: Stage) -> None:
    """rename the directory above a writable root by the descriptor of its parent"""
    folder = os.open(ABOVE, os.O_PATH)
    os.rename("middle", "moved", src_dir_fd=folder, dst_dir_fd=folder)
    os.rename("moved", "middle", src_dir_fd=folder, dst_dir_fd=folder)
