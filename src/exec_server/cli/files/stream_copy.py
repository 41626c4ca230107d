"""`cp - NAME:/PATH` and `cp NAME:/PATH -`: standard input and output instead of a file."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid

from exec_server.cli.files.targets import Servers, Target
from exec_server.cli.process.own_terminal.terminal_io import LocalOutput
from exec_server.client.files.transfer.leftovers import discard
from exec_server.errors import InvalidRequest

_READ_BYTES = 1024 * 1024


def is_stream(target: Target) -> bool:
    """True for `-`; a file of this name is written `./-`."""
    return not target.is_remote and target.path == "-"


async def send_stdin(servers: Servers, destination: Target) -> None:
    """Make a file of everything on standard input; it gets its name when it is complete."""
    files, path = await servers.files(destination), await servers.path(destination)
    is_there = await files.exists(path)
    if is_there and (await files.get_metadata(path)).is_directory:
        raise InvalidRequest("is a directory; give the new file a name")
    has_rename = await files.offers("fsRename")
    if has_rename and is_there:
        # A link stays a link.
        path = os.fsencode(await files.canonicalize(path))
    part = path + b".%b.part" % uuid.uuid4().hex[:8].encode() if has_rename else path
    try:
        async with files.write_stream(part) as stream:
            while data := await asyncio.to_thread(os.read, sys.stdin.fileno(), _READ_BYTES):
                await stream.write(data)
        if has_rename:
            await files.rename(part, path)
    except BaseException:
        if has_rename:
            await discard(files, part)
        raise


async def show_stdout(servers: Servers, source: Target) -> None:
    """Write a file to standard output."""
    files, path = await servers.files(source), await servers.path(source)
    output = LocalOutput()
    async with files.read_stream(path) as stream:
        async for data in stream:
            await output.write(sys.stdout.fileno(), data)
