"""The program on this machine that holds a detached session, so that others can name and end it.

A server lets one program at a time hold a session. A program that holds one for long, such as
`logs -f`, says so in a locked file beside the session's record; the lock ends with the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from exec_server.cli.parser import Flag, Parser
from exec_server.cli.process.detached.detach import SessionUnavailable
from exec_server.cli.process.detached.saved_sessions import SavedSession, state_directory
from exec_server.client.client import ExecServerClient

# How many seconds a program has to leave after SIGTERM.
_LEAVE_SECONDS = 5.0
_FILE_BYTES = 4096

# Opens a saved session; the argument says whether to wait for a program that is about to leave.
Opening = Callable[[bool], AbstractAsyncContextManager[ExecServerClient]]


class SessionHolder(msgspec.Struct, frozen=True):
    """A program that holds a session."""

    pid: int
    command: str


def add_force(parser: Parser) -> None:
    """The option to take a session from another program, here or on another machine."""
    parser.add_argument(
        "--force",
        action=Flag,
        help="take the process from the program that follows it, here or on another machine; that "
        "program ends, and the process itself runs on",
    )


@contextlib.asynccontextmanager
async def open_held(
    opening: Opening, session: SavedSession, *, force: bool, command: str | None = None
) -> AsyncIterator[ExecServerClient]:
    """Open a session for the length of a block, and tell others that *command* holds it, if given.

    With *force* the program on this machine that holds it is ended first. Raises
    SessionUnavailable, which names that program.
    """
    holder = find_holder(session.id)
    if holder is not None and force:
        await _end(holder)
        holder = None
    async with contextlib.AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(opening(holder is None))
        except SessionUnavailable as exc:
            if exc.state != "attached" or holder is None:
                raise
            raise SessionUnavailable(_held_text(session.id, holder), "attached") from exc
        if command is not None:
            stack.enter_context(_held(session.id, command))
        yield client


def find_holder(session_id: str) -> SessionHolder | None:
    """The program on this machine that holds a session now, if there is one."""
    try:
        with open(_path(session_id), "rb") as file:
            if not _is_locked(file.fileno()):
                return None
            return msgspec.json.decode(file.read(_FILE_BYTES), type=SessionHolder)
    except (OSError, msgspec.MsgspecError):
        return None


def _held_text(session_id: str, holder: SessionHolder) -> str:
    return (
        f"`{session_id}` is attached elsewhere: `{holder.command}` follows it "
        f"(process {holder.pid} on this machine); leave it there, with Ctrl-C or ~d, or end that "
        "program with --force"
    )


async def _end(holder: SessionHolder) -> None:
    """End the program that holds a session, in the orderly way, and wait until it has ended."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        pidfd = os.pidfd_open(holder.pid)
    except ProcessLookupError:
        return
    loop.add_reader(pidfd, ended.set)
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        async with asyncio.timeout(_LEAVE_SECONDS):
            await ended.wait()
    except (TimeoutError, OSError):
        # Opening the session tells what is wrong.
        return
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


@contextlib.contextmanager
def _held(session_id: str, command: str) -> Iterator[None]:
    path = _path(session_id)
    fd = -1
    # A machine that cannot take the note is no reason to fail.
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.write(fd, msgspec.json.encode(SessionHolder(os.getpid(), command)))
    try:
        yield
    finally:
        if fd != -1:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(fd)


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _path(session_id: str) -> Path:
    return state_directory() / f"{session_id}.holder"
