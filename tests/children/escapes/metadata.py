"""The protected names of a workspace."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable

from .attempt import Stage, plain

NAMES = ("git", "agents", "codex", "aws")


def _make(path: str, spare: str) -> None:
    os.mkdir(path)


def _write_in(path: str, spare: str) -> None:
    os.close(os.open(f"{path}/hook", os.O_WRONLY | os.O_CREAT))


def _remove(path: str, spare: str) -> None:
    os.rmdir(path)


def _rename_away(path: str, spare: str) -> None:
    os.rename(path, spare)


def _replace(path: str, spare: str) -> None:
    os.mkdir(spare)
    os.rename(spare, path)


def _link(path: str, spare: str) -> None:
    os.symlink("/etc", path)


_WAYS: dict[str, tuple[str, Callable[[str, str], None]]] = {
    "made": ("make a directory {name}", _make),
    "written": ("make a file in {name}", _write_in),
    "removed": ("remove {name}", _remove),
    "renamed": ("rename {name} away", _rename_away),
    "replaced": ("rename another directory over {name}", _replace),
    "linked": ("make a symbolic link {name}", _link),
}


def _start_anew(path: str) -> None:
    """Where the name may be written, nothing is left of the attempt before."""
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _register(name: str, way: str) -> None:
    text, act = _WAYS[way]

    def tried(stage: Stage) -> None:
        path = f"{stage.workspace}/.{name}"
        _start_anew(path)
        if way in ("written", "removed", "renamed") and not os.path.isdir(path):
            os.mkdir(path)
        act(path, f"{stage.workspace}/spare-{name}-{way}")

    tried.__name__ = f"{name}_{way}"
    tried.__doc__ = text.format(name=f".{name}")
    plain(tried)


for _name in NAMES:
    for _way in _WAYS:
        _register(_name, _way)


@plain
def lease_outside(stage: Stage) -> None:
    """take a lease on a file outside, which delays its writers"""
    fd = os.open(f"{stage.outside}/dir/file", os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)


@plain
def lock_outside(stage: Stage) -> None:
    """take a lock on a file outside that may be read"""
    fcntl.flock(os.open(f"{stage.outside}/dir/file", os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
