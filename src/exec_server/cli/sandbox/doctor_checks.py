"""The checks of `exec-server doctor` besides the backends of the sandbox."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import msgspec

from exec_server.errors import ExecServerError, InvalidRequest

if TYPE_CHECKING:
    from exec_server.client.process.run_to_end import CompletedProcess
    from exec_server.protocol.sandbox import SandboxContext

_TRIAL_SECONDS = 10.0
# The server holds up to six descriptors for a command, and one for a connection.
_ENOUGH_FILES = 1024
_OLDEST_PYTHON = (3, 11)
_NAMESPACES = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
users_and_mounts, private = 0x10020000, 0x44000
if libc.unshare(users_and_mounts) or libc.mount(b"none", b"/", None, private, None):
    sys.exit(os.strerror(ctypes.get_errno()))
"""


class Check(msgspec.Struct, frozen=True, rename="camel"):
    """The result of one check; if it failed, the obstacle and the remedy."""

    name: str
    works: bool
    found: str | None = None
    obstacle: str | None = None
    remedy: str | None = None
    # True if a server cannot work without it.
    is_needed: bool = False


async def checks() -> list[Check]:
    """Run all checks; two of them run a command each."""
    return [
        _python(),
        Check("kernel", True, f"{os.uname().sysname} {os.uname().release}"),
        _open_files(),
        _loopback(),
        *_namespaces(),
        *_bubblewrap(),
        *[each async for each in _commands()],
        *[each async for each in _limits()],
        _screens(),
        _state(),
    ]


def _python() -> Check:
    found = f"{sys.version.split()[0]} ({sys.executable})"
    works = sys.version_info >= _OLDEST_PYTHON
    oldest = ".".join(map(str, _OLDEST_PYTHON))
    obstacle = None if works else f"Python {oldest} or newer is needed"
    return Check("python", works, found, obstacle, is_needed=True)


def _state() -> Check:
    """Where records of detached processes are, and the durable jobs of a server without --state."""
    from exec_server.cli.serve.state_place import can_be_made
    from exec_server.remote.state_dir import state_home

    remedy = "set HOME or XDG_STATE_HOME to a directory that you may write to, or use --state"
    place = state_home()
    if not place.is_absolute():
        return Check("state", False, None, "this user has no home directory", remedy)
    if not can_be_made(place):
        text = f"{place} cannot be made or written to: no process can be detached from here"
        return Check("state", False, None, text, remedy)
    return Check("state", True, str(place))


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _ENOUGH_FILES:
        return Check("open files", True, str(soft) if soft >= 0 else "unlimited")
    remedy = f"ulimit -n {_ENOUGH_FILES}, or LimitNOFILE={_ENOUGH_FILES} in a systemd unit"
    if 0 <= hard < _ENOUGH_FILES:
        remedy = f"raise nofile in /etc/security/limits.conf; {remedy}"
    text = f"a busy server needs {_ENOUGH_FILES} open files at a time, and may have {soft}"
    return Check("open files", False, str(soft), text, remedy)


