"""`exec-server kill`: send a signal to detached processes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from contextlib import AbstractAsyncContextManager

from exec_server.cli import exit_codes
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.log_setup import print_error
from exec_server.cli.options import add_output
from exec_server.cli.process.detached import detach
from exec_server.cli.process.detached.detach import ServerAccess, SessionUnavailable
from exec_server.cli.process.detached.looking_on import can_watch, watched
from exec_server.cli.process.detached.named_process import (
    ID_HELP,
    add_words,
    find_process,
    split_words,
)
from exec_server.cli.process.detached.saved_session_options import access_of, saved_parser
from exec_server.cli.process.detached.saved_sessions import SavedSession, SessionStore
from exec_server.cli.process.detached.session_holder import add_force, open_held
from exec_server.cli.process.own_terminal.connection_notices import Notices
from exec_server.cli.tables import failure_teller, print_json_entries
from exec_server.client.client import ExecServerClient
from exec_server.errors import ExecServerError, InvalidParams, InvalidRequest

# A process that goes on a moment after one of these ignores it, or takes its time.
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_MOMENT_SECONDS = 1.0
# No output has such a number: a read after it waits for the end alone.
_NO_OUTPUT = 1 << 31

_EXAMPLES = """\
  Ask a process to end, with SIGTERM:
      exec-server kill 3f2a9c01

  Kill it:
      exec-server kill -s KILL 3f2a9c01

  Interrupt it, as Ctrl-C would:
      exec-server kill -s INT 3f2a9c01

  End a shell that waits for commands, which ignores SIGTERM:
      exec-server kill -s HUP 3f2a9c01

  A durable job that was started from another machine:
      exec-server kill build 3f2a9c01
"""


def kill_command(words: list[str]) -> int:
    """Send the signal that *words* name; the status is 1 if one process could not get it."""
    parser = saved_parser(
        "kill",
        usage="[OPTIONS] [SERVER] <ID>...",
        description="Send a signal to detached processes and to all processes they started.",
        examples=_EXAMPLES,
        words_help=ID_HELP,
    )
    add_words(parser, is_several=True)
    parser.add_argument(
        "-s",
        "--signal",
        metavar="<SIGNAL>",
        type=_signal,
        default=signal.SIGTERM,
        help="name or number [default: TERM]; every server supports KILL and INT",
    )
    add_force(parser)
    parser.suggestions["signal"] = tuple(each.name.removeprefix("SIG") for each in signal.Signals)
    add_output(parser)
    values = parser.parse_words(words)

    server, ids = split_words(parser, values.words, SessionStore(), is_several=True)

    async def kill() -> int:
        access = access_of(parser, values)
        killed = [
            await _kill(server, text, values.signal, access, force=values.force) for text in ids
        ]
        facts = [each for each in killed if each is not None]
        if values.output == "json":
            print_json_entries(facts)
        else:
            for each in facts:
                _tell(each)
        return exit_codes.FAILED if None in killed else exit_codes.OK

    return run_to_exit_status(kill, log_level=values.log_level, tell=failure_teller(values.output))


async def _kill(
    server: str | None, text: str, signum: signal.Signals, access: ServerAccess, *, force: bool
) -> dict[str, object] | None:
    """Signal one process; the facts about it, or None after an error, which is printed."""
    try:
        session = (await find_process(SessionStore(), server, text, access)).session

        def opening(_: bool) -> AbstractAsyncContextManager[ExecServerClient]:
            # A program that was ended a moment ago may not have left the server yet.
            return detach.open_saved(session, access, is_patient=force, force=force)

        try:
            async with open_held(opening, session, force=force) as client:
                was_running = await _signalled(client, session, signum)
                goes_on = signum in _ENDING and was_running and await _goes_on(client, session)
        except SessionUnavailable as exc:
            if exc.state != "attached" or not await can_watch(session, access):
                raise
            was_running, goes_on = await _signalled_beside(session, access, signum)
    except ExecServerError as exc:
        print_error(str(exc))
        return None
    facts = {"id": session.id, "signal": signum.name, "wasRunning": was_running}
    return facts | ({"stillRunning": True} if goes_on else {})


def _tell(facts: dict[str, object]) -> None:
    """Say what is not as expected of a process that got a signal."""
    name = facts["id"]
    if not facts["wasRunning"]:
        print(f"{name} has already ended", file=sys.stderr)
    elif facts.get("stillRunning"):
        harder = "`-s HUP` ends a shell, and " if facts["signal"] == "SIGTERM" else ""
        print(
            f"{name} still runs: it may ignore {facts['signal']}; {harder}"
            f"`exec-server kill -s KILL {name}` ends everything",
            file=sys.stderr,
        )


async def _goes_on(client: ExecServerClient, session: SavedSession) -> bool:
    """True if the process has not ended a moment after its signal."""
    found = await client.read(
        session.process_id, after_seq=_NO_OUTPUT, max_bytes=1, wait=_MOMENT_SECONDS
    )
    return not found.exited


async def _signalled_beside(
    session: SavedSession, access: ServerAccess, signum: signal.Signals
) -> tuple[bool, bool]:
    """Send the signal beside the program that follows the process, which is not disturbed.

    True if it was running, and true if it goes on although such a signal ends processes.
    """
    async with watched(session, access, Notices(), is_log=True) as process:
        was_running = process.watched.returncode is None and process.watched.lost is None
        if signum == signal.SIGKILL:
            return await process.terminate(), False
        await process.send_signal(signum)
        if not was_running or signum not in _ENDING:
            return was_running, False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MOMENT_SECONDS):
                async for _ in process.watched:
                    """Its output is of no interest; it ends with the process."""
                return True, False
        return True, True


async def _signalled(
    client: ExecServerClient,
    session: SavedSession,
    signum: signal.Signals,
) -> bool:
    """Send the signal; True if the process was still running."""
    if signum == signal.SIGKILL:
        return await client.terminate(session.process_id)
    try:
        is_running = not (await client.read(session.process_id, max_bytes=1)).exited
    except InvalidRequest as exc:
        raise detach.expired(session) from exc
    if is_running:
        try:
            await client.signal(session.process_id, signum)
        except InvalidParams as exc:
            raise InvalidParams(f"this server cannot send {signum.name}: {exc}") from exc
    return is_running


def _signal(text: str) -> signal.Signals:
    try:
        if text.isascii() and text.isdigit():
            return signal.Signals(int(text))
        return signal.Signals[f"SIG{text.upper().removeprefix('SIG')}"]
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(f"`{text}` is not a signal") from None
