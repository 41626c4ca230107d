"""`exec-server ls`, `tree`, `find` and `stat`: list and describe files on a server."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from exec_server.cli.files.file_command import (
    complain,
    each_target,
    remote_targets,
    run_file_command,
    say,
    say_json,
    targets_parser,
)
from exec_server.cli.files.targets import Servers, Target
from exec_server.cli.options import add_output
from exec_server.cli.parser import Append, Flag, Parser, count
from exec_server.client.files.transfer.remote_listing import Listing, describe, list_tree
from exec_server.client.files.transfer.tree import TreeEntry, below, parent
from exec_server.errors import InvalidRequest

# A deeper tree is wider than every terminal, and no program reads JSON that is nested so deeply.
_MOST_LEVELS = 200
_TYPES = {"f": "file", "d": "directory", "l": "symlink", "o": "other"}
_FORMATS = {"file": stat.S_IFREG, "directory": stat.S_IFDIR, "symlink": stat.S_IFLNK}


# Entries.


class _ListingResult:
    """The entries for the JSON output, and whether some could not be read."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.has_errors = False


_Show = Callable[[_ListingResult, argparse.Namespace, Servers, Target], Awaitable[None]]


def _run(parser: Parser, words: list[str], show: _Show, *, tells_list: bool = True) -> int:
    """Call *show* for each target, and print the entries as JSON if that is the format."""
    add_output(parser)

    async def act(values: argparse.Namespace, servers: Servers) -> int:
        found = _ListingResult()
        targets = remote_targets(parser, values)
        status = await each_target(targets, partial(show, found, values, servers))
        if values.output == "json":
            say_json(found.entries, is_list=tells_list)
        return status or int(found.has_errors)

    return run_file_command(parser, words, act)


async def _listed(
    found: _ListingResult, servers: Servers, target: Target, *, max_depth: int | None
) -> tuple[bytes, Listing]:
    """A target's path without links, and its entries; errors are printed."""
    files, path = await servers.files(target), await servers.path(target)
    root = os.fsencode(await files.canonicalize(path))
    listing = await list_tree(files, root, max_depth=max_depth)
    for inner, text in listing.errors:
        complain(f"{target.below(os.fsdecode(inner))}: {text}")
        found.has_errors = True
    return root, listing


