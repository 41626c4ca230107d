"""`exec-server cat`, `rm` and `mkdir`: print, remove and make files on a server."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial

from exec_server.cli.files.file_command import (
    each_target,
    remote_targets,
    run_file_command,
    run_for_targets,
    say,
    targets_parser,
)
from exec_server.cli.files.targets import Servers, Target
from exec_server.cli.parser import Flag
from exec_server.cli.process.own_terminal.terminal_io import LocalOutput
from exec_server.client.files.transfer.remote_listing import describe, list_tree
from exec_server.client.files.transfer.tree import below
from exec_server.errors import InvalidRequest, NotFound


def cat_command(words: list[str]) -> int:
    parser = targets_parser(
        "cat",
        what="the files to print",
        description="Write files on a server to standard output, one after the other.",
        examples="""\
  Print a file:
      exec-server cat ws://127.0.0.1:41181:/etc/os-release

  Fetch a compressed log and unpack it here:
      exec-server cat ws://127.0.0.1:41181:/var/log/app.1.gz | gunzip
""",
    )

    async def cat(values: argparse.Namespace, servers: Servers) -> int:
        show = partial(_show, servers, LocalOutput())
        return await each_target(remote_targets(parser, values), show)

    return run_file_command(parser, words, cat)


async def _show(servers: Servers, output: LocalOutput, target: Target) -> None:
    files, path = await servers.files(target), await servers.path(target)
    async with files.read_stream(path) as stream:
        async for data in stream:
            await output.write(sys.stdout.fileno(), data)


def rm_command(words: list[str]) -> int:
    parser = targets_parser(
        "rm",
        what="the files to remove",
        description="Remove files on a server. A symbolic link is removed, and not its target.",
        examples="""\
  List the files that would be removed, then remove them:
      exec-server rm -r --dry-run ws://127.0.0.1:41181:/tmp/build
      exec-server rm -r ws://127.0.0.1:41181:/tmp/build
""",
    )
    parser.add_argument(
        "-r", "--recursive", action=Flag, help="remove directories, too, with everything in them"
    )
    parser.add_argument("-f", "--force", action=Flag, help="a missing file is no error")
    parser.add_argument("--dry-run", action=Flag, help="only print the files that would be removed")
    return run_for_targets(parser, words, _rm)


async def _rm(values: argparse.Namespace, servers: Servers, target: Target) -> None:
    files, path = await servers.files(target), await servers.path(target)
    if path == b"/":
        raise InvalidRequest("the root directory is not removed")
    try:
        is_directory = (await describe(files, path)).kind == "directory"
    except NotFound:
        if values.force and values.dry_run:
            return
        # It may also be a link without a target: not every server distinguishes the two.
        is_directory = False
    if is_directory and not values.recursive:
        raise InvalidRequest("is a directory; use -r to remove it with everything in it")
    if not values.dry_run:
        await files.remove(path, recursive=is_directory, force=values.force)
        return
    say(os.fsdecode(path))
    if is_directory:
        for inner in (await list_tree(files, path)).entries[1:]:
            say(os.fsdecode(below(path, inner.path)))


def mkdir_command(words: list[str]) -> int:
    parser = targets_parser(
        "mkdir",
        what="the directories to make",
        description="Make directories on a server.",
        examples="""\
  A directory and its parents, as far as they are missing:
      exec-server mkdir -p ws://127.0.0.1:41181:/srv/app/logs
""",
    )
    parser.add_argument(
        "-p", "--parents", action=Flag, help="make parents, too; an existing directory is no error"
    )
    return run_for_targets(parser, words, _mkdir)


async def _mkdir(values: argparse.Namespace, servers: Servers, target: Target) -> None:
    files, path = await servers.files(target), await servers.path(target)
    await files.create_directory(path, recursive=values.parents)
