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
from typing import Any

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
    each_target,
    file_parser,
    reason,
    run_file_command,
    say,
)
from exec_server.cli.files.progress_bar import progress_line
from exec_server.cli.files.remote_globs import expand_globs
from exec_server.cli.files.stream_copy import is_stream, send_stdin, show_stdout
from exec_server.cli.files.targets import (
    Servers,
    Target,
    is_like_remote,
    not_remote,
    parse_target,
)
from exec_server.cli.files.unfinished_copy import UnfinishedCopy
from exec_server.cli.options import add_output
from exec_server.cli.parser import Flag, Parser
from exec_server.cli.tables import print_json_entries
from exec_server.client.files.transfer.download import Download
from exec_server.client.files.transfer.progress import OnProgress
from exec_server.client.files.transfer.result import TransferResult
from exec_server.client.files.transfer.transfer import Transfer, persist
from exec_server.client.files.transfer.transfer_options import TransferOptions
from exec_server.client.files.transfer.transfer_plan import TransferPlan
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

  Copy what a pattern matches there, and a file of an environment's home directory:
      exec-server cp 'build:src/*.py' build:~/notes.txt .

  From standard input, and to standard output:
      tar -cz src | exec-server cp - ws://127.0.0.1:41181:/srv/src.tar.gz
      exec-server cp ws://127.0.0.1:41181:/srv/src.tar.gz - | tar -tz

  Copy over ssh; nothing listens on the far side:
      exec-server cp big.iso 'stdio:ssh build exec-server --listen stdio:/tmp/'
