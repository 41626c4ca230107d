"""`exec-server watch`: print what changes in a directory on a server."""

from __future__ import annotations

import argparse
import contextlib
import sys

from exec_server.cli import exit_codes
from exec_server.cli.files.file_command import (
    name_pattern,
    reason,
    remote_targets,
    run_file_command,
    say,
    targets_parser,
)
from exec_server.cli.files.targets import Servers
from exec_server.cli.options import add_output
from exec_server.cli.output_format import printable_json
from exec_server.cli.parser import Append, Flag, count
from exec_server.client.files.change_reports import Changes
from exec_server.errors import ConfigurationError, RpcError

_EXAMPLES = """\
  Print what changes in a tree, until Ctrl-C:
      exec-server watch ws://127.0.0.1:41181:/srv/app

  Without what a build makes, as one JSON object in each line:
      exec-server watch -o json -x target/ -x '*.o' ws://127.0.0.1:41181:/srv/app

  Wait for one change, then do something:
      exec-server watch -n 1 ws://127.0.0.1:41181:/srv/app && make
"""
_DESCRIPTION = """\
Print what is created, modified and removed in a directory on a server, and below it. A line with
`rescan` says that notices were lost: anything below that directory may have changed. After a lost
connection it goes on with what has changed meanwhile.
"""


def watch_command(words: list[str]) -> int:
    parser = targets_parser(
        "watch",
        what="the directory or file to watch",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        takes_many=False,
    )
    add = parser.add_argument
    add(
        "-x",
        "--exclude",
        metavar="<PATTERN>",
        action=Append,
        type=name_pattern,
        help="leave out, as in .gitignore",
    )
    add("--no-recursive", action=Flag, help="only the directory itself, not what is below")
    add("-n", "--count", metavar="<COUNT>", type=count, help="end after so many changes")
    add_output(parser)

    async def watch(values: argparse.Namespace, servers: Servers) -> int:
        (target,) = remote_targets(parser, values)
        files, path = await servers.files(target), await servers.path(target)
        watching = files.watch(path, recursive=not values.no_recursive, ignore=values.exclude or ())
        left = values.count
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(watching)
            except RpcError as exc:
                raise ConfigurationError(f"{target}: {reason(exc)}") from exc
            print(f"watching {target}", file=sys.stderr, flush=True)
            async for changes in watching:
                found = _lines(changes, is_json=values.output == "json")
                for line in found if left is None else found[:left]:
                    say(line)
                sys.stdout.flush()
                if left is not None:
                    left -= min(left, len(found))
                    if left == 0:
                        break
        return exit_codes.OK

    return run_file_command(parser, words, watch)


def _lines(changes: Changes, *, is_json: bool) -> list[str]:
    rows: list[tuple[str, str, str]] = [
        (each.kind, each.path, each.type) for each in changes.changes
    ]
    rows += [("rescan", path, "directory") for path in changes.rescan]
    if is_json:
        names = ("kind", "path", "type")
        return [
            printable_json({**dict(zip(names, row, strict=True)), "seq": changes.seq})
            for row in rows
        ]
    return [f"{kind:8} {path}" for kind, path, _ in rows]
