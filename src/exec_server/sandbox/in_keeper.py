"""The part of the sandbox that runs in the keeper: here a child is confined.

The keeper imports this file on the first start that needs it, where only the standard library
is available. There are two cases. A command in bubblewrap is an ordinary child whose
descriptors come from the server; what remains is to have a guard check its mounts before the
command runs, to watch them from then on, to find its members for signals, and to notice when all of
them are gone. A command without namespaces is started by a thread that has given up all rights
beforehand: Landlock domains, filters and capabilities belong to a thread, and whatever it starts
inherits them. That costs no fork of this process, and the thread does nothing else. The file is
long because it is the only place where a child is confined.
"""

from __future__ import annotations

import _thread
import ctypes
import errno
import fcntl
import functools
import mmap
import os
from importlib.util import module_from_spec, spec_from_file_location
from socket import socketpair

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 445, 446
_RULE_PATH_BENEATH = 1
# The rights WRITE_FILE, READ_FILE and IOCTL_DEV.
_TERMINAL_RIGHTS = 1 << 1 | 1 << 2 | 1 << 15
_INSTRUCTION_BYTES = 8
# The kernel has fewer capabilities; the first number that it does not know ends the loop.
_CAPABILITIES = 64

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


class PathBeneath(ctypes.Structure):
    """`struct landlock_path_beneath_attr`."""

    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def start(
    spawn: Callable[[], int], *, drops_capabilities: bool, ruleset: int | None, filter_: bytes
) -> int:
    """Return or raise what *spawn* does, called in a thread with no more rights than the child."""

    def confined() -> int:
        give_up(drops_capabilities=drops_capabilities, ruleset=ruleset, filter_=filter_)
        return spawn()

    return in_thread(confined)


def in_thread(work: Callable[[], int]) -> int:
    """Return or raise what *work* does, called in a thread of its own."""
    done = _thread.allocate_lock()
    result: list[int | BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as exc:
            result.append(exc)
        finally:
            done.release()

    done.acquire()
    _thread.start_new_thread(run, ())
    done.acquire()
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


def give_up(*, drops_capabilities: bool, ruleset: int | None, filter_: bytes) -> None:
    """Confine this thread for ever; on OSError nothing may be started."""
    if drops_capabilities:
        _drop_capabilities()
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if ruleset is not None:
        _check(_libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0))
    # The filter comes last, because it may refuse the calls before it.
    program = _Program(len(filter_) // _INSTRUCTION_BYTES, filter_)
    _check(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0))


def _allow_terminal(ruleset: int, terminal: int) -> None:
    rule = PathBeneath(_TERMINAL_RIGHTS, terminal)
    _check(_libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0))


def _drop_capabilities() -> None:
    _check(_libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
    for capability in range(_CAPABILITIES):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            # An ordinary user keeps the set, but no_new_privs makes it useless.
            break
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)())))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the sandbox could not be entered: {os.strerror(number)}")


