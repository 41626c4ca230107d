"""`exec-server attach`: follow a detached process again."""

from __future__ import annotations

import contextlib
import os
from contextlib import AbstractAsyncContextManager
from functools import partial

import msgspec

from exec_server.cli import exit_codes, server_access
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.options import add_verbose
from exec_server.cli.parser import Flag
from exec_server.cli.process.denial_report import tell_denied
from exec_server.cli.process.detached import detach
from exec_server.cli.process.detached.looking_on import watch
from exec_server.cli.process.detached.named_process import (
    ID_HELP,
    NamedProcess,
    add_words,
    find_process,
    split_words,
)
from exec_server.cli.process.detached.recent_output import Recent, find_recent
from exec_server.cli.process.detached.saved_session_options import access_of, saved_parser
from exec_server.cli.process.detached.saved_sessions import SavedSession, SessionStore
from exec_server.cli.process.detached.session_holder import add_force, open_held
from exec_server.cli.process.end_words import tell_end
from exec_server.cli.process.own_terminal import terminal_io
from exec_server.cli.process.own_terminal.connection_notices import Notices, say
from exec_server.cli.process.own_terminal.own_keyboard import OwnKeyboard
from exec_server.cli.process.own_terminal.terminal_bridge import BridgeOptions, TerminalBridge
from exec_server.cli.recordings.record_option import (
    RecordChoice,
    add_record,
    record_choice,
    recorded,
)
from exec_server.client.client import ExecServerClient
from exec_server.errors import ConfigurationError, InvalidRequest
from exec_server.protocol.sharing import ScreenPicture

_DESCRIPTION = """\
Follow a detached process again: its output continues at the byte where it was left on this machine.
Of a job that was never followed here, the last 256 KiB are shown first. If the process has a
terminal, its screen is painted, keys go to it, and ~d at the start of a line detaches again.
Otherwise Ctrl-C detaches. The process runs on in both cases.

With --watch any number of people look on at a process, also while another program follows it; only
one drives. With --take you drive: the keys of the other program are refused until you give the
keyboard back with ~g, or leave. ~t takes the keyboard later, and ~w shows who looks on.
"""

_EXAMPLES = """\
  Detach a build, and come back to it:
      exec-server run --detach build -- make world       # prints an id, such as 3f2a9c01
      exec-server attach 3f2a9c01

  Look on at what an agent does, and take the keyboard from it:
      exec-server attach --watch build 3f2a9c01
      exec-server attach --take build 3f2a9c01

  Continue with a durable job that was started from another machine:
      exec-server ps build
      exec-server attach build 3f2a9c01
"""


def attach_command(words: list[str]) -> int:
    """Attach to a process; the status is that of the process, or 0 after detaching again."""
    parser = saved_parser(
        "attach",
        usage="[OPTIONS] [SERVER] <ID>",
        description=_DESCRIPTION,
        status="the status of the process; 0 after ~d; 128 + N if signal N ended this program;\n"
        "  125  the status of the process is unknown: it was lost, for example in a restart",
        examples=_EXAMPLES,
        words_help=ID_HELP,
    )
    add_words(parser)
    parser.add_argument(
        "--watch", action=Flag, help="look on, and leave the keyboard to the one who has it"
    )
    parser.add_argument(
        "--take", action=Flag, help="look on, and take the keyboard; ~g gives it back"
    )
    add_force(parser)
    add_verbose(parser)
    add_record(parser)
    # The word after `--record` is the id, and not the file of the recording.
    values = parser.parse_words(["--record=" if word == "--record" else word for word in words])
    if (values.watch or values.take) and values.force:
        parser.error("the argument '--force' cannot be used with '--watch' or '--take'")

    server, [text] = split_words(parser, values.words, SessionStore())

    async def attach() -> int:
        store = SessionStore()
        access = access_of(parser, values)
        found = await find_process(store, server, text, access)
        session = found.session
        if session.exit_code is not None or session.lost is not None:
            return _tell_end(session)
        notices = Notices(is_verbose=values.verbose)
        if values.watch or values.take:
            return await watch(found, access, notices, takes=values.take)

        def opening(is_patient: bool) -> AbstractAsyncContextManager[ExecServerClient]:
            return detach.open_saved(
                session,
                access,
                on_state=notices.on_state,
                is_patient=is_patient,
                force=values.force,
            )

        command = f"exec-server attach {session.id}"
        async with open_held(opening, session, force=values.force, command=command) as client:
            return await _attach(store, found, client, notices, record_choice(values))

    return run_to_exit_status(attach, log_level=values.log_level)


