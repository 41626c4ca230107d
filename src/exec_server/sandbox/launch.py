"""Confine a command by a Plan: what the keeper has to start instead, and how."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from exec_server.sandbox import landlock, seccomp
from exec_server.sandbox.backends import HERE, Backends, BackendUnavailable, Bubblewrap
from exec_server.sandbox.bubblewrap import (
    ARGUMENTS_FD,
    FIRST_SOURCE_FD,
    arguments,
    environment,
    find,
    is_visible,
)
from exec_server.sandbox.model import NOT_BUILT, NOT_RUN, Backend, Hide, Plan, Show, Unenforceable
from exec_server.sandbox.placeholders import Folder, release

_DEFAULT_PATH = b"/bin:/usr/bin"
# The kernel passes up to 253 descriptors at once.
_MAX_SOURCES, _MAX_PLACEHOLDERS = 100, 100
_SAY_AND_EXIT = b'printf "%s\\n" "$1" >&2; exit "$2"'
_RENAMED = b'name=$1; shift; exec -a "$name" "$@"'

_NO_PROXY = (
    "failed to prepare host proxy routing bridge: "
    "managed proxy mode requires proxy environment variables"
)
_NO_BRIDGE = (
    "failed to prepare host proxy routing bridge: "
    "managed proxy mode requires parseable loopback proxy endpoints"
)


class RequestedCommand(NamedTuple):
    """The command of a client. Like execvp(3), *program* is searched on the PATH of *env*."""

    program: bytes
    argv: list[bytes]
    env: dict[bytes, bytes]
    cwd: bytes
    is_tty: bool
    # A file that the command reads at `SCRIPT_PATH`, because it cannot see the file's own name.
    script: str | None = None
    # Only for a command that may reach nothing but its proxy: the descriptor that bubblewrap reads
    # from before it runs the command, and the one to which it writes the pid of the first process
    # inside. Both stay open here.
    gate: tuple[int, int] | None = None


class ConfinedCommand(NamedTuple):
    """What to start instead; *fence* and *fds* are for the keeper, which closes them."""

    backend: Backend
    program: bytes
    argv: list[bytes]
    env: dict[bytes, bytes]
    fence: tuple[Any, ...] | None = None
    fds: tuple[int, ...] = ()

    def discard(self) -> None:
        """Undo what was prepared, instead of starting it."""
        markers = self.fence[3] if self.fence is not None and self.fence[0] == "bubblewrap" else ()
        split = len(self.fds) - len(markers)
        for fd in self.fds[:split]:
            os.close(fd)
        for fd, marker in zip(self.fds[split:], markers, strict=True):
            release(fd, marker)


def confine(
    command: RequestedCommand,
    plan: Plan,
    *,
    prefers_landlock: bool = False,
    backends: Backends = HERE,
    folder: Folder | None = None,
) -> ConfinedCommand:
    """Confine *command* to *plan* with the strongest backend of this machine.

    If that is impossible, the result is a `refusal`, and nothing of the client's runs. Raises
    OSError when the system fails otherwise.
    """
    try:
        if plan.policy.is_proxied and command.gate is None:
            raise BackendUnavailable(_NO_BRIDGE if _has_proxy(command.env) else _NO_PROXY)
        backend = backends.choose(plan, prefers_landlock=prefers_landlock)
        if backend != "bubblewrap":
            # The keeper reports a program that cannot run.
            return _in_place(command, plan, backend)
        obstacle = _why_not_runnable(command, plan)
        if obstacle:
            return not_run(command, obstacle)
        assert backends.bubblewrap is not None
        return _in_bubblewrap(command, plan, backends.bubblewrap, folder or Folder())
    except BackendUnavailable as exc:
        return refusal(str(exc), NOT_RUN)
    except Unenforceable as exc:
        return not_built(exc)


def refusal(text: str, status: int) -> ConfinedCommand:
    """A program that prints *text* and ends with *status*, in place of a refused command."""
    argv = [b"sh", b"-c", _SAY_AND_EXIT, b"sh", os.fsencode(text), b"%d" % status]
    return ConfinedCommand("none", b"/bin/sh", argv, {})


def not_built(reason: Unenforceable) -> ConfinedCommand:
    """The refusal of a policy that no backend can express."""
    return refusal(f"error building bubblewrap command: {reason}", NOT_BUILT)


def not_run(command: RequestedCommand, number: int) -> ConfinedCommand:
    """The refusal of a program that is missing or cannot run, for the reason *number*."""
    name = os.fsdecode(command.program)
    text = f"failed to run {name} in the sandbox: {os.strerror(number)} (os error {number})"
    return refusal(text, NOT_RUN)


# Without namespaces.


def _in_place(command: RequestedCommand, plan: Plan, backend: Backend) -> ConfinedCommand:
    if backend == "none":
        return ConfinedCommand(backend, command.program, command.argv, command.env)
    is_landlock = backend == "landlock"
    filter_ = seccomp.program(
        seccomp.Kind(_sockets(plan), "landlock" if is_landlock else "nothing")
    )
    fds = (landlock.ruleset(plan),) if is_landlock else ()
    fence = ("confine", len(fds), is_landlock, filter_)
    return ConfinedCommand(backend, command.program, command.argv, command.env, fence, fds)


def _sockets(plan: Plan) -> seccomp.Sockets:
    if plan.policy.is_proxied:
        return "proxied"
    return "related" if plan.policy.network == "restricted" else "no-vsock"


# In bubblewrap.


def _in_bubblewrap(
    command: RequestedCommand, plan: Plan, bubblewrap: Bubblewrap, folder: Folder
) -> ConfinedCommand:
    filter_ = seccomp.program(seccomp.Kind(_sockets(plan), "namespaces"))
    inner = _inner(command, plan, bubblewrap)
    folder.prepare()
    held = folder.hold(_mount_points(plan))
    fds: list[int] = []
    try:
        if command.script is not None:
            fds.append(os.open(command.script, os.O_RDONLY | os.O_CLOEXEC))
        sources = _open_sources(plan, fds) if bubblewrap.has_bind_fd else {}
        gate = _open_gate(command, fds)
        options = [
            *environment(command.env),
            *arguments(plan, folder=folder, sources=sources),
            *gate,
            # The keeper adds this descriptor after all others.
            *(b"--info-fd", b"%d" % (FIRST_SOURCE_FD + len(fds))),
            *((b"--argv0", command.argv[0]) if _is_renamed_by(bubblewrap, command) else ()),
        ]
        fds[:0] = (_memory(b"\0".join(options) + b"\0"), _memory(filter_))
    except BaseException:
        ConfinedCommand("none", b"", [], {}, _fence(fds, held), _all_fds(fds, held)).discard()
        raise
    path = os.fsencode(bubblewrap.path)
    argv = [path, b"--args", b"%d" % ARGUMENTS_FD, b"--", *inner]
    return ConfinedCommand("bubblewrap", path, argv, {}, _fence(fds, held), _all_fds(fds, held))


def _fence(fds: list[int], held: list[tuple[int, bytes]]) -> tuple[Any, ...]:
    markers = [marker for _, marker in held]
    return ("bubblewrap", len(fds) + len(held), len(fds), markers)


def _all_fds(fds: list[int], held: list[tuple[int, bytes]]) -> tuple[int, ...]:
    return (*fds, *(fd for fd, _ in held))


def _mount_points(plan: Plan) -> list[tuple[bytes, bool]]:
    """Everything in a writable place over which something empty is mounted."""
    if len(plan.placeholders) > _MAX_PLACEHOLDERS:
        raise Unenforceable(f"more than {_MAX_PLACEHOLDERS} missing paths are to stay missing")
    writable = [step.path for step in plan.steps if isinstance(step, Show) and step.is_writable]
    # A path that seems to exist may be the placeholder of another sandbox, and vanish with it.
    there = [
        (step.path, step.is_directory)
        for step in plan.steps
        if isinstance(step, Hide) and os.path.dirname(step.path) in writable
    ]
    return list(dict.fromkeys((*plan.placeholders, *there)))


def _open_sources(plan: Plan, fds: list[int]) -> Mapping[bytes, int]:
    """Open everything that will be writable, so that nothing can be put in its place meanwhile."""
    sources: dict[bytes, int] = {}
    for step in plan.steps:
        if isinstance(step, Show) and step.is_writable and step.path != b"/":
            if len(sources) == _MAX_SOURCES:
                raise Unenforceable(f"more than {_MAX_SOURCES} writable paths")
            sources[step.path] = FIRST_SOURCE_FD + len(fds)
            fds.append(landlock.open_exactly(step.path))
    return sources


def _open_gate(command: RequestedCommand, fds: list[int]) -> list[bytes]:
    """The arguments that hold the command until its proxy can be reached."""
    if command.gate is None:
        return []
    first = FIRST_SOURCE_FD + len(fds)
    fds.extend(os.dup(fd) for fd in command.gate)
    return [b"--block-fd", b"%d" % first, b"--json-status-fd", b"%d" % (first + 1)]


def _memory(content: bytes) -> int:
    """A descriptor to read *content* from; a pipe would hold only a limited amount."""
    fd = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _is_renamed_by(bubblewrap: Bubblewrap, command: RequestedCommand) -> bool:
    # On a terminal another program comes first, and would be renamed instead.
    return bubblewrap.has_argv0 and _is_renamed(command) and not command.is_tty


def _is_renamed(command: RequestedCommand) -> bool:
    return command.argv[0] != command.program


def _inner(command: RequestedCommand, plan: Plan, bubblewrap: Bubblewrap) -> list[bytes]:
    """The command as bubblewrap runs it."""
    words = [command.program, *command.argv[1:]]
    if _is_renamed(command) and not _is_renamed_by(bubblewrap, command):
        bash = _visible(plan, "bash")
        if bash is None:
            raise BackendUnavailable("a command in the sandbox cannot be renamed without bash here")
        # These options keep startup files and the environment from running something else first.
        plain = [bash, b"--norc", b"--noprofile", b"-p"]
        words = [*plain, b"-c", _RENAMED, b"bash", command.argv[0], *words]
    if command.is_tty:
        # bubblewrap's own session has no terminal. With a session of its own, the command's
        # handlers get Ctrl-C, and there is job control.
        setsid = _visible(plan, "setsid")
        if setsid is not None:
            words = [setsid, b"--ctty", *words]
    return words


def _visible(plan: Plan, name: str) -> bytes | None:
    path = find(name)
    if path is None or not is_visible(plan, os.fsencode(os.path.realpath(path))):
        return None
    return os.fsencode(os.path.realpath(path))


# Checks before the start.


def _why_not_runnable(command: RequestedCommand, plan: Plan) -> int:
    """The error number with which execvp(3) would fail for *command*; 0 if it would not."""
    reason = errno.ENOENT
    for candidate in _candidates(command):
        path = os.path.realpath(os.path.join(command.cwd, candidate))
        if not os.path.exists(path) or not is_visible(plan, path):
            continue
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return 0
        reason = errno.EACCES
    return reason


def _candidates(command: RequestedCommand) -> list[bytes]:
    if not command.program or b"/" in command.program:
        return [command.program] if command.program else []
    folders = command.env.get(b"PATH", _DEFAULT_PATH).split(b":")
    return [os.path.join(folder or b".", command.program) for folder in folders]


def _has_proxy(env: Mapping[bytes, bytes]) -> bool:
    return any(name.upper().endswith(b"_PROXY") and name.upper() != b"NO_PROXY" for name in env)
