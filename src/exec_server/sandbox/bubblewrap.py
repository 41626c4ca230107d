"""A Plan as bubblewrap's arguments."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping

from exec_server.sandbox.model import Hide, Plan, Show, Unenforceable
from exec_server.sandbox.placeholders import Folder
from exec_server.sandbox.policy import is_within

# The folders in which bubblewrap and its helper programs are looked for. A client's PATH is never
# used: it would choose the program that runs outside of the sandbox.
FOLDERS = (
    "/usr/bin",
    "/usr/local/bin",
    "/bin",
    "/usr/sbin",
    "/run/wrappers/bin",
    "/run/current-system/sw/bin",
)

# The numbers of the descriptors that bubblewrap inherits.
ARGUMENTS_FD, FILTER_FD, FIRST_SOURCE_FD = 3, 4, 5
# A script, if there is one, comes before the sources. bubblewrap leaves it open for the command.
SCRIPT_FD = FIRST_SOURCE_FD
SCRIPT_PATH = f"/proc/self/fd/{SCRIPT_FD}"

_ROOT = b"/"
# bubblewrap makes these anew in each sandbox.
_DEVICES, _SHARED_MEMORY = b"/dev", b"/dev/shm"


def find(name: str) -> str | None:
    """The path of the system's program *name*, which only the administrator could have replaced."""
    for folder in FOLDERS:
        path = os.path.join(folder, name)
        try:
            found = os.stat(path)
        except OSError:
            continue
        is_trusted = found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISREG(found.st_mode) and is_trusted and os.access(path, os.X_OK):
            return path
    return None


def arguments(
    plan: Plan,
    *,
    folder: Folder,
    sources: Mapping[bytes, int],
    memory_files: int | None = None,
) -> list[bytes]:
    """All arguments before the command.

    *sources* has, by path, the numbers of the descriptors from which the steps are mounted; paths
    that are not in it are mounted by their names. A guard checks both. *memory_files* is the size
    of /dev/shm.
    """
    return [
        *_namespaces(plan),
        *_base(plan, memory_files),
        *_steps(plan, folder, sources),
        *_system(plan, folder, seals_devices=memory_files is not None),
    ]


def environment(env: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Arguments that give the command *env* and nothing else."""
    yield b"--clearenv"
    # Programs split an entry at its first '=', whatever we take for its name.
    for entry in (b"%b=%b" % item for item in env.items()):
        name, _, value = entry.partition(b"=")
        if not name:
            raise Unenforceable("a variable without a name cannot be passed into the sandbox")
        yield from (b"--setenv", name, value)


def _namespaces(plan: Plan) -> Iterator[bytes]:
    yield from (b"--unshare-user", b"--unshare-pid", b"--unshare-ipc")
    if plan.policy.network == "restricted" or plan.policy.is_proxied:
        yield b"--unshare-net"
    yield from (b"--new-session", b"--cap-drop", b"ALL")
    yield from (b"--seccomp", b"%d" % FILTER_FD)


def is_root_writable(plan: Plan) -> bool:
    """True if the base is the host's own tree, writable."""
    return Show(_ROOT, is_writable=True) in plan.steps


def _base(plan: Plan, memory_files: int | None) -> Iterator[bytes]:
    if is_root_writable(plan):
        yield from (b"--bind", _ROOT, _ROOT)
    elif plan.shows_host:
        yield from (b"--ro-bind", _ROOT, _ROOT)
    else:
        yield from (b"--tmpfs", _ROOT)
    yield from (b"--dev", _DEVICES)
    if memory_files is not None:
        # A size of 0 would stand for any size.
        size = b"%d" % max(memory_files, 1)
        yield from (b"--perms", b"1777", b"--size", size, b"--tmpfs", _SHARED_MEMORY)
    for path, target in plan.links:
        yield from (b"--symlink", target, path)


def _steps(plan: Plan, folder: Folder, sources: Mapping[bytes, int]) -> Iterator[bytes]:
    for step in plan.mounts:
        if step.path == _ROOT:
            # This is the base already.
            continue
        if isinstance(step, Hide):
            yield from _hide(step, folder)
            continue
        option = b"--bind" if step.is_writable else b"--ro-bind"
        if step.path in sources:
            yield from (option + b"-fd", b"%d" % sources[step.path], step.path)
        else:
            yield from (option, step.path, step.path)


def _hide(step: Hide, folder: Folder) -> Iterator[bytes]:
    if not step.is_directory:
        yield from (b"--ro-bind", folder.empty_file(is_readable=step.mode != 0), step.path)
        return
    yield from (b"--perms", b"%04o" % step.mode, b"--tmpfs", step.path)
    for path in step.reopened:
        yield from (b"--dir", path)
    for path in step.reopened_files:
        # A later step is mounted over it; by then no new name could be made here.
        yield from (b"--ro-bind", folder.empty_file(is_readable=False), path)


def _system(plan: Plan, folder: Folder, *, seals_devices: bool) -> Iterator[bytes]:
    if seals_devices:
        # It is in memory, too. The mounts in it stay as they are.
        yield from (b"--remount-ro", _DEVICES)
    # No command may see, or hold, the locks of the sandboxes.
    if is_visible(plan, folder.path):
        yield from (b"--perms", b"0000", b"--tmpfs", folder.path)
    # The last mount tells the guard that all others are made.
    yield from (b"--proc", b"/proc")


def is_visible(plan: Plan, path: bytes) -> bool:
    """True if the command sees the host's *path*, which is free of symbolic links, at that path."""
    is_shown = plan.shows_host
    for step in plan.steps:
        if is_within(path, step.path):
            is_shown = isinstance(step, Show)
    return is_shown
