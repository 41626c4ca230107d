"""`exec-server shell`: open a terminal on a server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from functools import partial

import msgspec

from exec_server.cli import exit_codes, server_access
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.log_setup import print_error
from exec_server.cli.options import (
    TOKEN_HELP,
    add_connection_options,
    add_place_on_server,
    server_token,
)
from exec_server.cli.parser import Flag, Parser
from exec_server.cli.process.detached import detach
from exec_server.cli.process.detached.saved_sessions import SavedSession, SessionStore
from exec_server.cli.process.end_words import tell_end
from exec_server.cli.process.limit_options import LIMIT_HELP, add_limit, chosen_limits
from exec_server.cli.process.own_terminal import terminal_io
from exec_server.cli.process.own_terminal.connection_notices import Notices, say
from exec_server.cli.process.own_terminal.own_keyboard import OwnKeyboard
from exec_server.cli.process.own_terminal.terminal_bridge import BridgeOptions, TerminalBridge
from exec_server.cli.process.run import recorded_command, start_command
from exec_server.cli.process.run_options import (
    RunOptions,
    add_integration,
    add_name,
    add_not_durable,
    split_server,
)
from exec_server.cli.recordings.record_option import add_record, record_choice
from exec_server.cli.server_access import SERVER_HELP
from exec_server.client.client import ExecServerClient
from exec_server.client.process.remote_process import RemoteProcess
from exec_server.errors import ConfigurationError, ExecServerError, RpcError

# How many seconds the server has to remove the output of a shell that is over.
_LAST_WORDS = 2.0

_DESCRIPTION = """\
Open a shell on a server, or run another program on a terminal there. Every key goes to it, also
Ctrl-C, and its exit status becomes the status of this program. If the connection is lost, a line
says so, and the shell continues when the connection is back. A server with a state directory lets
it continue even after the server was restarted.
"""

_EPILOG = f"""\
{SERVER_HELP}
escape keys, at the start of a line:
  ~.  leave, and end the shell       ~?  show these keys
  ~d  detach: leave, and let it run  ~~  type a single ~
  ~t  take the keyboard from others  ~g  give it back      ~w  show who looks on
`exec-server ps` lists detached shells, and `exec-server attach` continues with one.

{LIMIT_HELP}
{TOKEN_HELP}
exit status:
  the status of the shell; 128 + N if signal N ended it or this program (129 after ~.); 0 after ~d
  1    the server cannot be reached, the connection was lost, or there is no terminal here
  2    the command line is wrong
  125  the status of the shell is unknown: it was lost, for example in a restart of the machine
  126  the program cannot be started
  127  the program was not found

examples:
  The login shell of the user who runs the server:
      exec-server shell ws://127.0.0.1:41181

  Another program, on a server with a name:
      exec-server shell build -- htop

  One that goes on whatever happens here, under a name:
      exec-server shell --keep --name work build
      exec-server attach work

  One whose commands another program can read as data:
      exec-server shell --integration --name work build
      exec-server screen --command -o json build work

  In a directory:
      exec-server shell --cwd /srv/app build
