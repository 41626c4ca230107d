"""Tells processes of a sandbox from all others, by what the kernel says of them in `/proc`.

A sandboxed process lives below the server, and is in another user namespace (bubblewrap) or has
more system call filters than the server itself (Landlock, seccomp). No process can undo either.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache

_ROOT = 0
# Longer chains of parents than this do not occur; a reused process id could make a circle.
_LONGEST_CHAIN = 4096


def is_confined(pid: int, *, server: int | None) -> bool:
    """True if *pid* is in a sandbox of the process *server*, or if that cannot be found out.

    With None, every process that is restricted counts as one of a sandbox.
    """
    try:
        return (server is None or _is_below(pid, server)) and _is_restricted(pid)
    except (OSError, KeyError, ValueError):
        return True


def held_outside(sockets: Mapping[int, int], *, server: int | None) -> set[int]:
    """Those of *sockets* that only processes outside of all sandboxes of *server* have open.

    Each of *sockets* is an inode and its user. All processes are looked at once. It is not enough
    to look for a sandboxed holder: a socket that is on its way from one process to another has no
    holder for a moment.
    """
    names = {f"socket:[{inode}]": inode for inode in sockets}
    holders: dict[int, set[int]] = {}
    for pid in _processes_of(set(sockets.values())):
        for link in _links(pid):
            if link in names:
                holders.setdefault(names[link], set()).add(pid)
    confined = {pid for pid in set().union(*holders.values()) if is_confined(pid, server=server)}
    return {inode for inode, pids in holders.items() if confined.isdisjoint(pids)}


def _processes_of(uids: set[int]) -> Iterator[int]:
    """The processes that may hold a socket of *uids*. A socket of root may be held by any."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            owner = os.stat(f"/proc/{name}").st_uid
        except OSError:
            continue
        # A process that is not dumpable belongs to root here.
        if _ROOT in uids or owner == _ROOT or owner in uids:
            yield int(name)


def _links(pid: int) -> Iterator[str | None]:
    """What the descriptors of *pid* lead to."""
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:
        return
    for number in descriptors:
        yield _link(f"{folder}/{number}")


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _is_below(pid: int, ancestor: int) -> bool:
    for _ in range(_LONGEST_CHAIN):
        if pid == ancestor:
            return True
        if pid <= 1:
            return False
        pid = int(_status(pid)["PPid"])
    return True


def _is_restricted(pid: int) -> bool:
    if os.readlink(f"/proc/{pid}/ns/user") != _own_namespace():
        return True
    return _filters(_status(pid)) > _own_filters()


@cache
def _own_namespace() -> str:
    return os.readlink("/proc/self/ns/user")


@cache
def _own_filters() -> int:
    return _filters(_status(os.getpid()))


def _filters(status: dict[str, str]) -> int:
    """How many system call filters a process has; kernels before 5.9 tell only whether any."""
    return int(status.get("Seccomp_filters") or status["Seccomp"])


def _status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as lines:
        return dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)
