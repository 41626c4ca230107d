"""`exec-server jobs prune`: let a server forget durable jobs that are over."""

from __future__ import annotations

import argparse

from exec_server.cli import exit_codes, server_access
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.options import add_output, duration
from exec_server.cli.parser import Flag
from exec_server.cli.process.detached.detach import ServerAccess
from exec_server.cli.process.detached.saved_session_options import access_of, saved_parser
from exec_server.cli.process.detached.saved_sessions import SessionStore
from exec_server.cli.process.detached.server_jobs import find_job
from exec_server.cli.tables import failure_teller, print_json
from exec_server.client.client import ExecServerClient
from exec_server.errors import ConfigurationError
from exec_server.protocol.jobs import JobInfo

_DESCRIPTION = """\
Let a server forget durable jobs that have ended or are lost, with their output. Jobs that run are
left alone. `exec-server ps SERVER` lists all of them. A server also forgets them by itself, after
the time and beyond the size that its options --state-keep and --state-total-bytes say.
"""

_EXAMPLES = """\
  All that are over:
      exec-server jobs prune build

  Those that ended more than a week ago:
      exec-server jobs prune --older-than 7d build

  Those of all principals, which needs the scope admin:
      exec-server jobs prune --all build

  One of them:
      exec-server jobs prune build 3f2a9c01
"""


def jobs_command(words: list[str]) -> int:
    """Prune the jobs that *words* ask for."""
    parser = saved_parser(
        "jobs",
        usage="prune [OPTIONS] <SERVER> [ID]...",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        status="0    forgotten; their number is printed",
        failed="the server cannot be reached or has no such job, or one that is named still runs",
    )
    parser.add_argument("action", metavar="prune", choices=("prune",), help="what to do")
    parser.add_argument("server", metavar="<SERVER>", help="the server to ask")
    parser.add_argument(
        "ids", metavar="ID", nargs="*", default=[], help="only these jobs [default: all]"
    )
    parser.add_argument(
        "--older-than",
        metavar="<DURATION>",
        type=duration,
        help="only jobs that ended longer ago: seconds, or a number with s, m, h or d",
    )
    parser.add_argument(
        "--all", action=Flag, help="the jobs of all principals; only an admin may do that"
    )
    add_output(parser)
    values = parser.parse_words(words)
    if not server_access.is_server(values.server):
        expected = server_access.expected_server()
        parser.error(f"invalid value '{values.server}' for '<SERVER>': expected {expected}")

    async def prune() -> int:
        access = access_of(parser, values)
        removed = await _prune(values, access)
        if values.output == "json":
            print_json({"removed": removed})
        else:
            print(f"{removed} jobs forgotten" if removed != 1 else "1 job forgotten")
        return exit_codes.OK

    return run_to_exit_status(prune, log_level=values.log_level, tell=failure_teller(values.output))


async def _prune(values: argparse.Namespace, access: ServerAccess) -> int:
    server, older_than, is_all = values.server, values.older_than, values.all
    async with access.open(server) as client:
        if not await client.offers("processDurable"):
            raise ConfigurationError(
                f"{server_access.shown(server)} keeps no durable jobs: it has no state directory"
            )
        before = await client.jobs(all_principals=is_all)
        if values.ids:
            chosen = [_finished(before, text, server) for text in values.ids]
            removed = 0
            for job in chosen:
                removed += await _prune_one(client, job, older_than, all_principals=is_all)
        else:
            removed = await client.prune_jobs(older_than=older_than, all_principals=is_all)
        after = await client.jobs(all_principals=is_all)
    _forget_records(server, before, after)
    return removed


def _finished(jobs: list[JobInfo], text: str, server: str) -> JobInfo:
    job = find_job(jobs, text, server=server)
    place = server_access.shown(server)
    if job is None:
        raise ConfigurationError(f"there is no job `{text}` on {place}")
    if job.state in ("running", "exited"):
        raise ConfigurationError(
            f"`{text}` still runs; end it first: exec-server kill {place} {text}"
        )
    return job


async def _prune_one(
    client: ExecServerClient, job: JobInfo, older_than: float | None, *, all_principals: bool
) -> int:
    return await client.prune_jobs(
        older_than=older_than,
        session_id=job.session_id,
        process_id=job.process_id,
        all_principals=all_principals,
    )


def _forget_records(server: str, before: list[JobInfo], after: list[JobInfo]) -> None:
    """Remove the records of this machine that lead to a job which is forgotten now."""
    kept = {(job.session_id, job.process_id) for job in after}
    gone = [job for job in before if (job.session_id, job.process_id) not in kept]
    store = SessionStore()
    for record in store.all():
        if record.server == server and any(
            record.process_id == job.process_id and record.is_in(job.session_id) for job in gone
        ):
            store.remove(record.id)