def _loopback() -> Check:
    """The default of `--listen` needs a free port on loopback."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
    except OSError as exc:
        text = f"cannot listen on 127.0.0.1: {exc.strerror}"
        return Check(
            "loopback", False, None, text, "ip link set lo up; or use --listen unix://PATH"
        )
    return Check("loopback", True, f"127.0.0.1:{port} was free")


def _namespaces() -> Iterator[Check]:
    """Check that the kernel allows user namespaces, which bubblewrap needs."""
    if sys.platform != "linux":
        return
    from exec_server.sandbox.backends import what_stops_namespaces

    argv = [sys.executable, "-I", "-S", "-c", _NAMESPACES]
    try:
        trial = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TRIAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        yield Check("user namespaces", False, None, str(exc))
        return
    if trial.returncode == 0:
        yield Check("user namespaces", True)
        return
    obstacle, remedy = what_stops_namespaces()
    said = trial.stderr.strip()
    yield Check("user namespaces", False, None, f"{said} ({obstacle})", remedy)


def _bubblewrap() -> Iterator[Check]:
    """Check that only root can replace the bubblewrap that is used; if none is used, say why."""
    from exec_server.sandbox.bubblewrap import FOLDERS, find

    name, used = "bubblewrap's place", find("bwrap")
    if used is None:
        for folder in dict.fromkeys((*FOLDERS, *os.get_exec_path())):
            path = os.path.join(folder, "bwrap")
            if os.path.isfile(path):
                text = (
                    f"{path} is not used: it is not in a directory of the system, which only root"
                )
                remedy = "install bubblewrap with the system's package manager"
                yield Check(name, False, path, f"{text} can write to", remedy)
                return
    elif (writable := _writable_by_others(os.path.realpath(used))) is not None:
        text = f"others than root can write to {writable}, and so replace {used}"
        remedy = f"chown root:root {writable} && chmod go-w {writable}"
        yield Check(name, False, used, text, remedy)
    else:
        yield Check(name, True, used)


def _writable_by_others(path: str) -> str | None:
    """The first of *path* and the directories above it that is not root's alone."""
    while True:
        found = os.stat(path)
        is_sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
        if found.st_uid != 0 or (found.st_mode & 0o022 and not is_sticky):
            return path
        if path == os.path.dirname(path):
            return None
        path = os.path.dirname(path)


async def _commands() -> AsyncIterator[Check]:
    """Run a command without and with a sandbox: this needs the keeper and one backend."""
    from exec_server.protocol.sandbox import read_only

    done = await _run(None)
    if isinstance(done, str):
        text = f"a command cannot be run: {done}"
        yield Check("commands", False, None, text, is_needed=True)
        return
    yield Check("commands", True, "the keeper starts them", is_needed=True)
    done = await _run(read_only())
    if isinstance(done, str):
        yield Check("sandboxed commands", False, None, f"a command cannot be confined: {done}")
    else:
        yield Check("sandboxed commands", True, f"confined by {done.sandbox_rung}")


def _screens() -> Check:
    from exec_server.cli.sandbox.terminal_check import terminal_check

    return terminal_check()


async def _limits() -> AsyncIterator[Check]:
    """Run a command with all limits, and see how they are held."""
    if sys.platform != "linux":
        return
    from exec_server.cli.sandbox.limit_checks import GROUPED, TRIED, limit_check
    from exec_server.cli.serve.user_scope import enter_own_scope
    from exec_server.local_server import local

    # As a server does, so that the trial shows what a server started here would have.
    no_scope = await asyncio.to_thread(enter_own_scope, os.environ)
    command, why = ["/bin/sh", "-c", "exit 0"], "no control group can be made"
    try:
        async with asyncio.timeout(_TRIAL_SECONDS), local() as client:
            async with await client.start(command, cwd="/", limits=TRIED) as process:
                granted = process.limits
            try:
                tried = {name: TRIED[name] for name in GROUPED}
                await client.run(command, cwd="/", limits={**tried, "require": True})
            except InvalidRequest as exc:
                why = exc.message
    except (ExecServerError, OSError, TimeoutError) as exc:
        yield Check("limits", False, None, f"a command cannot be limited: {exc}")
        return
    yield limit_check(granted, why, is_root=os.geteuid() == 0, no_scope=no_scope)


async def _run(sandbox: SandboxContext | None) -> CompletedProcess | str:
    """Run a command; the result is its success, or a text that says what went wrong."""
    from exec_server.local_server import local

    try:
        async with asyncio.timeout(_TRIAL_SECONDS), local() as client:
            done = await client.run(["/bin/sh", "-c", "exit 0"], cwd="/", sandbox=sandbox)
    except TimeoutError:
        return f"it took longer than {_TRIAL_SECONDS:g} seconds"
    except (ExecServerError, OSError) as exc:
        return str(exc)
    if done.returncode == 0:
        return done
    said = done.stderr.decode("utf-8", "replace").strip()
    return said or f"/bin/sh ended with status {done.returncode}"