"""

_DESCRIPTION = """\
Copy files to a server, from it, within one server, or from one server to another through this
machine. As with cp, a copy goes into the destination if that is a directory. Files that exist with
the same size and time are not copied again, and of large files that have changed only the changes
are sent. Large files continue where they stopped: repeat the command to finish a copy that was
interrupted. A directory that the interrupted copy has made counts as its copy then, and not as a
directory to copy into.
"""


def cp_command(words: list[str]) -> int:
    parser = file_parser(
        "cp", usage="[OPTIONS] <SRC>... <DST>", description=_DESCRIPTION, examples=_EXAMPLES
    )
    parser.add_argument(
        *("-r", "-R", "-a", "--recursive"),
        action=Flag,
        help="copy directories with everything in them",
    )
    add_habits(parser, preserve="modes and times are always kept")
    add_copy_options(parser, what="copy")

    async def cp(values: argparse.Namespace, servers: Servers) -> int:
        *sources, destination = await copy_targets(parser, values, servers)
        refuse_streams(parser, values, [*sources, destination])
        copying = Copying(values, servers, destination, has_many=len(sources) > 1)
        return copying.told(await each_target(sources, copying.copy))

    return run_file_command(parser, words, cp)


def add_copy_options(parser: Parser, *, what: str) -> None:
    """The options and words that `cp` and `mv` share; *what* is the verb for their help."""
    add = parser.add_argument
    add(
        "paths",
        metavar="<SRC>... <DST>",
        nargs="+",
        help=f"the files to {what}, and their destination",
    )
    add("--dry-run", action=Flag, help="only print what would be done")
    add(
        "--verify",
        metavar="<HOW>",
        choices=("size", "hash"),
        default="size",
        help="size compares sizes at the end; hash also compares contents [default: size]",
    )
    add("-W", "--whole-file", action=Flag, help="send changed files whole, not their changes")
    add("-q", "--quiet", action=Flag, help="show no progress and no summary")
    add_output(parser, "text for people; json prints a list with an object for each source")
    add_habits(parser, verbose="a terminal shows progress and a summary without it")


def refuse_streams(parser: Parser, values: argparse.Namespace, targets: list[Target]) -> None:
    if values.output == "json" and any(is_stream(target) for target in targets):
        parser.error("the argument '--output json' cannot be used with '-'")


async def copy_targets(
    parser: Parser, values: argparse.Namespace, servers: Servers
) -> list[Target]:
    """The sources, with patterns replaced by what they match, and the destination."""
    *sources, destination = [await servers.expanded(each) for each in _targets(parser, values)]
    found = [match for source in sources for match in await expand_globs(servers, source)]
    return [*found, destination]


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


class Copying:
    """Copies one source after the other to one destination."""

    # True to compare contents where size and time are the same.
    compares = False

    def __init__(
        self, values: argparse.Namespace, servers: Servers, destination: Target, *, has_many: bool
    ) -> None:
        self.values = values
        self.servers = servers
        self._destination = destination
        self._has_many = has_many
        self._is_json = values.output == "json"
        self._entries: list[dict[str, Any]] = []
        # The source of each file that this command has made.
        self._made: dict[Target, Target] = {}

    def told(self, status: int) -> int:
        """Print what was done for programs, if they read it; *status* is returned."""
        if self._is_json:
            print_json_entries(self._entries)
        return status

    def note(self, action: str, source: Target, destination: Target, **facts: Any) -> None:
        """Remember what was done, or would be."""
        places = {"source": str(source), "destination": str(destination)}
        self._entries.append({"action": action, **places, **facts})

    async def copy(self, source: Target) -> None:
        if is_stream(source) or is_stream(self._destination):
            await self._copy_stream(source)
            return
        is_tree = await self._is_directory(source)
        if is_tree and not self.values.recursive:
            raise InvalidRequest("is a directory; use -r to copy it with everything in it")
        unfinished = None
        if is_tree:
            unfinished = await UnfinishedCopy.of(self.servers, source, self._destination)
        with _naming(self._destination):
            destination = await self.exact(source, unfinished)
        with _naming(destination):
            if not is_tree:
                self.claim(source, destination)
            await self._copy_to(source, destination, unfinished)

    async def _copy_stream(self, source: Target) -> None:
        """Copy from standard input, or to standard output."""
        if self.values.dry_run:
            say(str(self._destination))
        elif is_stream(self._destination):
            await show_stdout(self.servers, source)
        else:
            with _naming(self._destination):
                await send_stdin(self.servers, self._destination)

    async def _copy_to(
        self, source: Target, destination: Target, unfinished: UnfinishedCopy | None
    ) -> None:
        if unfinished is None:
            await self._check_parent(destination)
        elif destination != self._destination or self.values.dry_run:
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

    def claim(self, source: Target, destination: Target) -> None:
        """Raise InvalidRequest if this command has made *destination* from another source."""
        first = self._made.setdefault(destination, source)
        if first != source:
            raise InvalidRequest(f"would replace what has just come from {first}")

    async def exact(self, source: Target, unfinished: UnfinishedCopy | None = None) -> Target:
        """The path of the copy of *source*: in a directory, or exactly as given.

        A directory that an unfinished copy has made is the copy itself. Raises NotFound if several
        files, or a file with a slash after it, would need a directory that is missing.
        """
        destination = self._destination
        is_directory = await self._is_directory(destination, may_miss=True)
        if is_directory and unfinished is not None and await unfinished.exists():
            return destination
        if is_directory:
            # A source without a name, such as "..", is copied into the directory itself.
            return destination if source.name in ("", ".", "..") else destination.below(source.name)
        if self._has_many or (
            destination.path.endswith("/") and not await self._is_directory(source, may_miss=True)
        ):
            raise NotFound("is not a directory")
        return destination

    async def _is_directory(self, target: Target, *, may_miss: bool = False) -> bool:
        try:
            if not target.is_remote:
                return stat.S_ISDIR(os.stat(target.path).st_mode)
            files = await self.servers.files(target)
            return (await files.get_metadata(target.path or ".")).is_directory
        except (FileNotFoundError, NotFound):
            if may_miss:
                return False
            raise

    async def _copy_within(self, source: Target, destination: Target) -> None:
        if self.values.dry_run:
            self.would("copy", source, destination, destination.path)
            return
        files = await self.servers.files(source)
        # The method copies a link as a link; as with all other copies, what it leads to is meant.
        path = await files.canonicalize(source.path or ".")
        await files.copy(
            path,
            destination.path or ".",
            recursive=self.values.recursive,
            archive=await files.offers("fsCopyArchive"),
        )
        self.note("copied", source, destination)

    def would(self, action: str, source: Target, destination: Target, shown: str) -> None:
        """Tell what a dry run leaves undone."""
        if self._is_json:
            self.note(action, source, destination)
        else:
            say(shown)

    async def _transfer(self, source: Target, destination: Target) -> None:
        line = None if self.values.quiet or self._is_json else progress_line()
        started = time.monotonic()
        prepare = await self._preparation(source, destination, line.update if line else None)
        if self.values.dry_run:
            self._show_plan((await prepare()).plan, source, destination)
            return
        try:
            result = await self._persisted(prepare)
        except TransferFailed as exc:
            tell_result(exc.result)
            self.note("failed", source, destination, **result_facts(exc.result))
            raise _Incomplete(told_problems(exc.result, source, destination)) from exc
        finally:
            if line is not None:
                line.clear()
        tell_result(result)
        self.note("copied", source, destination, **result_facts(result))
        if line is not None:
            print(summary(result, time.monotonic() - started), file=sys.stderr)

    async def _persisted(self, prepare: Callable[[], Awaitable[Transfer]]) -> TransferResult:
        return await persist(prepare, verify=self.values.verify)

    def _show_plan(self, plan: TransferPlan, source: Target, destination: Target) -> None:
        for step in planned_steps(plan):
            if self._is_json:
                self.note(step.action, source, destination, path=step.path, size=step.size)
            else:
                say(f"{step.path}/" if step.is_directory else step.path)
        for path, text in plan.obstacles:
            complain(f"{shown_path(path)}: {text}")

    async def _preparation(
        self, source: Target, destination: Target, on_progress: OnProgress | None
    ) -> Callable[[], Awaitable[Transfer]]:
        options = TransferOptions(whole_files=self.values.whole_file, checksum=self.compares)
        how: Any = {"on_progress": on_progress, "options": options}
        if destination.is_remote:
            files, path = await self.servers.files(destination), destination.path or "."
            if source.is_remote:
                origin = (await self.servers.files(source), source.path or ".")
                between = Upload.prepare_between
                return partial(between, *origin, files, path, **how)
            return partial(Upload.prepare, files, source.path, path, **how)
        files, path = await self.servers.files(source), source.path or "."
        return partial(Download.prepare, files, path, destination.path, **how)
