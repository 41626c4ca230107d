"""`exec-server mv`: rename files on a server, or move them to a server, from it or between two."""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import secrets
import shutil
import stat

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
from exec_server.errors import InvalidRequest, MethodNotFound, RpcError

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
    async def move(self, source: Target) -> None:
        if is_stream(source):
            raise InvalidRequest("standard input cannot be moved; use cp")
        destination = await self.exact(source)
        if self.values.no_clobber and await self._is_there(destination):
            self.note("kept", source, destination)
            return
        if self.values.dry_run:
            self.would("move", source, destination, str(destination))
        elif source.is_remote and source.url == destination.url:
            await self._rename(source, destination)
            self.note("moved", source, destination)
        else:
            await self.copy(source)
            await self._remove_copied(source, destination)
            self._entries[-1]["action"] = "moved"

    async def _is_there(self, target: Target) -> bool:
        if target.is_remote:
            return await (await self.servers.files(target)).exists(target.path or ".")
        return await asyncio.to_thread(os.path.lexists, target.path)

    async def _remove_copied(self, source: Target, destination: Target) -> None:
        """Remove *source*, unless it is the destination: a server may be on this machine."""
        aside = Target(source.url, f"{source.path.rstrip('/')}.{secrets.token_hex(4)}.moved")
        if source.name != destination.name or not await self._put_aside(source, aside):
            await self._remove(source)
        elif await self._is_there(destination):
            await self._remove(aside)
        else:
            await self._put_aside(aside, source)
            raise InvalidRequest(f"is the same file as {destination}")

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

    async def _rename(self, source: Target, destination: Target) -> None:
        files = await self.servers.files(source)
        try:
            await files.rename(source.path, destination.path)
        except (MethodNotFound, RpcError) as exc:
            if not isinstance(exc, MethodNotFound) and exc.errno != errno.EXDEV:
                raise
            # Another file system, or a server that cannot rename.
            await files.copy(source.path, destination.path, recursive=True)
            await self._remove(source)

    async def _remove(self, source: Target) -> None:
        if source.is_remote:
            files = await self.servers.files(source)
            if not source.path.strip("/"):
                raise InvalidRequest("the root directory is not removed")
            await files.remove(source.path, recursive=True)
        else:
            await asyncio.to_thread(_remove_here, source.path)


def _remove_here(path: str) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)
