"""`exec-server cp`: copy files and trees to a server, from it, and between servers."""

from __future__ import annotations

import argparse
import contextlib
import os
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from exec_server.cli.files.file_command import (
    complain,
    each_target,
    file_parser,
    reason,
    run_file_command,
    say,
    warn,
)
from exec_server.cli.files.progress_bar import duration, progress_line, size
from exec_server.cli.files.targets import (
    Servers,
    Target,
    is_like_remote,
    not_remote,
    parse_target,
)
from exec_server.cli.files.unfinished_copy import UnfinishedCopy
from exec_server.cli.parser import Flag, Parser
from exec_server.client.files.transfer.download import Download
from exec_server.client.files.transfer.progress import OnProgress
from exec_server.client.files.transfer.result import TransferResult
from exec_server.client.files.transfer.transfer import Transfer, persist
from exec_server.client.files.transfer.upload import Upload
from exec_server.errors import InvalidRequest, NotFound, RpcError, TransferFailed

_EXAMPLES = """\
  Copy a file to a server, and back:
      exec-server cp notes.txt ws://127.0.0.1:41181:/tmp/
      exec-server cp ws://127.0.0.1:41181:/tmp/notes.txt .

  Copy a tree with its modes, times, links and empty directories:
      exec-server cp -r src ws://127.0.0.1:41181:/srv/app

  List the files that would be copied:
      exec-server cp -r --dry-run src ws://127.0.0.1:41181:/srv/app

  Copy through a Unix socket, and compare contents at the end:
      exec-server cp -r --verify hash data unix:///run/exec.sock:/srv/data

  Copy from one server to another:
      exec-server cp -r ws://127.0.0.1:41181:/srv/app unix:///run/exec.sock:/srv/

  Copy over ssh; nothing listens on the far side:
      exec-server cp big.iso 'stdio:ssh build exec-server --listen stdio:/tmp/'
"""

_DESCRIPTION = """\
Copy files to a server, from it, within one server, or from one server to another through this
machine. As with cp, a copy goes into the destination if that is a directory. Files that exist with
the same size and time are not copied again, and large files continue where they stopped: repeat the
command to finish a copy that was interrupted. A directory that the interrupted copy has made counts
as its copy then, and not as a directory to copy into.
"""


def cp_command(words: list[str]) -> int:
    parser = file_parser(
        "cp", usage="[OPTIONS] <SRC>... <DST>", description=_DESCRIPTION, examples=_EXAMPLES
    )
    parser.add_argument(
        "paths",
        metavar="<SRC>... <DST>",
        nargs="+",
        help="the files to copy, and their destination",
    )
    parser.add_argument(
        "-r", "--recursive", action=Flag, help="copy directories with everything in them"
    )
    parser.add_argument("--dry-run", action=Flag, help="only print the files that would be copied")
    parser.add_argument(
        "--verify",
        metavar="<HOW>",
        choices=("size", "hash"),
        default="size",
        help="size compares sizes at the end; hash also compares contents [default: size]",
    )
    parser.add_argument("-q", "--quiet", action=Flag, help="show no progress and no summary")

    async def cp(values: argparse.Namespace, servers: Servers) -> int:
        targets = [await servers.expanded(target) for target in _targets(parser, values)]
        *sources, destination = targets
        copying = _Copying(values, servers, destination, has_many=len(sources) > 1)
        return await each_target(sources, copying.copy)

    return run_file_command(parser, words, cp)


def _targets(parser: Parser, values: argparse.Namespace) -> list[Target]:
    targets = [parse_target(text) for text in values.paths]
    if len(targets) < 2:
        parser.error("the following required arguments were not provided:\n  <DST>")
    *sources, destination = targets
    for source in sources:
        if not source.is_remote and not destination.is_remote:
            named = next((text for text in values.paths if is_like_remote(text)), None)
            why = "expected SERVER:/PATH" if named is None else not_remote(named)
            parser.error(f"one side must be on a server: {why}")
    return targets


class _Incomplete(InvalidRequest):
    """Some of a copy has failed; every problem has been printed."""


@contextlib.contextmanager
def _naming(destination: Target) -> Iterator[None]:
    """Let an error name the destination; the command names the source."""
    try:
        yield
    except (_Incomplete, BrokenPipeError):
        raise
    except (RpcError, OSError) as exc:
        if getattr(exc, "retryable", False):
            raise
        raise InvalidRequest(f"cannot be copied to {destination}: {reason(exc)}") from exc


