"""A program is started: it is found on its path, and gets its descriptors and its environment."""

from __future__ import annotations

import errno
import fcntl
import os
import termios

from exec_server.process.keeping.c_parts import signal

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from exec_server.process.keeping.child_stdio import Stdio
    from exec_server.process.keeping.server_messages import StartRequest

DEFAULT_PATH = b"/bin:/usr/bin"
ALL_SIGNALS = sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP})


def launch(asked: StartRequest, stdio: Stdio, fenced: Any, limited: Any) -> int:
    """Start the program, behind its fence if it has one, and within its limits."""
    program, argv, env = asked.program, asked.argv, asked.env
    pid: int
    if fenced is None:
        return _launch_first(program, argv, env, stdio, _launcher(argv, env, limited))
    if fenced.user is not None:
        pid = fenced.start_as_user(
            asked.cwd,
            stdio,
            lambda: _launch_first(program, argv, env, stdio, _exec),
            ALL_SIGNALS,
            limited,
        )
        return pid
    if fenced.inherited:
        spawn = lambda: posix_spawn(program, argv, env, stdio, fenced.inherited)  # noqa: E731
        pid = fenced.start_bubblewrap(spawn, program, argv, env, stdio.theirs)
        return pid
    terminal = stdio.theirs[0] if stdio.terminal is not None else None
    launch = _launcher(argv, env, limited)
    pid = fenced.start(lambda: _launch_first(program, argv, env, stdio, launch), terminal)
    return pid


def _launcher(argv: list[bytes], env: dict[bytes, bytes], limited: Any) -> Any:
    """The function that starts a program: within its limits, or the fastest one that can."""
    if limited is not None:
        return limited.spawn
    # Python's posix_spawn refuses some arguments that execve(2) takes.
    return posix_spawn if argv[0] and b"" not in env else fork_exec


def _launch_first(
    program: bytes, argv: list[bytes], env: dict[bytes, bytes], stdio: Stdio, launch: Any
) -> int:
    """Start the first candidate that runs, with *launch*; the errors are those of execvp(3)."""
    denied = False
    for candidate in _candidates(program, env.get(b"PATH", DEFAULT_PATH)):
        try:
            pid: int = launch(candidate, argv, env, stdio)
            return pid
        except PermissionError:
            denied = True
        except (FileNotFoundError, NotADirectoryError):
            if b"/" in program:
                raise
    raise OSError(errno.EACCES if denied else errno.ENOENT, "")


def _candidates(program: bytes, path: bytes) -> list[bytes]:
    if b"/" in program:
        return [program]
    found = (os.path.join(folder or b".", program) for folder in path.split(b":"))
    return [file for file in found if program and os.path.isfile(file)]


def posix_spawn(
    program: bytes,
    argv: list[bytes],
    env: dict[bytes, bytes],
    stdio: Stdio,
    inherited: tuple[int, ...] = (),
) -> int:
    """Start *program* with *inherited* as its descriptors from 3 on."""
    stdin, stdout, stderr = stdio.theirs
    actions: list[tuple[Any, ...]]
    if stdio.terminal is not None:
        # The first terminal that a session leader opens becomes its controlling terminal; in
        # bubblewrap the command opens it itself.
        flags = os.O_RDWR | (os.O_NOCTTY if inherited else 0)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, stdio.terminal, flags, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ]
    else:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
            if stdin is None
            else (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_DUP2, stderr, 2),
        ]
    actions += [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(inherited, 3)]
    return os.posix_spawn(
        program,
        argv,
        _environ(env),
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=ALL_SIGNALS,
    )


def _environ(env: dict[bytes, bytes]) -> Any:
    # Only names with a '=' in them need the slower mapping, and they are rare.
    has_odd_names = any(b"=" in name for name in env)
    return Entries(env, search_from=1) if has_odd_names else env


def _exec(program: bytes, argv: list[bytes], env: dict[bytes, bytes], stdio: Stdio) -> int:
    """Become *program*."""
    os.execve(program, argv, _environ(env))


def fork_exec(
    program: bytes, argv: list[bytes], env: dict[bytes, bytes], stdio: Stdio, limit: Any = None
) -> int:
    """Start a program the slow way, for an empty argv[0] or a variable without a name.

    The new process calls *limit*, if there is one, before it becomes the program.
    """
    import subprocess

    def prepare() -> None:
        for signum in ALL_SIGNALS:
            signal.signal(signum, signal.SIG_DFL)
        if stdio.terminal is not None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if limit is not None:
            limit()

    stdin, stdout, stderr = stdio.theirs
    environ: Any = Entries(env, search_from=0)
    process = subprocess.Popen(
        argv,
        executable=program,
        env=environ,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=prepare,
    )
    # We reap the process ourselves; without this the object would do it when it is collected.
    process.returncode = 0
    return process.pid


class Entries:
    """An environment whose names may contain a '=', as the same NAME=VALUE entries.

    Each entry is split at its first '=' from *search_from* on. It only looks like a mapping: one
    name may come twice, as in ``{"A": "1", "A=B": "2"}``.
    """

    def __init__(self, env: dict[bytes, bytes], *, search_from: int) -> None:
        self._pairs: list[tuple[bytes, bytes]] = []
        for name, value in env.items():
            entry = b"%b=%b" % (name, value)
            at = entry.index(b"=", search_from)
            self._pairs.append((entry[:at], entry[at + 1 :]))

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, name: bytes) -> bytes:
        return dict(self._pairs)[name]

    def keys(self) -> list[bytes]:
        return [name for name, _ in self._pairs]

    def values(self) -> list[bytes]:
        return [value for _, value in self._pairs]

    def items(self) -> list[tuple[bytes, bytes]]:
        return self._pairs
