"""`exec-server sync`: make one directory like another one."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from exec_server.cli import exit_codes
from exec_server.cli.files.copy_reports import (
    planned_steps,
    result_facts,
    shown_path,
    summary,
    tell_result,
    told_problems,
)
from exec_server.cli.files.file_command import (
    add_habits,
    complain,
    file_parser,
    name_pattern,
    run_file_command,
    say,
)
from exec_server.cli.files.progress_bar import progress_line
from exec_server.cli.files.targets import Servers, Target, not_remote, parse_target
from exec_server.cli.options import add_output
from exec_server.cli.parser import Append, Flag, Parser
from exec_server.cli.tables import print_json, print_json_failure
from exec_server.client.files.transfer.download import Download
from exec_server.client.files.transfer.result import TransferResult
from exec_server.client.files.transfer.transfer import Transfer, persist
from exec_server.client.files.transfer.transfer_options import TransferOptions
from exec_server.client.files.transfer.upload import Upload
from exec_server.errors import TransferFailed

_EXAMPLES = """\
  Make a directory on a server like one here; only what has changed is sent:
      exec-server sync src ws://127.0.0.1:41181:/srv/app/src

  Remove what is not here, too; look first:
      exec-server sync --delete --dry-run src ws://127.0.0.1:41181:/srv/app/src
      exec-server sync --delete src ws://127.0.0.1:41181:/srv/app/src

  Back, without what a build makes:
      exec-server sync -x target/ -x '*.o' ws://127.0.0.1:41181:/srv/app/src src
"""
_DESCRIPTION = """\
Make the directory DST like the directory SRC, as `rsync -a SRC/ DST/` does. Files with the same
size and time are left alone; of large files that have changed only the changed parts are sent.
Patterns are as in .gitignore, and the first one that matches a name decides, as in rsync.
"""


class _Exclude(Append):
    """A pattern to leave out; both kinds are kept in one list, in their order."""


class _Include(Append):
    """A pattern that takes names back."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        super().__call__(parser, namespace, f"!{values}", option_string)


def sync_command(words: list[str]) -> int:
    parser = file_parser(
        "sync", usage="[OPTIONS] <SRC> <DST>", description=_DESCRIPTION, examples=_EXAMPLES
    )
    parser.add_argument("source", metavar="<SRC>", help="the directory to read")
    parser.add_argument("destination", metavar="<DST>", help="the directory to change")
    _add_options(parser)
    add_output(parser)

    async def sync(values: argparse.Namespace, servers: Servers) -> int:
        source, destination = _targets(parser, values)
        source, destination = await servers.expanded(source), await servers.expanded(destination)
        return await _sync(values, servers, source, destination)

    return run_file_command(parser, words, sync)


def _add_options(parser: Parser) -> None:
    add = parser.add_argument
    add("--delete", action=Flag, help="remove what is not in SRC")
    add("-n", "--dry-run", action=Flag, help="only print what would be done")
    add(
        "-x",
        "--exclude",
        metavar="<PATTERN>",
        dest="patterns",
        action=_Exclude,
        type=name_pattern,
        help="leave out, as in .gitignore; such names are not removed either",
    )
    add(
        "--include",
        metavar="<PATTERN>",
        dest="patterns",
        action=_Include,
        type=name_pattern,
        help="do not leave out, although a later --exclude matches",
    )
    add(
        "--exclude-from",
        metavar="<FILE>",
        action=Append,
        help="read patterns from a file such as .gitignore",
    )
    add("-c", "--checksum", action=Flag, help="compare contents where size and time are the same")
    add("-W", "--whole-file", action=Flag, help="send changed files whole")
    add("-q", "--quiet", action=Flag, help="show no progress and no summary")
    always = "trees are always copied, with modes, times and links"
    shown = "a terminal shows progress and a summary without it"
    add("-z", "--compress", action=Flag, help="accepted: it changes nothing")
    add_habits(parser, archive=always, recursive=always, verbose=shown)


def _targets(parser: Parser, values: argparse.Namespace) -> tuple[Target, Target]:
    source, destination = parse_target(values.source), parse_target(values.destination)
    if not source.is_remote and not destination.is_remote:
        parser.error(f"one side must be on a server: {not_remote(values.destination)}")
    if values.delete and not destination.path:
        parser.error(f"--delete needs the directory that is meant: `{values.destination}.` is one")
    return source, destination


def _patterns(values: argparse.Namespace) -> tuple[str, ...]:
    """All patterns, of which the last one that matches decides."""
    lines: list[str] = []
    for path in values.exclude_from:
        # Some editors of Windows begin a file with a mark, which is no part of the first pattern.
        with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
            lines += file.read().splitlines()
    return (*lines, *reversed(values.patterns))


async def _sync(
    values: argparse.Namespace, servers: Servers, source: Target, destination: Target
) -> int:
    options = TransferOptions(
        exclude=_patterns(values),
        whole_files=values.whole_file,
        delete=values.delete,
        checksum=values.checksum,
    )
    is_json = values.output == "json"
    line = None if values.quiet or is_json else progress_line()
    on_progress = line.update if line else None
    there = destination if destination.is_remote else source
    files, path = await servers.files(there), there.path or "."
    if not destination.is_remote:
        prepare: Any = partial(Download.prepare, files, path, destination.path)
    elif source.is_remote:
        origin = (await servers.files(source), source.path or ".")
        prepare = partial(Upload.prepare_between, *origin, files, path)
    else:
        prepare = partial(Upload.prepare, files, source.path, path)
    prepare = partial(prepare, on_progress=on_progress, options=options)
    if values.dry_run:
        return _show(await prepare(), is_json=is_json)
    started = time.monotonic()
    try:
        result = await persist(prepare, verify="size")
    except TransferFailed as exc:
        return _tell_failure(exc.result, source, is_json=is_json)
    finally:
        if line is not None:
            line.clear()
    if is_json:
        print_json(result_facts(result))
    else:
        tell_result(result)
        if line is not None:
            print(summary(result, time.monotonic() - started), file=sys.stderr)
    return exit_codes.OK


def _show(transfer: Transfer, *, is_json: bool) -> int:
    """Print what would be done."""
    plan = transfer.plan
    steps = planned_steps(plan)
    if is_json:
        print_json([step.facts for step in steps])
    else:
        for step in steps:
            say(f"{step.action} {step.path}")
    for path, text in plan.obstacles:
        complain(f"{shown_path(path)}: {text}")
    return exit_codes.FAILED if plan.obstacles else exit_codes.OK


def _tell_failure(result: TransferResult, source: Target, *, is_json: bool) -> int:
    tell_result(result)
    told_problems(result, source)
    if is_json:
        print_json_failure(exit_codes.FAILED, result=result_facts(result))
    return exit_codes.FAILED
