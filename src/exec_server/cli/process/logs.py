"""`exec-server logs`: print the output of a detached process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from exec_server.cli import exit_codes
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.options import add_output, add_verbose, server_token
from exec_server.cli.parser import Flag
from exec_server.cli.process import detach
from exec_server.cli.process.connection_notices import Notices, say
from exec_server.cli.process.run import output_facts
from exec_server.cli.process.saved_session_options import saved_parser
from exec_server.cli.process.saved_sessions import SavedSession, SessionStore
from exec_server.cli.process.session_holder import add_force, open_held
from exec_server.cli.process.terminal_bridge import BridgeOptions, Collected, TerminalBridge
from exec_server.cli.process.terminal_io import LocalOutput
from exec_server.cli.tables import print_json
from exec_server.client.client import ExecServerClient
from exec_server.client.process.bounded_output import BoundedOutput
from exec_server.errors import InvalidRequest
from exec_server.protocol.process import ReadChunk, ReadResult

# How many seconds a terminal has to take the sequences that restore it.
_LAST_WORDS = 2.0

_EXAMPLES = """\
  Print the output so far:
      exec-server logs 3f2a9c01

  Print it, and follow it until the process ends; Ctrl-C leaves the process running:
      exec-server logs -f 3f2a9c01
"""


def logs_command(words: list[str]) -> int:
    """Print output; the position where `attach` continues does not change."""
    parser = saved_parser(
        "logs",
        usage="[OPTIONS] <ID>",
        description="Print the output of a detached process, as far as its server retains it: by "
        "default the last\nmebibyte.",
        status="0    printed; 128 + N if signal N ended this program",
        examples=_EXAMPLES,
    )
    parser.add_argument("id", metavar="<ID>", help="the id, or a unique beginning of it")
    parser.add_argument(
        "-f", "--follow", action=Flag, help="follow the output until the process has ended"
    )
    add_force(parser)
    add_output(parser)
    add_verbose(parser)
    values = parser.parse_words(words)
    if values.follow and values.output == "json":
        parser.error("the argument '--follow' cannot be used with '--output json'")

    async def logs() -> int:
        store = SessionStore()
        session = store.find(values.id)
        notices = Notices(is_verbose=values.verbose)

        def opening(is_patient: bool) -> AbstractAsyncContextManager[ExecServerClient]:
            return detach.open_saved(
                store,
                session,
                client_name=parser.prog,
                token=server_token(parser, values),
                pin=values.pin,
                on_state=notices.on_state,
                is_patient=is_patient,
            )

        command = f"exec-server logs -f {session.id}" if values.follow else None
        async with open_held(opening, session, force=values.force, command=command) as client:
            try:
                if values.follow:
                    return await _follow(client, session, notices)
                answer = await client.read(session.process_id)
            except InvalidRequest as exc:
                raise detach.expired(store, session) from exc
        await _show(session, answer, as_json=values.output == "json")
        return exit_codes.OK

    return run_to_exit_status(logs, log_level=values.log_level)


async def _follow(client: ExecServerClient, session: SavedSession, notices: Notices) -> int:
    process = await client.attach(session.process_id, 0)
    if process.is_truncated:
        _tell_missing(process.dropped_bytes)
    async with TerminalBridge(
        process, BridgeOptions(has_input=False, at_end="leave"), notices
    ) as bridge:
        status = await bridge.follow()
    # The exit status of the process is not that of this command.
    return status if bridge.is_detached else exit_codes.OK


async def _show(session: SavedSession, answer: ReadResult, *, as_json: bool) -> None:
    dropped = answer.dropped_bytes if isinstance(answer.dropped_bytes, int) else 0
    if as_json:
        facts: dict[str, object] = {
            "id": session.id,
            "exited": answer.exited,
            "exitCode": answer.exit_code,
            "droppedBytes": dropped,
        }
        print_json(facts | output_facts(_collected(answer.chunks)))
        return
    if dropped:
        _tell_missing(dropped)
    output = LocalOutput()
    if session.tty:
        await output.track_modes()
    try:
        for chunk in answer.chunks:
            await output.write(2 if chunk.stream == "stderr" else 1, chunk.chunk.data)
    finally:
        await output.restore_modes(_LAST_WORDS)


def _collected(chunks: Sequence[ReadChunk]) -> Collected:
    collected: Collected = {"stdout": BoundedOutput(None), "stderr": BoundedOutput(None)}
    for chunk in chunks:
        collected["stderr" if chunk.stream == "stderr" else "stdout"] += chunk.chunk.data
    return collected


def _tell_missing(dropped: int) -> None:
    count = f"{dropped} bytes" if dropped else "some output"
    say(f"{count} before this could not be retained")
