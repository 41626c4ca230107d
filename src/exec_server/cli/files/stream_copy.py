"""`cp - NAME:/PATH` and `cp NAME:/PATH -`: standard input and output instead of a file."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid

from exec_server.cli.files.targets import Servers, Target
from exec_server.cli.process.own_terminal.terminal_io import LocalOutput
from exec_server.client.files.remote_files import RemoteFiles
from exec_server.client.files.transfer.leftovers import discard
from exec_server.client.files.transfer.private_files import is_private_file, make_private
from exec_server.client.files.transfer.tree import PERMISSIONS
from exec_server.errors import InvalidRequest, NotFound
from exec_server.protocol.fs import Metadata

_READ_BYTES = 1024 * 1024


def is_stream(target: Target) -> bool:
    """True for `-`; a file of this name is written `./-`."""
    return not target.is_remote and target.path == "-"


async def send_stdin(servers: Servers, destination: Target) -> None:
    """Make a file of everything on standard input; it gets its name when it is complete."""
    files, path = await servers.files(destination), await servers.path(destination)
    found = await _found(files, path)
    if found is not None and found.is_directory:
        raise InvalidRequest("is a directory; give the new file a name")
    # A device or a FIFO is written to, and not replaced.
    has_rename = await files.offers("fsRename") and (found is None or found.is_file)
    if has_rename and found is not None:
        # A link stays a link.
        path = os.fsencode(await files.canonicalize(path))
    part = path + b".%b.part" % uuid.uuid4().hex[:8].encode() if has_rename else path
    mode = None
    if has_rename and found is not None and await files.offers("fsSetPermissions"):
        mode = found.mode if isinstance(found.mode, int) else None
    try:
        if is_private_file(mode):
            await make_private(files, part)
        async with files.write_stream(part) as stream:
            while data := await asyncio.to_thread(os.read, sys.stdin.fileno(), _READ_BYTES):
                await stream.write(data)
        if mode is not None:
            await files.set_permissions(part, mode=mode & PERMISSIONS)
        if has_rename:
            await files.rename(part, path)
    except BaseException:
        if has_rename:
            await discard(files, part)
        raise


async def _found(files: RemoteFiles, path: bytes) -> Metadata | None:
    try:
        return await files.get_metadata(path, attributes=True)
    except NotFound:
        return None


async def show_stdout(servers: Servers, source: Target) -> None:
    """Write a file to standard output."""
    files, path = await servers.files(source), await servers.path(source)
    output = LocalOutput()
    async with files.read_stream(path) as stream:
        async for data in stream:
            await output.write(sys.stdout.fileno(), data)