class StartFence:
    """The confinement of one start, as the message says it, with the message's descriptors."""

    def __init__(
        self, words: tuple[Any, ...], fds: list[int], *, finds_command: bool = False
    ) -> None:
        """With *finds_command* the namespace tells how the command itself has ended."""
        self._finds_command = finds_command
        self._fds = fds
        # The user that the program runs as; None for the keeper's own.
        self.user: tuple[int, int, list[int]] | None = None
        inner: tuple[Any, ...] | None = words
        if words[0] == "as":
            self.user, inner = words[2:]
        # The last word is there if a supervisor is wanted; the first descriptor is its channel.
        last = None if inner is None else inner[-1]
        self._orders = last if isinstance(last, dict) else None
        if inner is None:
            self._details: tuple[Any, ...] = ()
        else:
            self._details = inner[2:] if self._orders is None else inner[2:-1]
        self._channel: int | None = None
        # The first byte is 1 once the command itself may run. Guard and supervisor have it, too.
        self._flag: Any = mmap.mmap(-1, 1) if self._orders is not None else bytearray(1)
        # The pid of the supervisor, once there is one.
        self.supervisor: int | None = None
        # The descriptors that bubblewrap inherits; empty for a program that is started directly.
        self.inherited: tuple[int, ...] = ()
        self._namespace: Namespace | None = None
        # What a guard needs: the descriptor that lets the command run, the one to wait for before,
        # the number of the one that bubblewrap reads from, and the expected mounts.
        self._watch: tuple[int, int | None, int, Any] = (-1, None, -1, ())
        try:
            if len(fds) != words[1]:
                # Some were lost, because this process has no room for more descriptors.
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            if self._orders is not None:
                self._channel = fds.pop(0)
            if inner is not None and inner[0] == "bubblewrap":
                self._prepare_bubblewrap()
        except OSError:
            self.close()
            raise

    def _prepare_bubblewrap(self) -> None:
        inherited, markers, expected, has_gate = self._details
        split = inherited + has_gate
        held = list(zip(self._fds[split:], markers, strict=True))
        gate = self._fds[inherited] if has_gate else None
        # A socket, because its text can be read without taking it away from another reader.
        reader, writer = socketpair()
        self._namespace = Namespace(reader.detach(), held, expected)
        if self._finds_command:
            self._namespace.watch_command()
        block, release = _pipe_without_end()
        self._fds[inherited:] = [writer.detach(), block]
        # Copies are made above all target numbers, so that none is overwritten by another.
        lowest = 3 + len(self._fds)
        for fd in tuple(self._fds):
            self._fds.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest))
        self.inherited = tuple(self._fds[inherited + 2 :])
        self._fds.append(release)
        if gate is not None:
            self._fds.append(gate)
        self._watch = (release, gate, 3 + inherited + 1, expected)

    def guarded(self, namespace: Namespace, stderr: int, limited: Any = None) -> int:
        """Fork the guard of *namespace*; it says on *stderr* why the command does not run.

        It also puts the namespace's first process within its limits.
        """
        pid = os.fork()
        if pid:
            if namespace.command is not None:
                namespace.command.guard_is_forked()
            return pid
        status = _guard().REFUSED
        try:
            status = self._run_guard(namespace, stderr, limited)
        finally:
            os._exit(status)

    def _run_guard(self, namespace: Namespace, stderr: int, limited: Any) -> int:
        release, gate, waiting, expected = self._watch
        guard = _guard()
        # The guard is about to leave for the sandbox, where there is another /proc.
        proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
        try:
            guard.guard(namespace.info, waiting, expected)
            if limited is not None:
                _limit(limited, namespace)
        except guard.Gone:
            return int(guard.GONE)
        except guard.Refused as exc:
            end = "\r\n" if os.isatty(stderr) else "\n"
            os.write(stderr, f"{exc}{end}".encode())
            return int(guard.REFUSED)
        if gate is not None:
            # The end of file counts as well.
            os.read(gate, 1)
        self._flag[0] = 1
        os.write(release, b"x")
        if namespace.command is not None:
            namespace.command.find(namespace.first(), proc)
        return int(guard.RELEASED)

    def start_bubblewrap(
        self,
        spawn: Callable[[], int],
        program: bytes,
        argv: list[bytes],
        env: dict[bytes, bytes],
        stdio: tuple[int | None, int, int],
    ) -> int:
        """Call *spawn*, which starts bubblewrap, or start it with a supervisor.

        Then it is not started by a thread: the kernel would kill it together with the thread, which
        is its parent.
        """
        if self._orders is None:
            return spawn()
        begin = _beside("supervised_start.py")
        inherited = self.inherited
        pid: int = begin.forked(
            self._supervised(lambda: begin.execute(program, argv, env, stdio, inherited))
        )
        return pid

    def _supervised(
        self, spawn: Callable[[], int], *, first: Callable[[], None] | None = None
    ) -> Callable[[], int]:
        """*spawn*, to be called where a filter may stay, with a supervisor for what it starts.

        *first* is done before the filter is there.
        """
        begin = _beside("supervised_start.py")
        self.supervisor, confine = begin.fork_supervisor(
            self._orders,
            self._channel,
            self._flag,
            user=self.user,
            # The child of another user has its descriptors before it is confined.
            lowest=3 + len(self.inherited),
        )

        def start_watched() -> int:
            if first is not None:
                first()
            confine()
            return spawn()

        return start_watched

    def start(self, spawn: Callable[[], int], terminal: int | None) -> int:
        """Call *spawn* confined; its program may open *terminal*, which is its own."""
        rights = self._rights(terminal)
        if self._orders is not None:
            self._expect_command(terminal)
            spawn = self._supervised(spawn)
        return start(spawn, **rights)

    def _expect_command(self, terminal: int | None) -> None:
        """Tell the supervisor that the first program is the command itself, on *terminal*."""
        assert self._orders is not None
        self._orders["exceptions"]["free"] += () if terminal is None else (_path_of(terminal),)
        self._flag[0] = 1

    def start_as_user(
        self,
        cwd: bytes,
        stdio: Any,
        run: Callable[[], object],
        signals: list[int],
        limited: Any = None,
    ) -> int:
        """Call *run* in a child that is the user, in *cwd*, limited, and confined after that."""
        terminal = stdio.theirs[0] if stdio.terminal is not None else None
        is_in_place = self._details and not self.inherited
        give_up_all = functools.partial(give_up, **self._rights(terminal)) if is_in_place else None
        confine: Callable[[], object] | None = give_up_all
        if self._orders is not None:
            if is_in_place:
                self._expect_command(terminal)
            confine = self._supervised(lambda: 0, first=give_up_all)
        pid: int = _beside("as_user.py").start(
            self.user,
            cwd,
            stdio,
            run,
            inherited=self.inherited,
            confine=confine,
            signals=signals,
            # bubblewrap itself is not limited; its guard limits the command.
            limited=None if self.inherited else limited,
        )
        return pid

    def _rights(self, terminal: int | None) -> dict[str, Any]:
        drops_capabilities, filter_ = self._details
        ruleset = self._fds[0] if self._fds else None
        if ruleset is not None and terminal is not None:
            _allow_terminal(ruleset, terminal)
        return {
            "drops_capabilities": drops_capabilities,
            "ruleset": ruleset,
            "filter_": filter_,
        }

    def taken_namespace(self) -> Namespace | None:
        """The namespace of the program that was started; from now on the caller owns it."""
        namespace, self._namespace = self._namespace, None
        return namespace

    def close(self) -> None:
        """Close the descriptors, and the namespace unless the caller has taken it."""
        while self._fds:
            os.close(self._fds.pop())
        if self._channel is not None:
            os.close(self._channel)
            self._channel = None
        if self._namespace is not None:
            self._namespace.close()
            self._namespace = None


