"""`exec-server ps`: list detached processes and their states."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import time

import msgspec
from msgspec import UNSET

from exec_server.cli import exit_codes, server_access
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.files.progress_bar import duration
from exec_server.cli.log_setup import print_error
from exec_server.cli.options import add_output
from exec_server.cli.parser import Flag, Parser
from exec_server.cli.process.detached import detach
from exec_server.cli.process.detached.detach import ServerAccess
from exec_server.cli.process.detached.saved_session_options import access_of, saved_parser
from exec_server.cli.process.detached.saved_sessions import SavedSession, SessionStore, shown_time
from exec_server.cli.process.detached.server_jobs import as_session, ask_jobs, job_ids
from exec_server.cli.process.end_words import report_facts, short_end
from exec_server.cli.tables import failure_teller, print_json_entries, print_table, terminal_width
from exec_server.errors import ExecServerError, InvalidRequest, MethodNotFound
from exec_server.printable import printable
from exec_server.protocol.ends import EndReport, Usage
from exec_server.protocol.jobs import JobInfo

# How many servers are asked at the same time.
_AT_ONCE = 16

_DESCRIPTION = """\
List detached processes. Without SERVER these are the ones that were detached on this machine, with
`run --detach` or ~d. With SERVER the server itself is asked, and its durable jobs and all processes
that run now are listed as well, wherever they were started: those of the same principal.
"""

_EXAMPLES = """\
  All that were detached on this machine:
      exec-server ps

  All jobs of a server, from any machine:
      exec-server ps build

  Those of all principals of a server, which needs the scope admin:
      exec-server ps --all build

  As JSON:
      exec-server ps -o json build

  Remove the record of a process whose server is gone:
      exec-server ps --forget 3f2a9c01
"""

_STATES_HELP = """\
states:
  running        running (attached): a client follows it now
  exited N       it has ended with status N; (WHY) if a signal, a limit or a client has ended it
  ..., N refused  its sandbox has refused something N times; `logs -f` and `attach` say what
  lost (WHY)     it is gone and its exit status is unknown; its output can be read
  attached       another program follows it, so its state cannot be asked for
  expired        its server has ended it after the time of --keep
  unknown here   the server that answers was restarted, or is another one under the same name
  refused        the token is missing or wrong
  unreachable    there is no connection to the server
No answer of a server removes a record of this machine; --forget and --prune do. AGE is the time
since the start or, of a durable job that has ended, the time that it has taken.
"""


class DetachedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A detached process and its state."""

    session: SavedSession
    # "running", "exited", "lost", or the reason why none of them is known.
    state: str
    exit_code: int | None = None
    lost: str | None = None
    problem: str | None = None
    # Why it ended, and what it used, if the server tells.
    end: EndReport | None = None
    usage: Usage | None = None
    # What the server lists, if it is a durable job.
    job: JobInfo | None = None

    @property
    def facts(self) -> dict[str, object]:
        facts = {**self.session.facts, "state": self.state, "exitCode": self.exit_code}
        if self.lost is not None:
            facts["lost"] = self.lost
        if self.problem is not None:
            facts["problem"] = self.problem
        if self.job is not None:
            job = self.job
            ended = None if job.ended_at is None else shown_time(job.ended_at / 1000)
            facts |= {"processId": job.process_id, "pid": job.pid, "cwd": job.cwd}
            facts |= {"endedAt": ended, "attached": job.attached, "viewers": job.viewers}
            if job.driver is not None:
                facts["driver"] = job.driver
            if job.name is not None:
                facts["name"] = job.name
            if job.owner is not None:
                facts["owner"] = job.owner
            if job.denied is not UNSET:
                facts["denied"] = job.denied
        return facts | report_facts(self.end, self.usage)

    @property
    def row(self) -> list[str]:
        server = server_access.shown(self.session.server)
        age = duration(max(0.0, self._age))
        return [self.session.id, server, self._shown_state, age, shlex.join(self.session.argv)]

    @property
    def name(self) -> str | None:
        return self.session.name or (self.job.name if self.job is not None else None)

    @property
    def viewers(self) -> str:
        """How many look on, and who drives instead of the session that has started it."""
        if self.job is None or not self.job.viewers:
            return ""
        driver = "" if self.job.driver is None else f" ({printable(self.job.driver)} drives)"
        return f"{self.job.viewers}{driver}"

    @property
    def _shown_state(self) -> str:
        if self.lost is not None:
            return f"{self.state} ({self.lost})"
        if self.exit_code is not None:
            why = short_end(self.end)
            shown = f"{self.state} {self.exit_code}{'' if why is None else f' ({why})'}"
        elif self.state == "running" and self.job is not None and self.job.attached:
            shown = "running (attached)"
        else:
            shown = self.state
        denied = 0 if self.job is None or self.job.denied is UNSET else self.job.denied
        return f"{shown}, {denied} refused" if denied else shown

    @property
    def _age(self) -> float:
        if self.job is not None and self.job.ended_at is not None:
            return (self.job.ended_at - self.job.started_at) / 1000
        return time.time() - self.session.started_at


