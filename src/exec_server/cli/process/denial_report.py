"""What a command of the prompt says at its end about denials: in words, or in JSON.

What only a command in a sandbox needs is loaded for such a command.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from exec_server.cli.log_setup import print_warning
from exec_server.cli.process.asking import Questions
from exec_server.cli.process.own_terminal.connection_notices import say
from exec_server.cli.process.run_options import RunOptions
from exec_server.cli.server_access import shown
from exec_server.client.client import ExecServerClient
from exec_server.client.process.remote_process import RemoteProcess
from exec_server.client.process.watched_process import WatchedProcess
from exec_server.errors import ConfigurationError, ExecServerError
from exec_server.printable import printable

if TYPE_CHECKING:
    from exec_server.cli.sandbox.denial_advice import Advice


async def is_recorded(client: ExecServerClient, options: RunOptions) -> bool:
    """True if the server should record what the sandbox refuses to the command of *options*."""
    if options.ask or options.learn:
        return True
    if options.sandbox is None or options.output == "json":
        return False
    return await client.offers("processDenials")


async def remembered_grants(client: ExecServerClient, options: RunOptions) -> list[str]:
    """What the user has allowed for good to sandboxed commands on the server of *options*."""
    if options.sandbox is None or options.learn:
        return []
    from exec_server.sandbox.grant_file import grant_file, load_grants

    try:
        found = load_grants(grant_file()).get(shown(options.server), [])
    except ConfigurationError as exc:
        # The sandbox is narrower then.
        print_warning(str(exc))
        return []
    return found if found and await client.offers("processDenials") else []


async def tell_denials(
    process: RemoteProcess, options: RunOptions, questions: Questions, *, has_failed: bool
) -> bool:
    """Say on stderr which options would have allowed what was refused, or what was learned.

    True if something was said. If the command has not failed, it could do without what was refused,
    and only `--ask` wants to know of it.
    """
    if process.denials_unavailable is not None:
        # It was said at the start, if that was asked for.
        return False
    if options.learn:
        learned = await _learned(process, options, questions)
        say(f"the narrowest sandbox for this: {printable(learned.command_line, limit=4096)}")
        for each in learned.impossible:
            say(f"no sandbox allows: {each}")
        return True
    if options.sandbox is None or not (options.ask or has_failed):
        return False
    denials = await questions.refused(process)
    if not denials:
        return False
    from exec_server.cli.sandbox.denial_advice import advice, lines, one_line

    advised = advice(denials, options.sandbox)
    for line in lines(denials, advised) if options.ask else (one_line(denials, advised),):
        say(line)
    return True


async def denial_facts(
    process: RemoteProcess, options: RunOptions, questions: Questions
) -> dict[str, Any]:
    """The same for a program."""
    if options.learn:
        learned = await _learned(process, options, questions)
        sandbox = learned.sandbox
        return {
            "learned": {
                "options": learned.options,
                "sandbox": learned.options[1],
                "writable": list(sandbox.folders),
                "network": sandbox.network,
                "protectsMetadata": sandbox.protects_metadata,
                "impossible": list(learned.impossible),
            }
        }
    if not options.ask or options.sandbox is None:
        return {}
    denials = await questions.refused(process)
    facts: dict[str, Any] = {"denials": msgspec.to_builtins(denials)}
    if denials:
        from exec_server.cli.sandbox.denial_advice import advice

        facts["options"] = advice(denials, options.sandbox).options
    return facts


async def _learned(process: RemoteProcess, options: RunOptions, questions: Questions) -> Advice:
    from exec_server.cli.sandbox.denial_advice import advice

    assert options.sandbox is not None
    return advice(await questions.refused(process), options.sandbox, own=_own_folder(options))


def _own_folder(options: RunOptions) -> str:
    """The directory of the command; what is learned is learned on this machine."""
    return os.path.realpath(options.cwd or os.getcwd())


async def tell_denied(process: RemoteProcess | WatchedProcess) -> bool:
    """Say what was refused to a process that has failed, and that another program may have started.

    Which options it was started with is not known here, and so none is advised. True if something
    was said.
    """
    if not process.returncode:
        return False
    try:
        found = await process.denials()
    except ExecServerError:
        # Nothing is recorded.
        return False
    if not found.denials:
        return False
    from exec_server.cli.sandbox.denial_advice import refusals

    for line in refusals(found.denials):
        say(line)
    return True