def _tell_end(session: SavedSession) -> int:
    """Say how a process has ended whose output was shown; the exit status."""
    end = "it has ended" if session.lost is None else f"it is lost ({session.lost})"
    say(f"{end}, and all its output was shown; see `exec-server logs {session.id}`")
    return exit_codes.LOST if session.exit_code is None else session.exit_code


async def _picture(client: ExecServerClient, session: SavedSession) -> ScreenPicture | None:
    """The screen of the process, if it has a terminal, there is one here, and the server can."""
    is_shown = session.tty and os.isatty(1)
    if not is_shown or not await client.offers("processWatch"):
        return None
    return await client.screen_picture(session.process_id)


async def _attach(
    store: SessionStore,
    found: NamedProcess,
    client: ExecServerClient,
    notices: Notices,
    record: RecordChoice | None,
) -> int:
    session = found.session
    try:
        recent = Recent() if found.job is None else await find_recent(client, found.job)
        after = None if found.job is None else recent.after_seq
        picture = await _picture(client, session)
        process = await client.attach(session.process_id, after if picture is None else picture.seq)
    except InvalidRequest as exc:
        raise detach.expired(session) from exc
    has_keys = process.is_terminal and os.isatty(0)
    if record is not None and not process.is_terminal:
        raise ConfigurationError("there is nothing to record: the process has no terminal")
    held = contextlib.ExitStack()
    recording = held.enter_context(recorded(record, session.argv, terminal_io.terminal_size()))
    bridge_options = BridgeOptions(
        is_terminal=process.is_terminal,
        has_input=has_keys,
        has_escape_keys=has_keys,
        at_end="leave",
        redraws=process.is_terminal and picture is None,
        modes=session.modes if picture is None else b"",
        picture=b"" if picture is None else picture.data.data,
        size=None if picture is None else (picture.rows, picture.cols),
        queries_after=process.wake_seq if has_keys else None,
        recording=recording,
    )
    logs = f"exec-server logs {server_access.shown(session.server)} {session.id}"
    if picture is not None:
        # Output before it can be read, but it is not missing.
        pass
    elif (notice := recent.notice(logs)) is not None:
        say(notice)
    elif process.is_truncated:
        say("output is missing here: the server did not retain all of it")
    bridge = TerminalBridge(process, bridge_options, notices)
    try:
        ask = partial(client.screen_picture, session.process_id)
        repaint = partial(bridge.repaint, ask)
        async with bridge, OwnKeyboard(process, bridge, notices, repaint=repaint):
            status = await bridge.follow()
    finally:
        if recording is not None:
            recording.close(process.returncode)
        held.close()
        is_over = process.is_done and not (process.returncode is None and process.lost is None)
        session = msgspec.structs.replace(session, modes=bridge.modes)
        code = None if process.returncode is None else process.returncode & 0xFF
        if not is_over:
            detach.update(store, client, session)
        elif found.is_saved:
            detach.update(store, client, session, exit_code=code, lost=process.lost)
    if bridge.is_detached:
        # The cursor may be in the middle of a line of the program.
        say(f"detached; come back with: exec-server attach {session.id}", is_raw=has_keys)
    else:
        is_told = await tell_denied(process)
        tell_end(process, is_known=bridge.has_interrupted, knows_denials=is_told)
    return status