def ps_command(words: list[str]) -> int:
    """List the detached processes that *words* ask for."""
    parser = _parser()
    values = parser.parse_words(words)
    if values.server is not None and not server_access.is_server(values.server):
        expected = server_access.expected_server()
        parser.error(f"invalid value '{values.server}' for '[SERVER]': expected {expected}")
    if values.all and values.server is None:
        parser.error("the argument '--all' needs a SERVER")

    async def ps() -> int:
        access = access_of(parser, values)
        store = SessionStore()
        if values.forget is not None:
            store.remove(store.find(values.forget).id)
            return exit_codes.OK
        if values.quiet and values.server is None:
            _print_ids(store.all())
            return exit_codes.OK
        return await _list(store, values, access)

    return run_to_exit_status(ps, log_level=values.log_level, tell=failure_teller(values.output))


def _parser() -> Parser:
    parser = saved_parser(
        "ps",
        usage="[OPTIONS] [SERVER]",
        description=_DESCRIPTION,
        status="0    listed; the states do not matter",
        failed="the records cannot be read safely, or SERVER cannot be asked",
        examples=_EXAMPLES,
        words_help=_STATES_HELP,
    )
    parser.add_argument(
        "server", metavar="SERVER", nargs="?", help="ask this server, and list all jobs there"
    )
    parser.add_argument(
        "--all",
        action=Flag,
        help="with SERVER: list the jobs of all principals, which only an admin may do",
    )
    parser.add_argument(
        "--forget",
        metavar="<ID>",
        help="remove the record of this process and ask no server; the process is left alone",
    )
    parser.add_argument(
        "--prune",
        action=Flag,
        help="also remove the records of processes that have expired or are unknown here",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action=Flag,
        help="print only the ids; without SERVER, no server is asked",
    )
    add_output(parser)
    return parser


async def _list(store: SessionStore, values: argparse.Namespace, access: ServerAccess) -> int:
    records = [each for each in store.all() if values.server in (None, each.server)]
    status = exit_codes.OK
    listed: list[DetachedProcess] = []
    if values.server is not None:
        try:
            listed, records = await _ask_server(
                store, values.server, records, access, all_principals=values.all
            )
        except MethodNotFound:
            # This server has no durable jobs.
            pass
        except ExecServerError as exc:
            print_error(str(exc))
            status = exit_codes.FAILED
    if values.quiet:
        _print_ids([*(each.session for each in listed), *records])
        return status
    slots = asyncio.Semaphore(_AT_ONCE)
    listed += await asyncio.gather(*(_look(each, access, slots) for each in records))
    listed.sort(key=lambda each: each.session.started_at)
    if values.prune:
        for each in listed:
            if each.state in ("expired", "unknown here"):
                store.remove(each.session.id)
    if values.output == "json":
        print_json_entries([each.facts for each in listed])
    elif listed:
        _print(listed, shows_owner=values.all)
    return status


