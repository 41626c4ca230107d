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
    is_root_writable,
    is_visible,
)
from exec_server.sandbox.guard import EMPTY, READ_ONLY, WRITABLE, Expected
from exec_server.sandbox.model import NOT_BUILT, NOT_RUN, Backend, Hide, Plan, Show, Unenforceable
from exec_server.sandbox.placeholders import Folder, release
from exec_server.sandbox.policy import is_within
from exec_server.sandbox.supervisor.orders import (
    Watching,
    calls_to_watch,
    obstacle_to_landlock,
    orders,
)

_DEFAULT_PATH = b"/bin:/usr/bin"
# The kernel passes up to 253 descriptors at once.
_MAX_SOURCES, _MAX_PLACEHOLDERS = 140, 100
_MAX_ROOTS = 100
_PROC = b"/proc"
_SAY_AND_EXIT = b'printf "%s\\n" "$1" >&2; exit "$2"'
_RENAMED = b'name=$1; shift; exec -a "$name" "$@"'

_NOTHING_REFUSED = "the sandbox refuses nothing"
_NOT_STARTED = "the command was not started"

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
    # False for a command of another user: whether it can run is for that user to see.
    is_looked_at: bool = True
    # Only for a command that may reach nothing but its proxy: the descriptor that the guard reads
    # from before the command runs, and the one to which bubblewrap writes the pid of the first
    # process inside. Both stay open here.
    gate: tuple[int, int] | None = None
    # How much its files in memory may take, in /dev/shm; None if that is not limited.
    memory_files: int | None = None


class ConfinedCommand(NamedTuple):
    """What to start instead; *fence* and *fds* are for the keeper, which closes them."""

    backend: Backend
    program: bytes
    argv: list[bytes]
    env: dict[bytes, bytes]
    fence: tuple[Any, ...] | None = None
    fds: tuple[int, ...] = ()
    # Why no supervisor records what is refused, although one was asked for.
    why_unwatched: str | None = None
    # Why the requested command is not run, if it is not; and the number of the error, if its
    # program is missing or cannot run.
    refusal: str | None = None
    obstacle: int | None = None

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
    watching: Watching | None = None,
) -> ConfinedCommand:
    """Confine *command* to *plan* with the strongest backend of this machine.

    With *watching* a supervisor records what is refused. If it is impossible to confine the
    command, the result is a `refusal`, and nothing of the client's runs. Raises OSError when the
    system fails otherwise.
    """
    try:
        if plan.policy.is_proxied and command.gate is None:
            raise BackendUnavailable(_NO_BRIDGE if _has_proxy(command.env) else _NO_PROXY)
        backend = backends.choose(plan, prefers_landlock=prefers_landlock)
        if backend != "bubblewrap":
            # The keeper reports a program that cannot run.
            return _in_place(command, plan, backend, watching)
        obstacle = _why_not_runnable(command, plan) if command.is_looked_at else 0
        if obstacle:
            return not_run(command, obstacle)
        assert backends.bubblewrap is not None
        found = backends.bubblewrap
        return _in_bubblewrap(command, plan, found, folder or Folder(), watching)
    except BackendUnavailable as exc:
        return refusal(str(exc), NOT_RUN)
    except Unenforceable as exc:
        return not_built(exc)


def observed(command: RequestedCommand, plan: Plan, watching: Watching | None) -> ConfinedCommand:
    """Run *command* without confinement; a supervisor hears what *plan* would refuse."""
    if watching is None:
        return refusal("what a sandbox would refuse cannot be recorded here", NOT_RUN)
    calls = calls_to_watch(plan, seccomp.Kind("related", "namespaces"))
    told = {**orders(plan, watching, calls, is_landlock=False), "learns": True}
    fence = ("confine", 1, False, seccomp.compiled((), foreign=seccomp.ALLOW), told)
    fds = (os.dup(watching.channel),)
    return ConfinedCommand("none", command.program, command.argv, command.env, fence, fds)