class _Copying:
    def __init__(
        self, values: argparse.Namespace, servers: Servers, destination: Target, *, has_many: bool
    ) -> None:
        self._values = values
        self._servers = servers
        self._destination = destination
        self._has_many = has_many

    async def copy(self, source: Target) -> None:
        is_tree = await self._is_directory(source)
        if is_tree and not self._values.recursive:
            raise InvalidRequest("is a directory; use -r to copy it with everything in it")
        unfinished = UnfinishedCopy(self._servers, source, self._destination) if is_tree else None
        with _naming(self._destination):
            destination = await self._exact(source, unfinished)
        with _naming(destination):
            await self._copy_to(source, destination, unfinished)

    async def _copy_to(
        self, source: Target, destination: Target, unfinished: UnfinishedCopy | None
    ) -> None:
        if unfinished is None:
            await self._check_parent(destination)
        elif destination != self._destination or self._values.dry_run:
            unfinished = None
        elif not await self._is_directory(destination, may_miss=True):
            await unfinished.begin()
        if source.is_remote and source.url == destination.url:
            await self._copy_within(source, destination)
        else:
            await self._transfer(source, destination)
        if unfinished is not None:
            await unfinished.finish()

    async def _check_parent(self, destination: Target) -> None:
        """Raise NotFound if there is no directory for a file; for a tree, it is made."""
        parent = os.path.dirname(destination.path.rstrip("/"))
        if parent and not await self._is_directory(Target(destination.url, parent), may_miss=True):
            raise NotFound(f"the directory {parent} does not exist")

    async def _exact(self, source: Target, unfinished: UnfinishedCopy | None) -> Target:
        """The path of the copy of *source*: in a directory, or exactly as given.

        A directory that an unfinished copy has made is the copy itself.
        """
        destination = self._destination
        is_directory = await self._is_directory(destination, may_miss=True)
        if is_directory and unfinished is not None and await unfinished.exists():
            return destination
        if is_directory:
            # A source without a name, such as "..", is copied into the directory itself.
            return destination if source.name in ("", ".", "..") else destination.below(source.name)
        if self._has_many or (destination.path.endswith("/") and not self._values.recursive):
            raise NotFound("is not a directory")
        return destination

    async def _is_directory(self, target: Target, *, may_miss: bool = False) -> bool:
        try:
            if not target.is_remote:
                return stat.S_ISDIR(os.stat(target.path).st_mode)
            files = await self._servers.files(target)
            return (await files.get_metadata(target.path or ".")).is_directory
        except (FileNotFoundError, NotFound):
            if may_miss:
                return False
            raise

    async def _copy_within(self, source: Target, destination: Target) -> None:
        if self._values.dry_run:
            say(destination.path)
            return
        files = await self._servers.files(source)
        await files.copy(source.path, destination.path, recursive=self._values.recursive)

    async def _transfer(self, source: Target, destination: Target) -> None:
        line = None if self._values.quiet else progress_line()
        started = time.monotonic()
        prepare = await self._preparation(source, destination, line.update if line else None)
        if self._values.dry_run:
            _show_plan(await prepare())
            return
        try:
            result = await persist(prepare, verify=self._values.verify)
        except TransferFailed as exc:
            _tell(exc.result)
            for problem in exc.result.problems:
                shown = str(source.below(problem.path))
                if problem.path == ".":
                    shown = f"{source}: cannot be copied to {destination}"
                complain(f"{shown}: {reason(Exception(problem.text))}")
            count = len(exc.result.problems)
            plural = "problem" if count == 1 else "problems"
            raise _Incomplete(f"not everything was copied ({count} {plural})") from exc
        finally:
            if line is not None:
                line.clear()
        _tell(result)
        if line is not None:
            print(_summary(result, time.monotonic() - started), file=sys.stderr)

    async def _preparation(
        self, source: Target, destination: Target, on_progress: OnProgress | None
    ) -> Callable[[], Awaitable[Transfer]]:
        if destination.is_remote:
            files, path = await self._servers.files(destination), destination.path or "."
            if source.is_remote:
                origin = (await self._servers.files(source), source.path or ".")
                between = Upload.prepare_between
                return partial(between, *origin, files, path, on_progress=on_progress)
            return partial(Upload.prepare, files, source.path, path, on_progress=on_progress)
        files, path = await self._servers.files(source), source.path or "."
        return partial(Download.prepare, files, path, destination.path, on_progress=on_progress)


def _show_plan(transfer: Transfer) -> None:
    plan = transfer.plan
    copies = [*(copy for copy in plan.directories if copy.replaces is None)]
    for copy in sorted([*copies, *plan.files, *plan.links], key=lambda copy: copy.entry.path):
        name = os.fsdecode(copy.entry.path) or "."
        say(f"{name}/" if copy.entry.kind == "directory" else name)
    for path, text in plan.obstacles:
        complain(f"{os.fsdecode(path) or '.'}: {text}")


def _tell(result: TransferResult) -> None:
    for path, text in result.skipped:
        warn(f"{path}: skipped, because it {text}" if text.startswith("is ") else f"{path}: {text}")
    if result.not_kept:
        lost = ", ".join(sorted(result.not_kept))
        warn(f"not preserved, because the server cannot set them: {lost}")


def _summary(result: TransferResult, seconds: float) -> str:
    files = f"{result.files} {'file' if result.files == 1 else 'files'}"
    kept = f", {result.kept} already there" if result.kept else ""
    sent = result.bytes - result.resumed_bytes
    rate = f"{size(sent / seconds)}/s" if seconds > 0 else ""
    return f"copied {files}{kept}: {size(result.bytes)} in {duration(seconds)}, {rate}"