def _print(listed: list[DetachedProcess], *, shows_owner: bool) -> None:
    headings = ["ID", "SERVER", "STATE", "AGE", "COMMAND"]
    rows = [each.row for each in listed]
    # Columns that would be empty are left out.
    for heading, place, texts in (
        ("VIEWERS", 4, [each.viewers for each in listed]),
        ("NAME", 1, [printable(each.name or "") for each in listed]),
    ):
        if any(texts):
            headings.insert(place, heading)
            for row, text in zip(rows, texts, strict=True):
                row.insert(place, text or "-")
    if shows_owner:
        headings.insert(1, "OWNER")
        for row, each in zip(rows, listed, strict=True):
            row.insert(1, (each.job and each.job.owner) or "-")
    print_table(headings, rows, width=terminal_width())


def _print_ids(sessions: list[SavedSession]) -> None:
    for each in sessions:
        print(each.id)


# One server, which lists its durable jobs.


async def _ask_server(
    store: SessionStore,
    server: str,
    records: list[SavedSession],
    access: ServerAccess,
    *,
    all_principals: bool,
) -> tuple[list[DetachedProcess], list[SavedSession]]:
    """The durable jobs of *server*, and the *records* of this machine that are not among them."""
    jobs = await ask_jobs(server, access, all_principals=all_principals)
    listed = []
    for job, short_id in zip(jobs, job_ids(jobs), strict=True):
        record = _record_of(job, records)
        session = record or msgspec.structs.replace(
            as_session(job, store, server=server, access=access), id=short_id
        )
        listed.append(_listed(job, session))
    known = {each.session.id for each in listed}
    return listed, [each for each in records if each.id not in known]


def _record_of(job: JobInfo, records: list[SavedSession]) -> SavedSession | None:
    for each in records:
        if each.process_id == job.process_id and each.is_in(job.session_id):
            return each
    return None


def _listed(job: JobInfo, session: SavedSession) -> DetachedProcess:
    # While others hold the output of an exited process open, it can still write.
    state = "exited" if job.state == "closed" else job.state
    code = None if job.exit_code is None else job.exit_code & 0xFF
    return DetachedProcess(
        session=session,
        state=state,
        exit_code=code,
        lost=job.lost,
        end=job.end or None,
        usage=job.usage or None,
        job=job,
    )


# One record of this machine.


async def _look(
    session: SavedSession, access: ServerAccess, slots: asyncio.Semaphore
) -> DetachedProcess:
    async with slots:
        if session.durable:
            # Asking for a job does not take its session from the program that follows it.
            try:
                found = _record_job(await detach.jobs_of(session, access), session)
            except ExecServerError:
                found = None
            if found is not None:
                return _listed(found, session)
        return await _resume_and_look(session, access)


def _record_job(jobs: list[JobInfo], session: SavedSession) -> JobInfo | None:
    return next((job for job in jobs if _record_of(job, [session]) is not None), None)


async def _resume_and_look(session: SavedSession, access: ServerAccess) -> DetachedProcess:
    try:
        async with detach.open_saved(session, access, is_patient=False) as client:
            answer = await client.read(session.process_id, max_bytes=1)
    except detach.SessionUnavailable as exc:
        is_told = exc.state not in ("attached", "expired")
        problem = str(exc) if is_told else None
        return DetachedProcess(session=session, state=exc.state, problem=problem)
    except InvalidRequest:
        return DetachedProcess(session=session, state="expired")
    except ExecServerError as exc:
        return DetachedProcess(session=session, state="unknown", problem=str(exc))
    if answer.why_lost is not None:
        return DetachedProcess(
            session=session, state="lost", lost=answer.why_lost, end=answer.end or None
        )
    if not answer.exited:
        return DetachedProcess(session=session, state="running")
    code = None if answer.exit_code is None else answer.exit_code & 0xFF
    return DetachedProcess(
        session=session,
        state="exited",
        exit_code=code,
        end=answer.end or None,
        usage=answer.usage or None,
    )
