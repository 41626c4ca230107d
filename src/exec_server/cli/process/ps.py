"""`exec-server ps`: list detached processes and their states."""

from __future__ import annotations

import asyncio
import shlex
import time

import msgspec

from exec_server.cli import exit_codes, server_access
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.files.progress_bar import duration
from exec_server.cli.options import add_output, server_token
from exec_server.cli.parser import Flag
from exec_server.cli.process import detach
from exec_server.cli.process.saved_session_options import saved_parser
from exec_server.cli.process.saved_sessions import SavedSession, SessionStore
from exec_server.cli.tables import failure_teller, print_json, print_table
from exec_server.errors import ExecServerError, InvalidRequest

# How many servers are asked at the same time.
_AT_ONCE = 16

_DESCRIPTION = """\
List the processes that were detached on this machine, with `run --detach` or ~d. Their servers are
asked for the state of each: running, exited with a status, attached elsewhere, unreachable, or
unknown here, which means that the server was restarted or is another one under the same name. An
expired process is listed once more, and its record is removed. All other records are kept until
`--forget` or `--prune`.
"""

_EXAMPLES = """\
  All of them:
      exec-server ps

  Those of one server, as JSON:
      exec-server ps -o json build

  Remove the record of a process whose server is gone:
      exec-server ps --forget 3f2a9c01
"""


class DetachedProcess(msgspec.Struct, frozen=True):
    """A detached process and its state."""

    session: SavedSession
    # "running", "exited", or the reason why neither is known.
    state: str
    exit_code: int | None = None
    problem: str | None = None

    @property
    def facts(self) -> dict[str, object]:
        facts = {**self.session.facts, "state": self.state, "exitCode": self.exit_code}
        return facts if self.problem is None else {**facts, "problem": self.problem}

    @property
    def row(self) -> list[str]:
        session = self.session
        state = self.state if self.exit_code is None else f"{self.state} {self.exit_code}"
        age = duration(max(0.0, time.time() - session.started_at))
        server = server_access.shown(session.server)
        return [session.id, server, state, age, shlex.join(session.argv)]


def ps_command(words: list[str]) -> int:
    """List the detached processes that *words* ask for."""
    parser = saved_parser(
        "ps",
        usage="[OPTIONS] [SERVER]",
        description=_DESCRIPTION,
        status="0    listed; the states do not matter",
        failed="the records of detached processes cannot be read safely",
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "server", metavar="SERVER", nargs="?", help="list only those on this server"
    )
    parser.add_argument(
        "--forget",
        metavar="<ID>",
        help="remove the record of this process and ask no server; the process is left alone",
    )
    parser.add_argument(
        "--prune", action=Flag, help="also remove the records of processes that are unknown here"
    )
    parser.add_argument("-q", "--quiet", action=Flag, help="print only the ids, and ask no server")
    add_output(parser)
    values = parser.parse_words(words)

    async def ps() -> int:
        token = server_token(parser, values)
        store = SessionStore()
        if values.forget is not None:
            store.remove(store.find(values.forget).id)
            return exit_codes.OK
        sessions = [each for each in store.all() if values.server in (None, each.server)]
        if values.quiet:
            for each in sessions:
                print(each.id)
            return exit_codes.OK
        slots = asyncio.Semaphore(_AT_ONCE)
        found = await asyncio.gather(
            *(_look(store, each, token, values.pin, slots) for each in sessions)
        )
        if values.prune:
            for listed in found:
                if listed.state == "unknown here":
                    store.remove(listed.session.id)
        if values.output == "json":
            print_json([each.facts for each in found])
        elif found:
            print_table(["ID", "SERVER", "STATE", "AGE", "COMMAND"], [each.row for each in found])
        return exit_codes.OK

    return run_to_exit_status(ps, log_level=values.log_level, tell=failure_teller(values.output))


async def _look(
    store: SessionStore,
    session: SavedSession,
    token: str | None,
    pin: str | None,
    slots: asyncio.Semaphore,
) -> DetachedProcess:
    opening = detach.open_saved(
        store, session, client_name="exec-server ps", token=token, pin=pin, is_patient=False
    )
    try:
        async with slots, opening as client:
            answer = await client.read(session.process_id, max_bytes=1)
    except detach.SessionUnavailable as exc:
        is_told = exc.state not in ("attached", "expired")
        return DetachedProcess(session, exc.state, problem=str(exc) if is_told else None)
    except InvalidRequest:
        return DetachedProcess(session, detach.expired(store, session).state)
    except ExecServerError as exc:
        return DetachedProcess(session, "unknown", problem=str(exc))
    if not answer.exited:
        return DetachedProcess(session, "running")
    return DetachedProcess(
        session, "exited", None if answer.exit_code is None else answer.exit_code & 0xFF
    )
