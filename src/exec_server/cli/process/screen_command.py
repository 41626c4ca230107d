"""`exec-server screen`: print what a terminal shows, or draw a picture of it."""

from __future__ import annotations

import argparse
import re
from typing import Any

import msgspec

from exec_server.cli import exit_codes
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.options import add_output
from exec_server.cli.parser import Flag, count
from exec_server.cli.process.detached import detach
from exec_server.cli.process.detached.detach import ServerAccess
from exec_server.cli.process.detached.named_process import (
    ID_HELP,
    add_words,
    find_process,
    split_words,
)
from exec_server.cli.process.detached.saved_session_options import access_of, saved_parser
from exec_server.cli.process.detached.saved_sessions import SavedSession, SessionStore
from exec_server.cli.process.own_terminal.connection_notices import say
from exec_server.cli.tables import failure_teller, print_json
from exec_server.client.process.screen_data import Screen
from exec_server.client.session_token import SessionToken
from exec_server.errors import ConfigurationError, InvalidRequest
from exec_server.printable import escaped
from exec_server.protocol.screen import LastCommand, ScreenParams

# As `process/screen` has it.
_MOST_ROWS = 10_000
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")

_EXAMPLES = """\
  Print the rows that the terminal of a process shows now:
      exec-server screen 3f2a9c01

  Draw a picture of it; also --png:
      exec-server screen --svg shell.svg build 3f2a9c01

  Go back: the screen as it was 20 pieces of output ago, and after the one with a number:
      exec-server screen --back 20 build work
      exec-server screen --at 118 build work

  The last command of a shell that was started with --integration, with its output:
      exec-server screen --command build work
"""


def screen_command(words: list[str]) -> int:
    """Print or draw one screen; the process and those who follow it notice nothing."""
    parser = saved_parser(
        "screen",
        usage="[OPTIONS] [SERVER] <ID>",
        description="Print what the terminal of a process shows, as text, or draw a picture of it.",
        failed="it has no terminal, it has expired, or its server cannot be reached",
        examples=_EXAMPLES,
        words_help=ID_HELP,
    )
    add_words(parser)
    add = parser.add_argument
    add("--history", metavar="<ROWS>", type=_rows, default=0, help="so many rows above it, too")
    add("--svg", metavar="<FILE>", type=_named(".svg"), help="write a picture instead")
    add("--png", metavar="<FILE>", type=_named(".png"), help="the same; it needs Pillow")
    earlier = parser.add_mutually_exclusive_group()
    earlier.add_argument(
        "--at",
        metavar="<NUMBER>",
        type=count,
        help="the screen as it was after the event with this number, as far as output is kept; "
        "`-o json` tells the number of each screen",
    )
    earlier.add_argument(
        "--back", metavar="<EVENTS>", type=count, help="the same, so many events before the newest"
    )
    earlier.add_argument(
        "--command",
        action=Flag,
        help="print the last command of a shell instead, its directory, exit status and output; "
        "the shell has to be one of `shell --integration`",
    )
    add_output(parser)
    values = parser.parse_words(words)
    server, [text] = split_words(parser, values.words, SessionStore())

    async def show() -> int:
        access = access_of(parser, values)
        session = (await find_process(SessionStore(), server, text, access)).session
        at, screen, command = await _read(session, access, values)
        if screen.inexact:
            say("some output was missed: the screen may be wrong")
        if values.output == "json":
            print_json({"id": session.id, "at": at} | _facts(screen, command))
        elif values.command:
            print(_command_words(command))
        elif not (values.svg or values.png):
            print(shown_rows([*(screen.history or ()), screen.text]))
        return exit_codes.OK

    return run_to_exit_status(show, log_level=values.log_level, tell=failure_teller(values.output))


def shown_rows(rows: list[str]) -> str:
    """The rows with escapes for controls, which only a server that means harm sends.

    Glyphs of fonts for prompts are not printable for Python, and stay.
    """
    return _CONTROLS.sub(lambda found: escaped(found[0]), "\n".join(rows))


def _rows(text: str) -> int:
    if (rows := count(text)) > _MOST_ROWS:
        raise argparse.ArgumentTypeError(f"expected at most {_MOST_ROWS} rows")
    return rows


def _named(suffix: str) -> Any:
    def name(text: str) -> str:
        if not text.lower().endswith(suffix):
            raise argparse.ArgumentTypeError(f"the name of the picture has to end with {suffix}")
        return text

    return name


async def _read(
    session: SavedSession, access: ServerAccess, values: argparse.Namespace
) -> tuple[int, Screen, LastCommand | None]:
    async with detach.open_beside(session, access) as client:
        found = SessionToken.parse(session.session_token).session_id
        try:
            watching = await client.watch(session.process_id, session_id=found)
        except InvalidRequest as exc:
            raise detach.expired(session) from exc
        async with watching as watched:
            if not watched.is_terminal:
                raise ConfigurationError(
                    f"`{session.id}` has no terminal: `exec-server logs {session.id}` "
                    "prints its output"
                )
            if watched.shows_pictures:
                # Its number is that of the newest event.
                await anext(watched)
            newest = watched.last_seq
            at = values.at if values.back is None else max(0, newest - values.back)
            try:
                for path in filter(None, (values.svg, values.png)):
                    await client.screenshot(watched.watch_id, path, at=at)
            except ImportError as exc:
                raise ConfigurationError(str(exc)) from exc
            screen = await client.screen(watched.watch_id, history=values.history, at=at)
            shown = newest if at is None else min(at, newest)
            if not values.command:
                return shown, screen, None
            asked = ScreenParams(watched.watch_id, lines=False, command=True)
            told = (await client.read_screen(asked)).command
            return shown, screen, LastCommand("none") if told is msgspec.UNSET else told


def _command_words(command: LastCommand | None) -> str:
    if command is None or command.state == "none":
        return "no command was seen; `exec-server shell --integration` starts a shell that tells"
    if command.state == "unconfirmed":
        return "the shell has stopped to tell what it does: its prompt hooks are gone"
    status = "it still runs" if command.state == "running" else f"exit status {command.exit_code}"
    cut = ["[the output before this is not kept]"] if command.truncated else []
    heading = f"$ {command.command}\n[in {command.cwd}; {status}]"
    told = [heading, *cut, *([command.output] if command.output else [])]
    return escaped("\n".join(told), keep="\n")


def _facts(screen: Screen, command: LastCommand | None) -> dict[str, Any]:
    cursor = screen.cursor
    facts: dict[str, Any] = {
        "rows": screen.rows,
        "columns": screen.columns,
        "lines": screen.lines,
        "cursor": {"row": cursor.row, "column": cursor.column, "visible": cursor.visible},
        "title": screen.title,
        "alternate": screen.alternate,
        "version": screen.version,
        "inexact": screen.inexact,
    }
    if command is not None:
        facts["command"] = msgspec.to_builtins(command)
    return facts if screen.history is None else facts | {"history": screen.history}
