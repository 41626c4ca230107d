"""fs/readDirectory with `complete`: every name, exactly, and every link."""

from __future__ import annotations

import os

import msgspec

from exec_server.errors import InternalError
from exec_server.files.operations.content import IsCancelled
from exec_server.files.operations.directory_listing import GrowingJsonList
from exec_server.files.operations.oserrors import lossy
from exec_server.protocol.fs import DirectoryEntry
from exec_server.protocol.method import Encoded
from exec_server.protocol.paths import encoded


def complete_listing(path: bytes, limit: int, is_cancelled: IsCancelled) -> Encoded:
    """All names in a directory. A link that leads nowhere is neither a directory nor a file."""
    entries, count = GrowingJsonList(), 0
    with os.scandir(path) as found:
        for entry in found:
            count += 1
            if is_cancelled():
                break
            if count <= limit:
                entries.append(msgspec.to_builtins(_described(entry)))
                entries.rest()
    if count > limit:
        raise InternalError(f"fs/readDirectory returned {count} entries; limit is {limit}")
    return Encoded((b'{"entries":', *entries.parts(), b"}"))


def _described(entry: os.DirEntry[bytes]) -> DirectoryEntry:
    described = DirectoryEntry(lossy(entry.name), _is(entry.is_dir), _is(entry.is_file))
    if entry.is_symlink():
        described.is_symlink = True
    if described.file_name.encode() != entry.name:
        described.encoded_name = encoded(entry.name)
    return described


def _is(question: object) -> bool:
    """The answer about what an entry leads to; False for a loop, or if it may not be asked."""
    assert callable(question)
    try:
        return bool(question())
    except OSError:
        return False
