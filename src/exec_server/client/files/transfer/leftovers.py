"""Remove from a server what a copy that ended early has left there, if it can be done quickly."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from exec_server.errors import ConnectionClosed, RpcError

if TYPE_CHECKING:
    from exec_server.client.files.remote_files import RemoteFiles

# How long a copy that ends early may take to remove one file.
_SECONDS = 2.0


async def discard(files: RemoteFiles, path: bytes) -> None:
    """Remove a file, if there is one."""
    with contextlib.suppress(RpcError, ConnectionClosed, TimeoutError):
        async with asyncio.timeout(_SECONDS):
            await files.remove(path, force=True)


async def discard_incomplete(
    files: RemoteFiles, path: bytes, size: int, *, follow_symlinks: bool
) -> None:
    """Remove a file with fewer than *size* bytes, for example after a write to a full disk."""
    with contextlib.suppress(RpcError, ConnectionClosed, TimeoutError):
        async with asyncio.timeout(_SECONDS):
            found = await files.get_metadata(path, follow_symlinks=follow_symlinks)
            if found.is_file and found.size < size:
                await files.remove(path, force=True)
