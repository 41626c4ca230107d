"""Compare the content of files on both sides by their SHA-256 sums."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable

from exec_server.client.files.transfer.local_tree import LocalTree
from exec_server.client.files.transfer.remote_listing import start_command
from exec_server.client.files.transfer.remote_tree import RemoteTree, batches, is_text
from exec_server.client.files.transfer.task_pool import each
from exec_server.client.files.transfer.tree import TreeEntry
from exec_server.errors import RpcError

_SUM = (b"sha256sum", b"--binary", b"--zero", b"--")
_READ_BYTES = 1024 * 1024
_WIDTH = 4


# Returns the SHA-256 of a file in hexadecimal. Raises OSError and RpcError.
Digest = Callable[[TreeEntry], Awaitable[bytes]]


def local_digest(tree: LocalTree) -> Digest:
    async def digest(entry: TreeEntry) -> bytes:
        return await asyncio.to_thread(_local_sum, tree, entry)

    return digest


async def remote_digest(tree: RemoteTree, entries: list[TreeEntry]) -> Digest:
    """The sums of *entries* on the server: from sha256sum there, or by reading the files again."""
    sums = await _remote_sums(tree, entries)

    async def digest(entry: TreeEntry) -> bytes:
        return sums.get(entry.path) or await _read_again(tree, entry)

    return digest


async def differing(
    one: Digest, other: Digest, entries: list[TreeEntry]
) -> list[tuple[TreeEntry, str]]:
    """The files of *entries* that differ between the two sides, each with the problem."""
    found: list[tuple[TreeEntry, str]] = []

    async def compare(entry: TreeEntry) -> None:
        try:
            is_same = await one(entry) == await other(entry)
        except (OSError, RpcError) as exc:
            found.append((entry, f"cannot be verified: {exc}"))
            return
        if not is_same:
            found.append((entry, "has another content where it was copied to"))

    await each(entries, compare, width=_WIDTH)
    return found


def _local_sum(tree: LocalTree, entry: TreeEntry) -> bytes:
    digest = hashlib.sha256()
    with tree.places() as places:
        place = places.of(entry.path)
        fd = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=place.directory)
    try:
        while data := os.read(fd, _READ_BYTES):
            digest.update(data)
    finally:
        os.close(fd)
    return digest.hexdigest().encode()


async def _remote_sums(tree: RemoteTree, entries: list[TreeEntry]) -> dict[bytes, bytes]:
    """The sums that sha256sum on the server gives, as far as it can be run."""
    is_file = any(not entry.path for entry in entries)
    cwd = os.path.dirname(tree.root) if is_file else tree.root
    # The keys are the names as the program gets and prints them.
    paths = {
        b"./" + (entry.path or os.path.basename(tree.root)): entry.path
        for entry in entries
        if is_text(entry.path or tree.root)
    }
    sums: dict[bytes, bytes] = {}
    for batch in batches((name,) for name in paths):
        process = await start_command(tree.files, [*_SUM, *batch], cwd)
        if process is None:
            break
        try:
            # If the program was killed, the last line has no end, and may be a part of one.
            for line in (await process.stdout.read()).split(b"\0")[:-1]:
                digest, _, name = line.partition(b" *")
                if name in paths:
                    sums[paths[name]] = digest
        finally:
            process.abandon()
    return sums


async def _read_again(tree: RemoteTree, entry: TreeEntry) -> bytes:
    digest = hashlib.sha256()
    async with tree.files.read_stream(tree.at(entry.path)) as stream:
        async for data in stream:
            await asyncio.to_thread(digest.update, data)
    return digest.hexdigest().encode()