def _limit(limited: Any, namespace: Namespace) -> None:
    """Put the first process of *namespace*, which waits, within its limits."""
    try:
        limited.place(namespace.first())
    except ProcessLookupError:
        raise _guard().Gone from None
    except (OSError, ValueError) as exc:
        raise _guard().Refused(f"the command cannot be limited: {exc}") from exc


class Namespace:
    """The namespace of a command in bubblewrap, which reports its members through *info*.

    bubblewrap makes a first process of the namespace, which leads a session of its own and ignores
    signals from here; that process starts the command. A signal is sent to the command's group, so
    that its handlers run; they would not if bubblewrap itself got the signal. Killing bubblewrap
    kills the first process, and with it the kernel kills all others.
    """

    def __init__(self, info: int, held: list[tuple[int, bytes]], expected: Any) -> None:
        self.info = info
        self._expected = expected
        self._held = held
        self._first: int | None = None
        # What tells how the command itself ends, if that is wanted.
        self.command: Any = None

    def first(self) -> int | None:
        """The pid of the namespace's first process, as seen from here; None before there is one."""
        if self._first is None:
            try:
                self._first = _guard().first_process(_guard().peek(self.info))
            except BlockingIOError:
                return None
        return self._first

    def is_empty(self) -> bool:
        """True if only the first process is left, so that no other can be made."""
        first = self.first()
        return first is None or _children(first) == []

    def group(self, pid: int) -> int | None:
        """The process group of the command; None before there is one. *pid* is bubblewrap's own."""
        first = self.first()
        if first is None or _parent(first) != pid:
            return None
        children = _children(first)
        if children is None:
            # This kernel does not list children. Without a terminal, the command is in the group of
            # the first process.
            return first
        try:
            # The oldest child is the command; the others are orphans.
            return os.getpgid(children[0]) if children else None
        except ProcessLookupError:
            return None

    def watched_by(self, walls: Any, pid: int) -> str | None:
        """Have *walls* watch the mounts; the reason to end the command if that is too late.

        *pid* is bubblewrap's own. Raises OSError if the mounts cannot be watched.
        """
        first = self.first()
        try:
            reason: str | None = None if first is None else walls.add(pid, first, self._expected)
        except OSError as exc:
            # The kernel says EINVAL of a process that is about to end.
            if exc.errno in (errno.ENOENT, errno.ESRCH, errno.EINVAL):
                return None
            raise
        if first is None or _parent(first) != pid:
            # The command has ended, and its pid may belong to another process.
            walls.remove(pid)
            return None
        return reason

    # The end of the command itself.

    def watch_command(self) -> None:
        """Find out how the command itself ends, see inner_command.py; before the guard is made."""
        self.command = _beside("inner_command.py").InnerCommand()

    def command_end(self) -> tuple[int, int | None]:
        """The pid of the command, 0 if it is unknown, and its wait status, if the kernel tells."""
        return (0, None) if self.command is None else self.command.end()

    def close(self) -> None:
        """All processes are gone: remove what was made on the host for them."""
        if self.command is not None:
            self.command.close()
        os.close(self.info)
        for fd, marker in self._held:
            _beside("placeholders.py").release(fd, marker)


