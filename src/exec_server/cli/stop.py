"""`exec-server stop`: stop a server, and its durable jobs if that is asked for."""

from __future__ import annotations

import asyncio

from exec_server.cli import exit_codes, server_access
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.options import (
    TOKEN_HELP,
    Token,
    add_connection_options,
    add_output,
    server_token,
)
from exec_server.cli.parser import Flag, Parser
from exec_server.cli.tables import failure_teller, print_json
from exec_server.client.client import ExecServerClient
from exec_server.client.session_link import ConnectionState
from exec_server.errors import ConfigurationError, ConnectionClosed, InvalidParams, MethodNotFound
from exec_server.protocol.jobs import JobInfo

# How long a server may take: its processes have some seconds to end by themselves.
_SECONDS_TO_STOP = 30.0

_DESCRIPTION = """\
Stop a server as SIGTERM does: its processes get SIGTERM, and SIGKILL some seconds later. Durable
jobs run on, and the next server with the same state directory continues with them. With --jobs they
end as well. A service manager may start the server again.
"""

_EPILOG = f"""\
{TOKEN_HELP}
exit status:
  0    stopped
  1    the server cannot be reached, cannot be stopped in this way, or does not stop
  2    the command line is wrong

examples:
  Stop a server; its durable jobs run on:
      exec-server stop build

  Stop it, and end its durable jobs:
      exec-server stop --jobs build
"""


def stop_command(words: list[str]) -> int:
    """Stop the server that *words* name."""
    parser = Parser(
        "exec-server stop",
        usage="[OPTIONS] <SERVER>",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("server", metavar="<SERVER>", help="the server to stop")
    parser.add_argument("--jobs", action=Flag, help="end its durable jobs, too")
    add_output(parser)
    add_connection_options(parser)
    values = parser.parse_words(words)
    if not server_access.is_server(values.server):
        expected = server_access.expected_server()
        parser.error(f"invalid value '{values.server}' for '<SERVER>': expected {expected}")

    async def stop() -> int:
        token = server_token(parser, values)
        if not server_access.can_be_resumed(values.server):
            place = server_access.shown(values.server)
            raise ConfigurationError(f"`{place}` ends with this command: there is nothing to stop")
        running = await _stop(values.server, token, values.pin, end_jobs=values.jobs)
        if values.output == "json":
            facts = {"jobsEnded" if values.jobs else "jobsRunning": running}
            print_json({"stopped": True, **facts})
        elif running:
            jobs = "1 durable job" if running == 1 else f"{running} durable jobs"
            fate = "were ended" if running != 1 else "was ended"
            runs = "run on" if running != 1 else "runs on"
            print(f"stopped; {jobs} {fate if values.jobs else runs}")
        else:
            print("stopped")
        return exit_codes.OK

    return run_to_exit_status(stop, log_level=values.log_level, tell=failure_teller(values.output))


async def _stop(server: str, token: Token | None, pin: str | None, *, end_jobs: bool) -> int:
    """Stop *server*, and return the number of its durable jobs that were running."""
    lost = asyncio.Event()
    jobs: list[JobInfo] | None = None

    def on_state(state: ConnectionState) -> None:
        if state != "connected":
            lost.set()

    opening = server_access.open_server(
        server, token=token, pin=pin, client_name="exec-server stop", on_state=on_state
    )
    try:
        async with opening as client:
            jobs = await _jobs(client)
            await client.stop_server(end_jobs=end_jobs)
            async with asyncio.timeout(_SECONDS_TO_STOP):
                await lost.wait()
    except MethodNotFound as exc:
        raise ConfigurationError(
            f"{server_access.shown(server)} cannot be stopped by a client: {exc.message}"
        ) from exc
    except ConnectionClosed as exc:
        # Before the jobs were listed, nothing was asked to stop.
        if jobs is None or not exc.may_have_run or not lost.is_set():
            raise
    except TimeoutError:
        raise ConfigurationError(
            f"{server_access.shown(server)} has not stopped within {_SECONDS_TO_STOP:g} seconds"
        ) from None
    return sum(job.state == "running" for job in jobs or ())


async def _jobs(client: ExecServerClient) -> list[JobInfo]:
    try:
        return await client.jobs(all_principals=True)
    except MethodNotFound:
        return []
    except InvalidParams:
        # An older server, which knows no principals.
        return await client.jobs()