"""


def shell_parser() -> Parser:
    parser = Parser(
        "exec-server shell",
        usage="[OPTIONS] [SERVER] [-- <COMMAND> [ARGS]...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_place_on_server(parser)
    add_name(parser)
    parser.add_argument(
        "--keep",
        action=Flag,
        help="keep the shell when this program ends or the connection is away for long: "
        "`exec-server attach` continues with it, and only its own exit ends it",
    )
    add_integration(parser)
    add_not_durable(parser)
    add_limit(parser)
    add_record(parser)
    add_connection_options(parser)
    return parser


def shell_command(words: list[str]) -> int:
    """Open the shell that *words* describe and return its exit status."""
    parser = shell_parser()
    arguments = parser.parse_around(words, os.environ)
    try:
        server, argv = split_server(parser, arguments)
    except ConfigurationError as exc:
        print_error(str(exc))
        return exit_codes.FAILED
    values = arguments.values

    async def shell() -> int:
        if not (os.isatty(0) and os.isatty(1)):
            raise ConfigurationError(
                "a shell needs a terminal, and standard input or output is not one; "
                "use `exec-server run` instead"
            )
        return await _shell(
            RunOptions(
                server=server,
                argv=argv,
                cwd=values.cwd,
                env=dict(values.env),
                tty=True,
                durable=not values.not_durable,
                name=values.name,
                keeps=values.keep,
                integration=values.integration,
                limits=chosen_limits(values),
                record=record_choice(values),
                token=server_token(parser, values),
                token_file=values.token_file,
                pin=values.pin,
            )
        )

    return run_to_exit_status(shell, log_level=values.log_level)


async def _shell(options: RunOptions) -> int:
    notices = Notices()
    opening = server_access.open_server(
        options.server,
        token=options.token,
        pin=options.pin,
        client_name="exec-server shell",
        on_state=notices.on_state,
    )
    async with opening as client:
        if not options.argv:
            options = msgspec.structs.replace(options, argv=await _login_shell(client))
        started_at = time.time()
        durable = options.durable and await client.offers("processDurable")
        # A user can do without output that was dropped during an outage, but not without the shell.
        process = await start_command(client, options, on_gap="skip", durable=durable)
        detaching = _Detaching(client, process, options, started_at)
        if options.keeps and not await detaching.begin():
            process.abandon()
            return exit_codes.FAILED
        size = terminal_io.terminal_size()
        with recorded_command(options, size) as recording:
            bridge_options = BridgeOptions(
                is_terminal=True,
                has_escape_keys=True,
                at_end="leave" if options.keeps else "hang up",
                outlives=process.is_durable,
                size=size,
                recording=recording,
            )
            bridge = TerminalBridge(process, bridge_options, notices)
            ask = partial(client.screen_picture, process.process_id)
            repaint = partial(bridge.repaint, ask)
            async with bridge, OwnKeyboard(process, bridge, notices, repaint=repaint):
                bridge.on_detach = detaching.begin
                status = await bridge.follow()
            if recording is not None:
                recording.close(process.returncode)
        if bridge.is_detached:
            detaching.finish(bridge.modes)
            return status
        if bridge.may_run_on and process.is_durable:
            await detaching.leave_behind(bridge.modes)
            return status
        detaching.forget()
        if process.is_durable:
            await _forget(client, process)
        tell_end(process, is_known=bridge.has_interrupted)
        return status


async def _forget(client: ExecServerClient, process: RemoteProcess) -> None:
    """Let the server remove the output of a shell that is over; it was shown here."""
    with contextlib.suppress(ExecServerError, TimeoutError):
        async with asyncio.timeout(_LAST_WORDS):
            await client.prune_jobs(session_id=client.session_id, process_id=process.process_id)


async def _login_shell(client: ExecServerClient) -> list[str]:
    try:
        return [(await client.environment_info()).shell.path, "-l"]
    except RpcError:
        # Old servers do not have this method.
        return ["/bin/sh", "-l"]


class _Detaching:
    """Detaches a shell when `~d` is typed."""

    def __init__(
        self,
        client: ExecServerClient,
        process: RemoteProcess,
        options: RunOptions,
        started_at: float,
    ) -> None:
        self._client = client
        self._process = process
        self._options = options
        self._started_at = started_at
        self._store = SessionStore()
        self._session: SavedSession | None = None

    async def begin(self) -> bool:
        """Ask the server to keep the shell, and save its record; False if that fails."""
        if self._session is not None:
            return True
        options = self._options
        if not server_access.can_be_resumed(options.server):
            say("cannot detach: this server ends with this program", is_raw=True)
            return False
        try:
            durable = self._process.is_durable
            # A durable shell is kept without an end.
            kept = None if durable else await detach.keep(self._client, options.keep)
            self._session = detach.new_record(
                self._store,
                self._client,
                self._process.process_id,
                server=options.server,
                argv=options.argv,
                tty=True,
                started_at=self._started_at,
                token_file=options.token_file,
                pin=options.pin,
                kept=kept,
                durable=durable,
                name=options.name,
            )
        except (ExecServerError, OSError) as exc:
            say(f"cannot detach: {exc}", is_raw=True)
            return False
        if not durable:
            detach.tell_kept(kept, options.keep, is_raw=True)
        return True

    def forget(self) -> None:
        """The shell has ended, and its output was shown."""
        if self._session is not None:
            self._store.remove(self._session.id)

    async def leave_behind(self, modes: bytes) -> None:
        """The shell should have ended, and the server does not answer: say how to find it."""
        if not await self.begin():
            return
        found = self._save(modes).id
        print(
            "\nthe server does not answer, so the shell may run on: when the server is back, "
            f"end it with `exec-server kill -s HUP {found}`, or continue with "
            f"`exec-server attach {found}`",
            file=sys.stderr,
        )

    def _save(self, modes: bytes) -> SavedSession:
        """Save how much of its output was shown and which *modes* it left on."""
        assert self._session is not None
        session = msgspec.structs.replace(self._session, modes=modes)
        return detach.update(self._store, self._client, session)

    def finish(self, modes: bytes) -> None:
        """Save what was shown, and print what to do."""
        session = self._save(modes)
        limit = "" if self._process.is_durable else "it ends if the server stops or is restarted\n"
        print(
            f"\n{limit}detached; come back with: exec-server attach {session.id}",
            file=sys.stderr,
        )
