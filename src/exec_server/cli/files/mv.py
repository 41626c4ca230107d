"""`exec-server mv`: rename files on a server, or move them to a server, from it or between two."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Awaitable, Callable
from typing import Any

from exec_server.cli.files.cp import Copying, add_copy_options, copy_targets, refuse_streams
from exec_server.cli.files.file_command import (
    add_habits,
    each_target,
    file_parser,
    run_file_command,
)
from exec_server.cli.files.stream_copy import is_stream
from exec_server.cli.files.targets import Servers, Target
from exec_server.cli.parser import Flag
from exec_server.client.files.transfer.local_tree import LocalTree
from exec_server.client.files.transfer.remote_tree import RemoteTree
from exec_server.client.files.transfer.result import TransferResult
from exec_server.client.files.transfer.transfer import Transfer
from exec_server.client.files.transfer.tree import TreeEntry
from exec_server.errors import ExecServerError, InvalidRequest, MethodNotFound, RpcError

# How long a command that ends early may take to give a source its name again.
_PUT_BACK_SECONDS = 2.0

_EXAMPLES = """\
  Rename a file on a server:
      exec-server mv ws://127.0.0.1:41181:/srv/app/old ws://127.0.0.1:41181:/srv/app/new

  Move logs from a server to this machine, after they were compared:
      exec-server mv --verify hash 'ws://127.0.0.1:41181:/var/log/app/*.gz' logs/
