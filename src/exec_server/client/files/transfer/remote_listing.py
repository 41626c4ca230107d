"""List a tree of the server, with modes, links and unusual names where that is possible.

The file methods of the protocol report neither modes nor the targets of links, leave out links
that lead nowhere, and alter names that are not UTF-8. GNU find reports all of it at once, so it is
used where it can be run, and the methods otherwise.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from exec_server.client.files.transfer.task_pool import each
from exec_server.client.files.transfer.tree import (
    PERMISSIONS,
    Kind,
    TreeEntry,
    below,
    check_name,
    check_path,
    parent,
)
from exec_server.errors import InvalidRequest, NotFound, ProcessFailed, ProtocolError, RpcError
from exec_server.protocol.fs import Metadata
from exec_server.protocol.paths import to_uri

if TYPE_CHECKING:
    from exec_server.client.files.remote_files import RemoteFiles
    from exec_server.client.process.remote_process import RemoteProcess

# The fields are type, mode, size, time and path, then the target of a link.
_FORMAT = r"%y %m %s %T@ %P\0%l\0"
_KINDS: dict[bytes, Kind] = {b"f": "file", b"d": "directory", b"l": "symlink"}
_ERROR = re.compile(rb"find: '(?:\./)?(.*)': ([^:]*)")
_C_LOCALE = {"LC_ALL": "C"}
# The status of find after it has printed errors about some files, and the one after signal 0.
_FOUND_ERRORS = 1
_BY_SIGNAL = 128

# A tree of more files is not copied at once: each takes some 200 bytes of memory.
_MOST_ENTRIES = 10_000_000
# A path can be longer than PATH_MAX, but not by so much.
_RECORD_BYTES = 1024 * 1024
# So much of what a program on the server complains about is read.
ERROR_BYTES = 1024 * 1024

# The number of requests under way at once when each name needs its own request.
_WIDTH = 32
# The oldest servers do not mark links to directories; a path deeper than this is a circle.
_MAX_DEPTH = 128


class Listing(msgspec.Struct):
    """The entries of a tree."""

    # The root is first, and each directory comes before its content.
    entries: list[TreeEntry] = []
    # The paths that could not be read, and why.
    errors: list[tuple[bytes, str]] = []
    # True if modes and the targets of links are included.
    is_full: bool = True

    def by_path(self) -> dict[bytes, TreeEntry]:
        return {entry.path: entry for entry in self.entries}


async def list_tree(
    files: RemoteFiles, root: bytes, *, max_depth: int | None = None, is_full: bool = True
) -> Listing:
    """Everything at and below *root*, a path without links. Raises NotFound and other RpcErrors.

    With *max_depth* 0 only the root is listed, with 1 also its content, and so on. A caller that
    needs neither modes nor links sets *is_full* to false, which saves a command for one file.
    """
    found = await files.get_metadata(root)
    listing = None
    if is_full or found.is_directory:
        listing = await _find(files, root, is_directory=found.is_directory, max_depth=max_depth)
    if listing is None:
        listing = Listing([_entry(b"", found)], is_full=False)
        if found.is_directory:
            await _list_by_calls(files, root, listing, max_depth)
    return listing


async def describe(files: RemoteFiles, path: bytes) -> TreeEntry:
    """The entry of *path* itself, even of a link that leads nowhere; its path is b"".

    If only the methods are available, a link is reported without its target.
    """
    listing = await _find(files, path, is_directory=False, max_depth=0) if path != b"/" else None
    if listing is not None:
        return listing.entries[0]
    found = await files.get_metadata(path)
    entry = _entry(b"", found)
    return TreeEntry(b"", "symlink", entry.size, entry.mtime_ns) if found.is_symlink else entry


# With a command.


async def _find(
    files: RemoteFiles, root: bytes, *, is_directory: bool, max_depth: int | None
) -> Listing | None:
    """The output of GNU find; None if it cannot be run."""
    start, where = (b".", root) if is_directory else (b"./" + os.path.basename(root), parent(root))
    process = await start_command(
        files,
        [
            *(b"find", start),
            *((b"-maxdepth", b"%d" % max_depth) if max_depth is not None else ()),
            *(b"-printf", _FORMAT.encode()),
        ],
        where or b"/",
    )
    if process is None:
        return None
    listing, errors = Listing(), bytearray()
    try:
        async for entry in _records(process, errors):
            if len(listing.entries) == _MOST_ENTRIES:
                raise ProtocolError(f"a listing of more than {_MOST_ENTRIES} files")
            listing.entries.append(entry)
        status = await process.wait()
    finally:
        process.abandon()
    if not listing.entries or listing.entries[0].path:
        # It is another program of that name, which does not know these options.
        return None
    listing.errors = [_error(line) for line in bytes(errors).splitlines()]
    if status and not (status == _FOUND_ERRORS and listing.errors):
        # A listing that is not complete would look like a tree with fewer files.
        shown = os.fsdecode(root)
        raise ProcessFailed(f"the listing of {shown} is not complete: find {_ended(status)}")
    return listing


def _ended(status: int) -> str:
    """How a program has ended, for people."""
    if status > _BY_SIGNAL:
        return f"was ended by signal {status - _BY_SIGNAL}"
    return f"has ended with status {status}"


async def start_command(
    files: RemoteFiles, argv: list[bytes], cwd: bytes, *, stdin: bool = False
) -> RemoteProcess | None:
    """Run a program of the server in *cwd*; None if that is not possible."""
    if files.is_sandboxed:
        # The program would see more than the sandboxed requests may see.
        return None
    try:
        words = [word.decode() for word in argv]
        return await files.client.start(words, cwd=to_uri(cwd), env=_C_LOCALE, stdin=stdin)
    except (RpcError, UnicodeDecodeError):
        return None


async def _records(process: RemoteProcess, errors: bytearray) -> AsyncIterator[TreeEntry]:
    rest = b""
    async for chunk in process:
        if chunk.stream == "stderr":
            errors += chunk.data[: max(ERROR_BYTES - len(errors), 0)]
            continue
        fields = (rest + chunk.data).split(b"\0")
        # A record has two fields, and the last field may be incomplete.
        kept = 1 if len(fields) % 2 else 2
        rest = b"\0".join(fields[-kept:])
        if len(rest) > _RECORD_BYTES:
            raise ProtocolError("a listing with a name that no file can have")
        for index in range(0, len(fields) - kept, 2):
            yield _record(fields[index], fields[index + 1])
    if rest:
        raise ProtocolError("a listing that ends in the middle")


def _record(description: bytes, target: bytes) -> TreeEntry:
    try:
        kind, mode, size, time, path = description.split(b" ", 4)
        return TreeEntry(
            check_path(path),
            _KINDS.get(kind, "other"),
            max(int(size), 0),
            _nanoseconds(time),
            int(mode, 8) & PERMISSIONS,
            target,
        )
    except ValueError:
        raise ProtocolError(f"not a line of a listing: {description!r}") from None


def _nanoseconds(text: bytes) -> int:
    """From seconds with a fraction, which counts upwards also before 1970."""
    seconds, _, fraction = text.partition(b".")
    return int(seconds) * 1_000_000_000 + int(fraction[:9].ljust(9, b"0"))


def _error(line: bytes) -> tuple[bytes, str]:
    match = _ERROR.fullmatch(line)
    if match is None:
        return b"", line.decode("utf-8", "replace")
    return match[1], match[2].decode("utf-8", "replace")


# With calls.


async def _list_by_calls(
    files: RemoteFiles, root: bytes, listing: Listing, max_depth: int | None
) -> None:
    level, depth = [b""], 0
    while level and depth < (_MAX_DEPTH if max_depth is None else min(max_depth, _MAX_DEPTH)):
        found: dict[bytes, list[TreeEntry]] = {path: [] for path in level}

        async def look(path: bytes, found: dict[bytes, list[TreeEntry]] = found) -> None:
            found[path] = await _list_directory(files, root, path, listing)

        await each(level, look, width=_WIDTH)
        entries = [entry for path in level for entry in found[path]]
        listing.entries += entries
        level = [entry.path for entry in entries if entry.kind == "directory"]
        depth += 1


async def _list_directory(
    files: RemoteFiles, root: bytes, path: bytes, listing: Listing
) -> list[TreeEntry]:
    try:
        names = await files.read_directory(below(root, path))
    except RpcError as exc:
        listing.errors.append((path, exc.message))
        return []
    found: list[TreeEntry] = []

    async def look(name: str) -> None:
        inner = below(path, check_name(name.encode("utf-8", "surrogateescape")))
        try:
            found.append(await look_at(files, root, inner))
        except NotFound:
            listing.errors.append((inner, "cannot be found under this name"))
        except RpcError as exc:
            listing.errors.append((inner, exc.message))

    await each([entry.name for entry in names], look, width=_WIDTH)
    return sorted(found, key=lambda entry: entry.path)


async def look_at(files: RemoteFiles, root: bytes, path: bytes) -> TreeEntry:
    """The entry of one name, from the methods of the protocol."""
    try:
        return _entry(path, await files.get_metadata(below(root, path), follow_symlinks=False))
    except InvalidRequest as exc:
        if "symbolic link" not in exc.message:
            raise
        return TreeEntry(path, "symlink")


def _entry(path: bytes, found: Metadata) -> TreeEntry:
    kind: Kind = "directory" if found.is_directory else "file" if found.is_file else "other"
    if path and found.is_symlink:
        kind = "symlink"
    return TreeEntry(path, kind, found.size, found.modified_at_ms * 1_000_000)