def _path_of(terminal: int) -> bytes:
    return os.readlink(b"/proc/self/fd/%d" % terminal)


def _pipe_without_end() -> tuple[int, int]:
    """A pipe whose reader holds it open for writing, too: only a byte ends the wait for one.

    bubblewrap takes an end of file for a byte, and the guard or this process may be killed.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        both = os.open(f"/proc/self/fd/{reader}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        os.close(writer)
        raise
    finally:
        os.close(reader)
    return both, writer


@functools.cache
def _beside(file: str) -> Any:
    """Load *file*, which is beside this one."""
    assert file in (
        "as_user.py",
        "guard.py",
        "inner_command.py",
        "placeholders.py",
        "wall_watch.py",
        "supervised_start.py",
    )
    folder = "supervisor" if file == "supervised_start.py" else ""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), folder, file)
    spec = spec_from_file_location(file.removesuffix(".py"), path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _guard() -> Any:
    return _beside("guard.py")


def load_everything() -> None:
    """Load the other files now: later they may be those of another release."""
    for file in ("as_user.py", "guard.py", "inner_command.py", "placeholders.py", "wall_watch.py"):
        _beside(file)


def wall_watch(poll: Any) -> Any:
    """A watch over the mounts of sandboxes; the caller waits with *poll*."""
    return _beside("wall_watch.py").WallWatch(poll)


def _children(pid: int) -> list[int] | None:
    """The children of *pid*, oldest first; [] if it is gone, None if the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(number) for number in file.read().split()]
    except OSError:
        return None if os.path.exists(f"/proc/{pid}") else []


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    return int(stat[stat.rindex(b")") + 2 :].split(maxsplit=2)[1])


def is_child(pid: int) -> bool:
    """True if *pid* is a child of this process that has not been reaped."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
