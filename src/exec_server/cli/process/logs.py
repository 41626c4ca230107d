"""`exec-server logs`: print the output of a detached process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from exec_server.cli import exit_codes
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.options import add_output, add_verbose
from exec_server.cli.parser import Flag
from exec_server.cli.process.denial_report import tell_denied
from exec_server.cli.process.detached import detach
from exec_server.cli.process.detached.looking_on import can_watch, follow_log, read_beside
from exec_server.cli.process.detached.named_process import (
    ID_HELP,
    add_words,
    find_process,
    split_words,
)
from exec_server.cli.process.detached.saved_session_options import access_of, saved_parser
from exec_server.cli.process.detached.saved_sessions import SavedSession, SessionStore
from exec_server.cli.process.detached.session_holder import add_force, open_held
from exec_server.cli.process.end_words import end_line, report_facts, tell_end
from exec_server.cli.process.own_terminal.connection_notices import Notices, say
from exec_server.cli.process.own_terminal.terminal_bridge import (
    BridgeOptions,
    Collected,
    TerminalBridge,
)
from exec_server.cli.process.own_terminal.terminal_io import LocalOutput
from exec_server.cli.process.run import output_facts
from exec_server.cli.tables import failure_teller, print_json
from exec_server.client.client import ExecServerClient
from exec_server.client.process.bounded_output import BoundedOutput
from exec_server.errors import InvalidRequest, ProcessLost
from exec_server.protocol.process import ReadChunk, ReadResult

# How many seconds a terminal has to take the sequences that restore it.
_LAST_WORDS = 2.0

_EXAMPLES = """\
  Print the output so far:
      exec-server logs 3f2a9c01

  Print it, and follow it until the process ends; Ctrl-C leaves the process running:
      exec-server logs -f 3f2a9c01

  Of a durable job that was started from another machine:
      exec-server logs build 3f2a9c01
"""


def logs_command(words: list[str]) -> int:
    """Print output; the position where `attach` continues does not change."""
    parser = saved_parser(
        "logs",
        usage="[OPTIONS] [SERVER] <ID>",
        description="Print the output of a detached process, as far as its server retains it: by "
        "default the last\nmebibyte, or the journal of a durable job.",
        status="0    printed; 128 + N if signal N ended this program",
        examples=_EXAMPLES,
        words_help=ID_HELP,
    )
    add_words(parser)
    parser.add_argument(
        "-f", "--follow", action=Flag, help="follow the output until the process has ended"
    )
    add_force(parser)
    add_output(parser)
    add_verbose(parser)
    values = parser.parse_words(words)
    if values.follow and values.output == "json":
        parser.error("the argument '--follow' cannot be used with '--output json'")

    server, [text] = split_words(parser, values.words, SessionStore())

    async def logs() -> int:
        access = access_of(parser, values)
        session = (await find_process(SessionStore(), server, text, access)).session
        notices = Notices(is_verbose=values.verbose)
        if values.follow and await can_watch(session, access):
            status = await follow_log(session, access, notices)
            return exit_codes.OK if status is None else status

        def opening(is_patient: bool) -> AbstractAsyncContextManager[ExecServerClient]:
            return detach.open_saved(
                session,
                access,
                on_state=notices.on_state,
                is_patient=is_patient,
                force=values.force,
            )

        command = f"exec-server logs -f {session.id}" if values.follow else None
        try:
            async with open_held(opening, session, force=values.force, command=command) as client:
                try:
                    if values.follow:
                        return await _follow(client, session, notices)
                    answer = await client.read(session.process_id)
                except InvalidRequest as exc:
                    raise detach.expired(session) from exc
        except detach.SessionUnavailable as exc:
            if exc.state != "attached" or not await can_watch(session, access):
                raise
            answer = await read_beside(session, access)
        await _show(session, answer, as_json=values.output == "json")
        return exit_codes.OK

    return run_to_exit_status(logs, log_level=values.log_level, tell=failure_teller(values.output))


async def _follow(client: ExecServerClient, session: SavedSession, notices: Notices) -> int:
    process = await client.attach(session.process_id, 0)
    if process.is_truncated:
        _tell_missing(process.dropped_bytes)
    async with TerminalBridge(
        process, BridgeOptions(has_input=False, at_end="leave", queries_after=None), notices
    ) as bridge:
        try:
            status = await bridge.follow()
        except ProcessLost as exc:
            say(f"lost ({exc.reason}): the exit status is unknown")
    if not bridge.is_detached:
        is_told = await tell_denied(process)
        tell_end(process, is_known=bridge.has_interrupted, knows_denials=is_told)
    # The exit status of the process is not that of this command.
    return status if bridge.is_detached else exit_codes.OK


async def _show(session: SavedSession, answer: ReadResult, *, as_json: bool) -> None:
    dropped = answer.dropped_bytes if isinstance(answer.dropped_bytes, int) else 0
    lost = answer.why_lost
    if as_json:
        facts: dict[str, object] = {
            "id": session.id,
            "exited": answer.exited,
            "exitCode": None if lost is not None else answer.exit_code,
            "droppedBytes": dropped,
        }
        if lost is not None:
            facts["lost"] = lost
        facts |= report_facts(answer.end, answer.usage)
        print_json(facts | output_facts(_collected(answer.chunks)))
        return
    if dropped:
        _tell_missing(dropped)
    output = LocalOutput()
    if session.tty:
        await output.track_modes()
        output.leave_queries_out()
    try:
        for chunk in answer.chunks:
            await output.write(2 if chunk.stream == "stderr" else 1, chunk.chunk.data)
        await output.show_queries()
    finally:
        await output.restore_modes(_LAST_WORDS)
    if lost is not None:
        say(f"lost ({lost}): the exit status is unknown")
    elif answer.exited and (line := end_line(answer.end)) is not None:
        say(line)


def _collected(chunks: Sequence[ReadChunk]) -> Collected:
    collected: Collected = {"stdout": BoundedOutput(None), "stderr": BoundedOutput(None)}
    for chunk in chunks:
        collected["stderr" if chunk.stream == "stderr" else "stdout"] += chunk.chunk.data
    return collected


def _tell_missing(dropped: int) -> None:
    count = f"{dropped} bytes" if dropped else "some output"
    say(f"{count} before this could not be retained")
