"""Look on at a process beside the program that follows it: `attach --watch`, `logs -f`, `kill`."""

from __future__ import annotations

import os

from exec_server.cli import server_access
from exec_server.cli.process.denial_report import tell_denied
from exec_server.cli.process.detached import detach
from exec_server.cli.process.detached.detach import ServerAccess
from exec_server.cli.process.detached.named_process import NamedProcess
from exec_server.cli.process.detached.saved_sessions import SavedSession
from exec_server.cli.process.end_words import tell_end
from exec_server.cli.process.own_terminal import terminal_io
from exec_server.cli.process.own_terminal.connection_notices import Notices, say
from exec_server.cli.process.own_terminal.own_keyboard import own_name
from exec_server.cli.process.own_terminal.terminal_bridge import BridgeOptions, TerminalBridge
from exec_server.cli.process.own_terminal.watched_terminal import Meant, WatchedTerminal
from exec_server.client.session_token import SessionToken
from exec_server.errors import ConnectError, ProcessLost, RpcError
from exec_server.protocol.process import ReadResult


def watched(
    session: SavedSession,
    access: ServerAccess,
    notices: Notices,
    *,
    takes: bool = False,
    is_log: bool = False,
) -> WatchedTerminal:
    """The process of *session*, looked on at over a connection of its own."""
    meant = Meant(
        session.process_id,
        SessionToken.parse(session.session_token).session_id,
        "person" if os.isatty(0) or os.isatty(2) else "agent",
        own_name(),
        takes=takes,
        pictures=not is_log and os.isatty(1),
        after_seq=0 if is_log else None,
    )
    return WatchedTerminal(
        lambda: detach.open_beside(session, access, on_state=notices.on_state), meant, notices
    )


async def can_watch(session: SavedSession, access: ServerAccess) -> bool:
    """True if the server lets others look on at the process, and has it."""
    try:
        async with detach.open_beside(session, access) as client:
            if not await client.offers("processWatch"):
                return False
            jobs = await client.jobs(every=True)
    except (ConnectError, RpcError):
        # The way back to its session says what is wrong.
        return False
    return any(
        job.process_id == session.process_id and session.is_in(job.session_id) for job in jobs
    )


async def watch(found: NamedProcess, access: ServerAccess, notices: Notices, *, takes: bool) -> int:
    """Show a process here, and drive it if *takes*; the exit status."""
    session = found.session
    process = watched(session, access, notices, takes=takes)
    process.size = terminal_io.terminal_size()
    async with process:
        has_keys = process.is_terminal and os.isatty(0)
        options = BridgeOptions(
            is_terminal=process.is_terminal,
            has_input=has_keys,
            has_escape_keys=has_keys,
            at_end="leave",
            size=terminal_io.terminal_size(),
            # The server answers the queries of a program that is shared.
            queries_after=None,
        )
        _tell_size(process)
        async with TerminalBridge(process, options, notices) as bridge:
            process.on_interrupt = bridge.leave
            bridge.on_control = process.control
            status = await bridge.follow()
    if bridge.is_detached:
        place = "" if found.is_saved else f"{server_access.shown(session.server)} "
        how = f"exec-server attach --watch {place}{session.id}"
        say(f"left; come back with: {how}", is_raw=has_keys)
    else:
        tell_end(process.watched, is_known=bridge.has_interrupted)
    return status


async def read_beside(session: SavedSession, access: ServerAccess) -> ReadResult:
    """The retained output of a process that another program follows."""
    async with detach.open_beside(session, access) as client:
        found = SessionToken.parse(session.session_token).session_id
        async with await client.watch(session.process_id, session_id=found, after_seq=0) as process:
            return await client.read(process.watch_id)


def _tell_size(process: WatchedTerminal) -> None:
    theirs, ours = process.watched.size, process.size
    if theirs is None or ours is None or process.watched.drives:
        return
    if ours[0] < theirs[0] or ours[1] < theirs[1]:
        say(
            f"this terminal is smaller ({ours[1]}x{ours[0]}) than that of the process "
            f"({theirs[1]}x{theirs[0]}): a part of it is not shown well"
        )


async def follow_log(session: SavedSession, access: ServerAccess, notices: Notices) -> int | None:
    """Print output until the process ends; None, or the status if this program has to leave."""
    process = watched(session, access, notices, is_log=True)
    async with process:
        options = BridgeOptions(has_input=False, at_end="leave", queries_after=None)
        status = None
        async with TerminalBridge(process, options, notices) as bridge:
            try:
                status = await bridge.follow()
            except ProcessLost as exc:
                say(f"lost ({exc.reason}): the exit status is unknown")
        if bridge.is_detached:
            return status
        is_told = await tell_denied(process.watched)
        tell_end(process.watched, is_known=bridge.has_interrupted, knows_denials=is_told)
        return None
