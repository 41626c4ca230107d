"""`exec-server attach`: follow a detached process again."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager

import msgspec

from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.options import add_verbose, server_token
from exec_server.cli.process import detach
from exec_server.cli.process.connection_notices import Notices, say
from exec_server.cli.process.saved_session_options import saved_parser
from exec_server.cli.process.saved_sessions import SavedSession, SessionStore
from exec_server.cli.process.session_holder import add_force, open_held
from exec_server.cli.process.terminal_bridge import BridgeOptions, TerminalBridge
from exec_server.client.client import ExecServerClient
from exec_server.errors import InvalidRequest

_DESCRIPTION = """\
Follow a detached process again: its output continues at the byte where it was left. If the process
has a terminal, keys go to it, and ~d at the start of a line detaches again. Otherwise Ctrl-C
detaches. The process runs on in both cases.
"""

_EXAMPLES = """\
  Detach a build, and come back to it:
      exec-server run --detach build -- make world       # prints an id, such as 3f2a9c01
      exec-server attach 3f2a9c01
"""


def attach_command(words: list[str]) -> int:
    """Attach to a process; the status is that of the process, or 0 after detaching again."""
    parser = saved_parser(
        "attach",
        usage="[OPTIONS] <ID>",
        description=_DESCRIPTION,
        status="the status of the process; 0 after ~d; 128 + N if signal N ended this program",
        examples=_EXAMPLES,
    )
    parser.add_argument("id", metavar="<ID>", help="the id, or a unique beginning of it")
    add_force(parser)
    add_verbose(parser)
    values = parser.parse_words(words)

    async def attach() -> int:
        store = SessionStore()
        session = store.find(values.id)
        if session.exit_code is not None:
            say(f"it has ended, and all its output was shown; see `exec-server logs {session.id}`")
            return session.exit_code
        notices = Notices(is_verbose=values.verbose)

        def opening(is_patient: bool) -> AbstractAsyncContextManager[ExecServerClient]:
            return detach.open_saved(
                session,
                client_name=parser.prog,
                token=server_token(parser, values),
                pin=values.pin,
                on_state=notices.on_state,
                is_patient=is_patient,
            )

        command = f"exec-server attach {session.id}"
        async with open_held(opening, session, force=values.force, command=command) as client:
            return await _attach(store, session, client, notices)

    return run_to_exit_status(attach, log_level=values.log_level)


async def _attach(
    store: SessionStore, session: SavedSession, client: ExecServerClient, notices: Notices
) -> int:
    try:
        process = await client.attach(session.process_id)
    except InvalidRequest as exc:
        raise detach.expired(session) from exc
    has_keys = process.is_terminal and os.isatty(0)
    bridge_options = BridgeOptions(
        is_terminal=process.is_terminal,
        has_input=has_keys,
        has_escape_keys=has_keys,
        at_end="leave",
        redraws=process.is_terminal,
        modes=session.modes,
    )
    if process.is_truncated:
        say("output is missing here: the server did not retain all of it")
    bridge = TerminalBridge(process, bridge_options, notices)
    try:
        async with bridge:
            status = await bridge.follow()
    finally:
        is_over = process.returncode is not None and process.is_done
        session = msgspec.structs.replace(session, modes=bridge.modes)
        code = None if process.returncode is None else process.returncode & 0xFF
        detach.update(store, client, session, exit_code=code if is_over else None)
    if bridge.is_detached:
        say(f"detached; come back with: exec-server attach {session.id}")
    return status
