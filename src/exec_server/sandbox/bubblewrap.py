"""A Plan as bubblewrap's arguments."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping

from exec_server.sandbox.model import Hide, Plan, Show, Unenforceable
from exec_server.sandbox.placeholders import Folder
from exec_server.sandbox.policy import is_within

# Where bubblewrap and what it runs are looked for. Never on a client's PATH: whoever chooses
# bubblewrap chooses what runs outside of the sandbox.
FOLDERS = (
    "/usr/bin",
    "/usr/local/bin",
    "/bin",
    "/usr/sbin",
    "/run/wrappers/bin",
    "/run/current-system/sw/bin",
)

# The descriptors that it finds open, one after the other.
ARGUMENTS_FD, FILTER_FD, FIRST_SOURCE_FD = 3, 4, 5
# A script, if there is one, comes before the sources. bubblewrap leaves it open for the command.
SCRIPT_FD = FIRST_SOURCE_FD
SCRIPT_PATH = f"/proc/self/fd/{SCRIPT_FD}"

# Writable below /proc for root, whose ids are the host's, and about the whole machine.
_MACHINE_FILES = ("sys sysrq-trigger irq bus fs acpi scsi asound mtrr driver dynamic_debug").split()
_ROOT = b"/"


def find(name: str) -> str | None:
    """The system's own program *name*, which nobody but its administrator could have replaced."""
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


def arguments(plan: Plan, *, folder: Folder, sources: Mapping[bytes, int]) -> list[bytes]:
    """Everything before the command.

    *sources* are the numbers of descriptors that the writable parts are mounted from, by path;
    those that are not in it are mounted by their names.
    """
    return [
        *_namespaces(plan),
        *_base(plan),
        *_steps(plan, folder, sources),
        *_system(plan, folder),
    ]


def environment(env: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Arguments that give the command *env* and nothing else."""
    yield b"--clearenv"
    # An entry is split at its first '=' by whoever reads it, whatever we call its name.
    for entry in (b"%b=%b" % item for item in env.items()):
        name, _, value = entry.partition(b"=")
        if not name:
            raise Unenforceable("a variable without a name cannot be passed into the sandbox")
        yield from (b"--setenv", name, value)


def _namespaces(plan: Plan) -> Iterator[bytes]:
    yield from (b"--unshare-user", b"--unshare-pid", b"--unshare-ipc")
    if plan.policy.network == "restricted" or plan.policy.is_proxied:
        yield b"--unshare-net"
    yield from (b"--new-session", b"--die-with-parent", b"--cap-drop", b"ALL")
    yield from (b"--seccomp", b"%d" % FILTER_FD)


def _is_root_writable(plan: Plan) -> bool:
    return Show(_ROOT, is_writable=True) in plan.steps


def _base(plan: Plan) -> Iterator[bytes]:
    if _is_root_writable(plan):
        yield from (b"--bind", _ROOT, _ROOT)
    elif plan.shows_host:
        yield from (b"--ro-bind", _ROOT, _ROOT)
    else:
        yield from (b"--tmpfs", _ROOT)
    yield from (b"--dev", b"/dev")
    for path, target in plan.links:
        yield from (b"--symlink", target, path)


def _steps(plan: Plan, folder: Folder, sources: Mapping[bytes, int]) -> Iterator[bytes]:
    for step in plan.steps:
        if step.path == _ROOT:
            # The base already.
            continue
        if isinstance(step, Hide):
            yield from _hide(step, folder)
        elif not step.is_writable:
            yield from (b"--ro-bind", step.path, step.path)
        elif step.path in sources:
            yield from (b"--bind-fd", b"%d" % sources[step.path], step.path)
        else:
            yield from (b"--bind", step.path, step.path)


def _hide(step: Hide, folder: Folder) -> Iterator[bytes]:
    if not step.is_directory:
        yield from (b"--ro-bind", folder.empty_file(is_readable=step.mode != 0), step.path)
        return
    yield from (b"--perms", b"%04o" % step.mode, b"--tmpfs", step.path)
    for path in step.reopened:
        yield from (b"--dir", path)
    for path in step.reopened_files:
        # A later step lies over it; by then there is no more room for a name.
        yield from (b"--ro-bind", folder.empty_file(is_readable=False), path)
    yield from (b"--remount-ro", step.path)


def _system(plan: Plan, folder: Folder) -> Iterator[bytes]:
    # Nobody in here is to see, or hold, the locks of all sandboxes.
    if plan.shows_host or any(is_within(folder.path, step.path) for step in plan.steps):
        yield from (b"--perms", b"0000", b"--tmpfs", folder.path, b"--remount-ro", folder.path)
    yield from (b"--proc", b"/proc")
    for name in _MACHINE_FILES:
        path = b"/proc/" + name.encode()
        if os.path.exists(path):
            yield from (b"--ro-bind", path, path)
    if not plan.shows_host:
        yield from (b"--remount-ro", _ROOT)


def is_visible(plan: Plan, path: bytes) -> bool:
    """Whether the host's *path*, free of symbolic links, is what the command sees there."""
    is_shown = plan.shows_host
    for step in plan.steps:
        if is_within(path, step.path):
            is_shown = isinstance(step, Show)
    return is_shown