"""
_DESCRIPTION = """\
Move files and trees. As with mv, they go into the destination if that is a directory. Within one
server this is a rename. Otherwise they are copied as by `cp -r`, and removed when every file has
arrived.
"""


def mv_command(words: list[str]) -> int:
    parser = file_parser(
        "mv", usage="[OPTIONS] <SRC>... <DST>", description=_DESCRIPTION, examples=_EXAMPLES
    )
    add_copy_options(parser, what="move")
    parser.add_argument(
        "-n", "--no-clobber", action=Flag, help="leave a file alone that exists at the destination"
    )

    add_habits(parser, force="files at the destination are replaced, unless -n is given")

    async def mv(values: argparse.Namespace, servers: Servers) -> int:
        values.recursive = True
        *sources, destination = await copy_targets(parser, values, servers)
        refuse_streams(parser, values, [*sources, destination])
        moving = _Moving(values, servers, destination, has_many=len(sources) > 1)
        return moving.told(await each_target(sources, moving.move))

    return run_file_command(parser, words, mv)


class _Moving(Copying):
    # The source of a file that only looks like the one at the destination would be lost.
    compares = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # The last transfer, which knows what it has found at its source.
        self._transferred: Transfer | None = None

    async def move(self, source: Target) -> None:
        if is_stream(source):
            raise InvalidRequest("standard input cannot be moved; use cp")
        destination = await self.exact(source)
        if self.values.no_clobber and await self._is_there(destination):
            self.note("kept", source, destination)
            return
        self.claim(source, destination)
        if self.values.dry_run:
            self.would("move", source, destination, str(destination))
        elif source.is_remote and source.url == destination.url:
            await self._rename(source, destination)
            self.note("moved", source, destination)
        else:
            await self.copy(source)
            await self._remove_copied(source, destination)
            self._entries[-1]["action"] = "moved"

    async def _persisted(self, prepare: Callable[[], Awaitable[Transfer]]) -> TransferResult:
        async def remembered() -> Transfer:
            self._transferred = await prepare()
            return self._transferred

        return await super()._persisted(remembered)

    async def _is_there(self, target: Target) -> bool:
        if target.is_remote:
            return await (await self.servers.files(target)).exists(target.path or ".")
        return await asyncio.to_thread(os.path.lexists, target.path)

    async def _leads_somewhere(self, target: Target) -> bool:
        """True if *target* is there, and no link to something that is not."""
        if target.is_remote:
            return await self._is_there(target)
        return await asyncio.to_thread(os.path.exists, target.path)

    # After a copy.

    async def _remove_copied(self, source: Target, destination: Target) -> None:
        """Remove *source* if all of it was copied. It may be at the destination, and around it: a
        server may be on this machine."""
        transfer = self._transferred
        assert transfer is not None
        if transfer.result.skipped:
            raise InvalidRequest("was copied, and is not removed: a part of it was skipped")
        aside = Target(source.url, f"{source.path.rstrip('/')}.{secrets.token_hex(4)}.moved")
        if not await self._put_aside(source, aside):
            await self._check_apart(source, destination)
            await self._check_unchanged(source, transfer.listed)
            await self._remove(source)
            return
        try:
            if not await self._leads_somewhere(destination):
                raise _same(destination)
            await self._check_unchanged(aside, transfer.listed)
            await self._remove(aside)
        except BaseException:
            await self._put_back(aside, source)
            raise

    async def _check_unchanged(self, source: Target, before: list[TreeEntry]) -> None:
        """Raise InvalidRequest if something is in *source* that was not copied."""
        known = {entry.path: _facts(entry) for entry in before}
        if source.is_remote:
            tree = await RemoteTree.find(await self.servers.files(source), source.path)
            now = (await tree.list()).entries
        else:
            now = (await asyncio.to_thread(LocalTree(source.path).scan)).entries
        for entry in now:
            if known.get(entry.path) != _facts(entry):
                named = f": {os.fsdecode(entry.path)}" if entry.path else ""
                raise InvalidRequest(
                    f"was copied, and is not removed: it has changed meanwhile{named}"
                )

    async def _check_apart(self, source: Target, destination: Target) -> None:
        """Raise InvalidRequest if *source*, whose server cannot rename, is at a *destination* here.

        So the destination is put aside instead. With two servers nothing can be found out.
        """
        if destination.is_remote:
            return
        path = await asyncio.to_thread(os.path.realpath, destination.path)
        aside = f"{path}.{secrets.token_hex(4)}.moved"
        os.rename(path, aside)
        try:
            is_apart = await self._is_there(source)
        finally:
            os.rename(aside, path)
        if not is_apart:
            raise _same(destination)

    async def _put_aside(self, source: Target, aside: Target) -> bool:
        """Rename *source*; False if its server cannot do that."""
        if not source.is_remote:
            await asyncio.to_thread(os.rename, source.path, aside.path)
            return True
        try:
            await (await self.servers.files(source)).rename(source.path, aside.path)
        except MethodNotFound:
            return False
        return True

    async def _put_back(self, aside: Target, source: Target) -> None:
        """Give what is left of the source its name again, if that is possible."""
        with contextlib.suppress(ExecServerError, OSError, TimeoutError):
            async with asyncio.timeout(_PUT_BACK_SECONDS):
                await self._put_aside(aside, source)

    async def _remove(self, source: Target) -> None:
        if source.is_remote:
            files = await self.servers.files(source)
            if not source.path.strip("/"):
                raise InvalidRequest("the root directory is not removed")
            await files.remove(source.path, recursive=True)
        else:
            await asyncio.to_thread(_remove_here, source.path)

    # Within a server.

    async def _rename(self, source: Target, destination: Target) -> None:
        files = await self.servers.files(source)
        try:
            await files.rename(source.path, destination.path)
        except (MethodNotFound, RpcError) as exc:
            if exc.errno == errno.EINVAL:
                raise InvalidRequest(f"cannot be moved into itself, to {destination}") from exc
            if not isinstance(exc, MethodNotFound) and exc.errno != errno.EXDEV:
                raise
            # Another file system, or a server that cannot rename.
            if not await self._rename_by_program(source, destination):
                await self._copy_and_remove(source, destination)

    async def _rename_by_program(self, source: Target, destination: Target) -> bool:
        """Let `mv` of the server do it, which keeps times, owners and special files; False if it
        cannot be run."""
        files = await self.servers.files(source)
        paths = [os.fsdecode((await files.uri(each.path)).native) for each in (source, destination)]
        try:
            done = await files.client.run(["mv", "-T", "--", *paths], env={"LC_ALL": "C"}, cwd="/")
        except (RpcError, UnicodeError):
            return False
        if done.returncode:
            said = done.stderr.decode(errors="replace").removeprefix("mv: ").splitlines()
            more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
            raise InvalidRequest(f"{said[0]}{more}" if said else "mv has failed on the server")
        return True

    async def _copy_and_remove(self, source: Target, destination: Target) -> None:
        files = await self.servers.files(source)
        tree = await RemoteTree.find(files, source.path)
        before = (await tree.list()).entries
        if any(entry.kind == "other" for entry in before):
            raise InvalidRequest("has special files, which cannot be copied")
        if before and before[0].kind == "directory" and await self._is_there(destination):
            raise InvalidRequest(f"{destination} exists")
        archive = await files.offers("fsCopyArchive")
        await files.copy(source.path, destination.path, recursive=True, archive=archive)
        await self._check_unchanged(source, before)
        await self._remove(source)


def _same(destination: Target) -> InvalidRequest:
    return InvalidRequest(f"is the same file as {destination}, or around it")


def _facts(entry: TreeEntry) -> tuple[object, ...]:
    """What has to be the same if an entry has not changed since it was listed."""
    if entry.kind == "file":
        return entry.kind, entry.size, entry.mtime_ms
    return entry.kind, entry.target


def _remove_here(path: str) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)
