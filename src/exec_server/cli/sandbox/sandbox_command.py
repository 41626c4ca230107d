"""`exec-server sandbox`: run a command on this machine in a sandbox, without a server."""

from __future__ import annotations

import os

from exec_server.cli.exit_codes import NO_CONNECTION, RUN_STATUS_HELP
from exec_server.cli.options import add_output, add_place
from exec_server.cli.parser import Flag, Parser, seconds
from exec_server.cli.process.own_terminal.connection_notices import Notices
from exec_server.cli.process.own_terminal.terminal_bridge import Collected
from exec_server.cli.process.run_options import RunOptions
from exec_server.cli.sandbox.sandbox_options import (
    READ_ONLY,
    SANDBOX_HELP,
    add_sandbox_options,
    confinement,
)

_DESCRIPTION = """\
Run a command on this machine in a sandbox. By default it can read every file that you can read,
write nothing, and use no network; the options allow more. It needs no server and no privileges;
`exec-server doctor` shows whether sandboxes work on this machine. If this program runs on a
terminal, the command gets one, too; pipes are passed through.
"""

_EPILOG = f"""\
{SANDBOX_HELP}
{RUN_STATUS_HELP.replace(NO_CONNECTION, "the command could not be followed to its end")}
examples:
  Read everything, write nothing:
      exec-server sandbox -- ./configure --help

  Build in this directory, without network access:
      exec-server sandbox --sandbox workspace-write -- make

  Write to two directories, with network access:
      exec-server sandbox --sandbox workspace-write=src:build --net on -- npm install

  Ask when something is refused:
      exec-server sandbox --sandbox workspace-write --ask -- make install

  List what was allowed for good with `always`, and take one back:
      exec-server sandbox policy list
      exec-server sandbox policy remove write=/srv/cache

  Find out which sandbox a command needs:
      exec-server sandbox --learn -- make install

  Try it out in a shell:
      exec-server sandbox -- bash
"""


def sandbox_parser() -> Parser:
    parser = Parser(
        "exec-server sandbox",
        usage="[OPTIONS] -- <COMMAND> [ARGS]...",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add_sandbox_options(parser, default=READ_ONLY)
    add_place(
        parser,
        directory="directory to run it in [default: this one]",
        environment="this program's environment",
    )
    add(
        "--learn",
        action=Flag,
        help="do not confine the command, and print the narrowest sandbox that it needs",
    )
    add("-n", "--no-stdin", action=Flag, help="give the command no input")
    add("--timeout", metavar="<SECONDS>", type=seconds, help="kill the command after this time")
    add_output(parser)
    return parser


def parse_sandbox(words: list[str]) -> RunOptions:
    """Read the words after ``sandbox``; wrong ones end the program with status 2."""
    parser = sandbox_parser()
    arguments = parser.parse_options(words, os.environ)
    values = arguments.values
    if not arguments.rest:
        parser.error("the following required arguments were not provided:\n  <COMMAND>")
    if values.learn:
        for other in ("sandbox", "net", "unprotected_metadata", "ask"):
            parser.refuse_together(arguments, "learn", other)
    has_input = not values.no_stdin and not (values.ask and os.isatty(0))
    is_json = values.output == "json"
    return RunOptions(
        server="local",
        argv=arguments.rest,
        cwd=values.cwd,
        env=dict(values.env),
        tty=has_input and not is_json and os.isatty(0) and os.isatty(1),
        stdin=has_input,
        time_limit=values.timeout,
        output=values.output,
        sandbox=confinement(parser, arguments, default=READ_ONLY),
        ask=values.ask,
        learn=values.learn,
    )


def sandbox_command(words: list[str]) -> int:
    """Run as *words* say and return the exit status."""
    if words[:1] == ["policy"]:
        from exec_server.cli.sandbox.policy_command import policy_command

        return policy_command(words[1:])
    options = parse_sandbox(words)

    from exec_server.cli.process.run import run_and_tell

    return run_and_tell(_run, options)


async def _run(options: RunOptions, collected: Collected) -> int:
    from exec_server.cli.process.run import run_on
    from exec_server.local_server import local

    async with local(client_name="exec-server sandbox") as client:
        return await run_on(client, options, Notices(), collected)