def refusal(text: str, status: int) -> ConfinedCommand:
    """A program that prints *text* and ends with *status*, in place of a refused command."""
    argv = [b"sh", b"-c", _SAY_AND_EXIT, b"sh", os.fsencode(text), b"%d" % status]
    return ConfinedCommand("none", b"/bin/sh", argv, {}, why_unwatched=_NOT_STARTED, refusal=text)


def not_built(reason: Unenforceable) -> ConfinedCommand:
    """The refusal of a policy that no backend can express."""
    return refusal(f"error building bubblewrap command: {reason}", NOT_BUILT)


def not_run(command: RequestedCommand, number: int) -> ConfinedCommand:
    """The refusal of a program that is missing or cannot run, for the reason *number*."""
    name = os.fsdecode(command.program)
    text = f"failed to run {name} in the sandbox: {os.strerror(number)} (os error {number})"
    return refusal(text, NOT_RUN)._replace(obstacle=number)


# Without namespaces.


def _in_place(
    command: RequestedCommand, plan: Plan, backend: Backend, watching: Watching | None
) -> ConfinedCommand:
    if backend == "none":
        return ConfinedCommand(
            backend, command.program, command.argv, command.env, why_unwatched=_NOTHING_REFUSED
        )
    is_landlock = backend == "landlock"
    why_unwatched = None
    if watching is not None and is_landlock:
        why_unwatched = obstacle_to_landlock(is_other_user=not command.is_looked_at)
        watching = watching if why_unwatched is None else None
    kind = seccomp.Kind(_sockets(plan), "landlock" if is_landlock else "nothing")
    filter_, watched = _filter(kind, plan, watching)
    fds = (landlock.ruleset(plan),) if is_landlock else ()
    if watching is not None:
        fds = (os.dup(watching.channel), *fds)
    fence = ("confine", len(fds), is_landlock, filter_, *watched)
    return ConfinedCommand(
        backend, command.program, command.argv, command.env, fence, fds, why_unwatched
    )


def _filter(
    kind: seccomp.Kind, plan: Plan, watching: Watching | None
) -> tuple[bytes, tuple[Any, ...]]:
    """The filter of a command and, if a supervisor takes a part of it over, its orders."""
    if watching is None:
        return seccomp.program(kind), ()
    calls = calls_to_watch(plan, kind)
    is_landlock = kind.company == "landlock"
    return calls.silent_filter, (orders(plan, watching, calls, is_landlock=is_landlock),)


def _sockets(plan: Plan) -> seccomp.Sockets:
    if plan.policy.is_proxied:
        return "proxied"
    return "related" if plan.policy.network == "restricted" else "no-vsock"


# In bubblewrap.


def _in_bubblewrap(
    command: RequestedCommand,
    plan: Plan,
    bubblewrap: Bubblewrap,
    folder: Folder,
    watching: Watching | None,
) -> ConfinedCommand:
    filter_, watched = _filter(seccomp.Kind(_sockets(plan), "namespaces"), plan, watching)
    inner = _inner(command, plan, bubblewrap)
    folder.prepare()
    held = folder.hold(_mount_points(plan))
    fds: list[int] = []
    try:
        if command.script is not None:
            fds.append(os.open(command.script, os.O_RDONLY | os.O_CLOEXEC))
        sources, expected = _open_sources(plan, folder, fds)
        gate = _open_gate(command, fds)
        added = FIRST_SOURCE_FD + len(fds)
        options = [
            *environment(command.env),
            *arguments(plan, folder=folder, sources=sources, memory_files=command.memory_files),
            b"--die-with-parent",
            *gate,
            # The keeper adds these two descriptors after all others.
            *(b"--info-fd", b"%d" % added, b"--block-fd", b"%d" % (added + 1)),
            *((b"--argv0", command.argv[0]) if _is_renamed_by(bubblewrap, command) else ()),
        ]
        fds[:0] = (_memory(b"\0".join(options) + b"\0"), _memory(filter_))
        gated = () if command.gate is None else (os.dup(command.gate[0]),)
        channel = () if watching is None else (os.dup(watching.channel),)
    except BaseException:
        for fd in fds:
            os.close(fd)
        for fd, marker in held:
            release(fd, marker)
        raise
    count = len(channel) + len(fds) + len(gated) + len(held)
    markers = [marker for _, marker in held]
    path = os.fsencode(bubblewrap.path)
    return ConfinedCommand(
        "bubblewrap",
        path,
        [path, b"--args", b"%d" % ARGUMENTS_FD, b"--", *inner],
        {},
        ("bubblewrap", count, len(fds), markers, expected, len(gated), *watched),
        (*channel, *fds, *gated, *(fd for fd, _ in held)),
    )