def _as_json(entry: TreeEntry, path: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {**_text("path", path), "type": entry.kind, "size": entry.size}
    if entry.mode is not None:
        found["mode"] = f"{entry.mode:04o}"
    found["modifiedAtMs"] = entry.mtime_ms
    if entry.kind == "symlink" and entry.target:
        found |= _text("target", entry.target)
    return found


def _text(name: str, value: bytes) -> dict[str, Any]:
    """A member of a JSON object; bytes that are not UTF-8 are written in base64."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": value}


def _is_hidden(path: bytes) -> bool:
    return any(name.startswith(b".") for name in path.split(b"/"))


# ls.


def ls_command(words: list[str]) -> int:
    parser = targets_parser(
        "ls",
        what="the directories or files to list",
        description="List directories on a server.",
        examples="""\
  List a directory:
      exec-server ls ws://127.0.0.1:41181:/etc

  List the server's own directory with sizes and times:
      exec-server ls -l ws://127.0.0.1:41181

  As JSON, for a program:
      exec-server ls -o json ws://127.0.0.1:41181:/etc | jq '.[].path'
""",
    )
    parser.add_argument("-a", "--all", action=Flag, help="list names that begin with a dot, too")
    parser.add_argument("-l", "--long", action=Flag, help="show mode, size, time and link target")
    parser.add_argument("-1", "--single-column", action=Flag, help="accepted: each name has a line")
    return _run(parser, words, _ls)


async def _ls(
    found: _ListingResult, values: argparse.Namespace, servers: Servers, target: Target
) -> None:
    root, listing = await _listed(found, servers, target, max_depth=1)
    entries = listing.entries
    if entries[0].kind == "directory":
        entries = sorted(entries[1:], key=lambda entry: entry.path)
    entries = [entry for entry in entries if values.all or not _is_hidden(entry.path)]
    if values.output == "json":
        found.entries.extend(_as_json(entry, below(root, entry.path)) for entry in entries)
        return
    if len(values.targets) > 1:
        say(f"{target}:")
    for entry in entries:
        say(_line(entry, entry.path or os.path.basename(root), is_long=values.long))


def _line(entry: TreeEntry, name: bytes, *, is_long: bool) -> str:
    text = os.fsdecode(name)
    if not is_long:
        return text
    if entry.kind == "symlink" and entry.target:
        text = f"{text} -> {os.fsdecode(entry.target)}"
    return f"{_mode(entry)} {entry.size:>11} {_time(entry)} {text}"


def _mode(entry: TreeEntry) -> str:
    shown = stat.filemode(_FORMATS.get(entry.kind, 0) | (entry.mode or 0))
    return shown if entry.mode is not None else f"{shown[0]}?????????"


def _time(entry: TreeEntry) -> str:
    seconds = entry.mtime_ns // 1_000_000_000
    when = _local_time(seconds)
    return f"@{seconds}" if when is None else time.strftime("%Y-%m-%d %H:%M", when)


def _local_time(seconds: int) -> time.struct_time | None:
    """None if the year is none that this machine knows; a file may have any time."""
    try:
        return time.localtime(seconds)
    except (OverflowError, OSError, ValueError):
        return None


# tree.


def tree_command(words: list[str]) -> int:
    parser = targets_parser(
        "tree",
        what="the directory to begin with",
        takes_many=False,
        description="Draw a directory on a server with everything below it.",
        examples="""\
  Two levels of a directory:
      exec-server tree -L 2 ws://127.0.0.1:41181:/srv/app
""",
    )
    parser.add_argument("-a", "--all", action=Flag, help="list names that begin with a dot, too")
    parser.add_argument(
        "-L",
        "--max-depth",
        metavar="<COUNT>",
        type=count,
        help="the most levels below the directory",
    )
    return _run(parser, words, _tree, tells_list=False)


async def _tree(
    found: _ListingResult, values: argparse.Namespace, servers: Servers, target: Target
) -> None:
    root, listing = await _listed(found, servers, target, max_depth=values.max_depth)
    depth = max(entry.path.count(b"/") for entry in listing.entries)
    if depth >= _MOST_LEVELS:
        raise InvalidRequest(
            f"has more than {_MOST_LEVELS} levels of directories; choose fewer with --max-depth"
        )
    children = _children(listing.entries, includes_hidden=values.all)
    if values.output == "json":
        found.entries.append(_nested(listing.entries[0], root, children))
        return
    say(os.fsdecode(root))
    _draw(children, b"", "")
    say("")
    say(_summary(children))


_Children = dict[bytes, list[TreeEntry]]


def _children(entries: Iterable[TreeEntry], *, includes_hidden: bool) -> _Children:
    children: _Children = {}
    for entry in entries:
        if entry.path and (includes_hidden or not _is_hidden(entry.path)):
            children.setdefault(parent(entry.path), []).append(entry)
    for group in children.values():
        group.sort(key=lambda entry: entry.path)
    return children


def _draw(children: _Children, path: bytes, indent: str) -> None:
    group = children.get(path, [])
    for index, entry in enumerate(group):
        is_last = index == len(group) - 1
        name = os.path.basename(entry.path)
        link = f" -> {os.fsdecode(entry.target)}" if entry.target else ""
        say(f"{indent}{'└── ' if is_last else '├── '}{os.fsdecode(name)}{link}")
        _draw(children, entry.path, indent + ("    " if is_last else "│   "))


def _summary(children: _Children) -> str:
    entries = [entry for group in children.values() for entry in group]
    directories = sum(entry.kind == "directory" for entry in entries)
    return (
        f"{directories} {'directory' if directories == 1 else 'directories'}, "
        f"{len(entries) - directories} {'file' if len(entries) - directories == 1 else 'files'}"
    )


def _nested(entry: TreeEntry, root: bytes, children: _Children) -> dict[str, Any]:
    found = _as_json(entry, below(root, entry.path))
    if entry.kind == "directory":
        found["entries"] = [
            _nested(child, root, children) for child in children.get(entry.path, [])
        ]
    return found


# find.


def find_command(words: list[str]) -> int:
    parser = targets_parser(
        "find",
        what="the directories to search",
        description="Find files on a server by name and type, at any depth.",
        examples="""\
  All Python files below a directory:
      exec-server find --name '*.py' ws://127.0.0.1:41181:/srv/app

  The same, in the words of find(1); -type, -maxdepth and -print0 are known, too:
      exec-server find ws://127.0.0.1:41181:/srv/app -name '*.py'

  All links with their targets:
      exec-server find --type l -o json ws://127.0.0.1:41181:/etc
""",
    )
    parser.add_argument(
        "-n",
        "--name",
        metavar="<PATTERN>",
        action=Append,
        help="only names that match this pattern, with *, ? and [abc]; may be repeated",
    )
    parser.add_argument(
        "-t",
        "--type",
        metavar="<TYPE>",
        action="append",
        choices=tuple(_TYPES),
        help="only files (f), directories (d), links (l) or others (o); may be repeated",
    )
    parser.add_argument(
        "--max-depth", metavar="<COUNT>", type=count, help="the most levels below the directory"
    )
    parser.add_argument("-0", "--null", action=Flag, help="end each path with NUL, not a newline")
    _add_names_of_find(parser)
    return _run(parser, words, _find)


def _add_names_of_find(parser: Parser) -> None:
    """The same options under the names that they have in find(1); the help does not list them."""
    add = partial(parser.add_argument, help=argparse.SUPPRESS)
    add("-name", dest="name", metavar="<PATTERN>", action=Append)
    add("-type", dest="type", metavar="<TYPE>", action="append", choices=tuple(_TYPES))
    add("-maxdepth", dest="max_depth", metavar="<COUNT>", type=count)
    add("-print0", dest="null", action=Flag)
    add("-print", action=Flag)


async def _find(
    found: _ListingResult, values: argparse.Namespace, servers: Servers, target: Target
) -> None:
    root, listing = await _listed(found, servers, target, max_depth=values.max_depth)
    for entry in listing.entries:
        path = below(root, entry.path)
        if not _is_wanted(entry, os.path.basename(path), values):
            continue
        if values.output == "json":
            found.entries.append(_as_json(entry, path))
        elif values.null:
            sys.stdout.buffer.write(path + b"\0")
        else:
            say(os.fsdecode(path))


def _is_wanted(entry: TreeEntry, name: bytes, values: argparse.Namespace) -> bool:
    text = os.fsdecode(name)
    if values.name and not any(fnmatchcase(text, pattern) for pattern in values.name):
        return False
    return not values.type or entry.kind in {_TYPES[letter] for letter in values.type}


# stat.


def stat_command(words: list[str]) -> int:
    parser = targets_parser(
        "stat",
        what="the files to describe",
        description="Describe files on a server. Symbolic links are not followed.",
        examples="""\
  One file:
      exec-server stat ws://127.0.0.1:41181:/etc/hosts
""",
    )
    return _run(parser, words, _stat)


async def _stat(
    found: _ListingResult, values: argparse.Namespace, servers: Servers, target: Target
) -> None:
    files, path = await servers.files(target), await servers.path(target)
    entry = await describe(files, path)
    if values.output == "json":
        found.entries.append(_as_json(entry, path))
    else:
        _describe(entry, path)


def _describe(entry: TreeEntry, path: bytes) -> None:
    say(f"    path: {os.fsdecode(path)}")
    say(f"    type: {entry.kind}")
    if entry.target:
        say(f"  target: {os.fsdecode(entry.target)}")
    say(f"    size: {entry.size}")
    if entry.mode is not None:
        say(f"    mode: {entry.mode:04o} ({_mode(entry)})")
    seconds, fraction = divmod(entry.mtime_ms, 1000)
    when = _local_time(seconds)
    if when is None:
        say(f"modified: @{seconds}")
        return
    say(f"modified: {time.strftime('%Y-%m-%d %H:%M:%S', when)}.{fraction:03} {when.tm_zone}")