def _mount_points(plan: Plan) -> list[tuple[bytes, bool]]:
    """Everything in a writable place that is missing, or may be a placeholder."""
    if len(plan.placeholders) > _MAX_PLACEHOLDERS:
        raise Unenforceable(f"more than {_MAX_PLACEHOLDERS} missing paths are to stay missing")
    roots = {step.path for step in plan.steps if isinstance(step, Show) and step.is_writable}
    writable = roots | set(plan.anchors)
    # A path that seems to exist may be the placeholder of another sandbox, and vanish with it.
    there = [
        (step.path, isinstance(step, Hide) and step.is_directory)
        for step in plan.steps
        if step.path not in roots and os.path.dirname(step.path) in writable
    ]
    return list(dict.fromkeys((*plan.placeholders, *there)))


def _open_sources(
    plan: Plan, folder: Folder, fds: list[int]
) -> tuple[Mapping[bytes, int], list[Expected]]:
    """Open everything that is shown, so that nothing can be put in its place unnoticed.

    The result has the numbers of the descriptors, and what the guard has to find at each path.
    """
    roots = sum(isinstance(step, Show) and step.is_writable for step in plan.steps)
    if roots > _MAX_ROOTS:
        raise Unenforceable(f"more than {_MAX_ROOTS} writable paths")
    sources: dict[bytes, int] = {}
    expected = [_expected_base(plan)]
    for step in plan.mounts:
        if is_within(step.path, _PROC) or step.path == b"/":
            # The sandbox's own /proc is mounted last; the root is the base.
            continue
        if isinstance(step, Hide):
            expected.append(_expected_empty(step, folder))
            continue
        fd = landlock.open_judged(step.path)
        expected.append(_expected(step.path, os.fstat(fd), is_writable=step.is_writable))
        if len(sources) < _MAX_SOURCES:
            sources[step.path] = FIRST_SOURCE_FD + len(fds)
            fds.append(fd)
        else:
            # It is mounted by its name, and the guard compares it all the same.
            os.close(fd)
    if is_visible(plan, folder.path):
        expected.append((folder.path, EMPTY, 0, 0))
    return sources, expected


def _expected(path: bytes, found: os.stat_result, *, is_writable: bool) -> Expected:
    return path, WRITABLE if is_writable else READ_ONLY, found.st_dev, found.st_ino


def _expected_base(plan: Plan) -> Expected:
    if not plan.shows_host:
        return b"/", EMPTY, 0, 0
    return _expected(b"/", os.stat(b"/"), is_writable=is_root_writable(plan))


def _expected_empty(step: Hide, folder: Folder) -> Expected:
    if step.is_directory:
        return step.path, EMPTY, 0, 0
    found = os.stat(folder.empty_file(is_readable=step.mode != 0))
    return step.path, EMPTY, found.st_dev, found.st_ino


def _open_gate(command: RequestedCommand, fds: list[int]) -> list[bytes]:
    """The argument that has bubblewrap tell the pid of the first process inside."""
    if command.gate is None:
        return []
    fds.append(os.dup(command.gate[1]))
    return [b"--json-status-fd", b"%d" % (FIRST_SOURCE_FD + len(fds) - 1)]


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
