"""The table of operations: one entry for each `fs/*` method that names a path.

An entry says how the method's parameters become plain arguments and which functions do the work.
Threads of the server and confined helpers both work from this table. Arguments travel to a helper
as MessagePack, so they are numbers, texts, bytes, None, lists and dictionaries.
"""

from __future__ import annotations

from typing import Any

import msgspec

from exec_server.files.operations import (
    atomic_write,
    attributes,
    delta,
    links,
    local,
    nofollow,
)
from exec_server.files.operations.complete_listing import complete_listing
from exec_server.files.operations.content import Content, IsCancelled, content_of
from exec_server.files.operations.copy import copy
from exec_server.files.operations.directory_listing import read_directory
from exec_server.files.operations.fifo_writes import write_without_waiting
from exec_server.files.operations.task import BulkOperation, FileTask, Operation
from exec_server.files.operations.walk import check_limits, walk
from exec_server.limits import Limits
from exec_server.protocol import file_delta, fs
from exec_server.protocol.method import Encoded
from exec_server.protocol.paths import PathUri


class OpenedFile(msgspec.Struct):
    """A file that a task has opened; the receiver closes the descriptor."""

    fd: int


def _open_file(path: bytes, mode: str) -> OpenedFile:
    fd, _ = local.open_regular(path, local.OPEN_FLAGS[mode])
    return OpenedFile(fd)


# Answers with a descriptor, for which the connection keeps the client's name: see `open_files`.
OPEN_FILE = FileTask(fs.OPEN.name, _open_file, is_short=True)


# Content.

READ_FILE = BulkOperation(
    fs.READ_FILE,
    lambda params, limits: (params.path.native, limits.read_file_bytes),
    local.read_file,
    nofollow.read_file,
    is_short=True,
)


def _write_arguments(params: fs.WriteFileParams, limits: Limits) -> tuple[bytes, bool, Content]:
    content = content_of(params.data_base64)
    return params.path.native, params.atomic, content


def _write_file(path: bytes, is_atomic: bool, content: Content) -> None:
    if is_atomic:
        atomic_write.write_file(path, content, True)
        return
    try:
        local.write_file(path, content)
    except local.SpecialFile:
        write_without_waiting(path, content)


def _write_file_nofollow(path: bytes, is_atomic: bool, content: Content) -> None:
    if is_atomic:
        atomic_write.write_file(path, content, False)
    else:
        nofollow.write_file(path, content)


WRITE_FILE = Operation(
    fs.WRITE_FILE,
    _write_arguments,
    _write_file,
    _write_file_nofollow,
    is_short=True,
    has_content=True,
)
APPEND = Operation(
    fs.APPEND,
    lambda params, _: (params.path.native, params.create, params.data_base64.data),
    local.append,
    nofollow.append,
    is_short=True,
    has_content=True,
)

SIGNATURE = BulkOperation(
    file_delta.SIGNATURE,
    lambda params, _: (
        params.path.native,
        params.offset,
        params.length,
        params.chunks,
        params.block_bytes,
        params.key_base64.data if params.key_base64 is not None else None,
    ),
    delta.signature,
    delta.signature_nofollow,
)
COPY_RANGES = Operation(
    file_delta.COPY_RANGES,
    lambda params, _: (
        params.source_path.native,
        params.destination_path.native,
        [list(each) for each in params.ranges],
    ),
    delta.copy_ranges,
    delta.copy_ranges_nofollow,
)

# Names and attributes.

GET_METADATA = Operation(
    fs.GET_METADATA,
    lambda params, _: (params.path.native, params.attributes),
    links.get_metadata,
    links.get_metadata_nofollow,
    is_short=True,
)
LSTAT = Operation(
    fs.LSTAT,
    lambda params, _: (params.path.native,),
    links.lstat,
    links.lstat_nofollow,
    is_short=True,
)
READ_LINK = Operation(
    fs.READ_LINK,
    lambda params, _: (params.path.native,),
    links.read_link,
    links.read_link_nofollow,
    is_short=True,
)
SYMLINK = Operation(
    fs.SYMLINK,
    lambda params, _: (params.path.native, params.link.native),
    links.symlink,
    links.symlink_nofollow,
    is_short=True,
)


def _canonicalize(path: bytes) -> fs.CanonicalizeResult:
    return fs.CanonicalizeResult(PathUri.of(local.canonicalize(path)))


CANONICALIZE = Operation(
    fs.CANONICALIZE, lambda params, _: (params.path.native,), _canonicalize, is_short=True
)
CREATE_DIRECTORY = Operation(
    fs.CREATE_DIRECTORY,
    lambda params, _: (params.path.native, params.recursive is not False),
    local.create_directory,
    nofollow.create_directory,
)
REMOVE = Operation(
    fs.REMOVE,
    lambda params, _: (
        params.path.native,
        params.recursive is not False,
        params.force is not False,
    ),
    local.remove,
    nofollow.remove,
)
RENAME = Operation(
    fs.RENAME,
    lambda params, _: (
        params.source_path.native,
        params.destination_path.native,
        params.overwrite,
    ),
    attributes.rename,
    attributes.rename_nofollow,
    is_short=True,
)
SET_PERMISSIONS = Operation(
    fs.SET_PERMISSIONS,
    lambda params, _: (
        params.path.native,
        params.mode,
        params.modified_at_ms,
        params.accessed_at_ms,
    ),
    attributes.set_permissions,
    attributes.set_permissions_nofollow,
    is_short=True,
)

# Trees.


def _read_directory(
    path: bytes, limit: int, is_complete: bool, is_cancelled: IsCancelled
) -> Encoded:
    listing = complete_listing if is_complete else read_directory
    return listing(path, limit, is_cancelled)


READ_DIRECTORY = BulkOperation(
    fs.READ_DIRECTORY,
    lambda params, limits: (params.path.native, limits.directory_entries, params.complete),
    _read_directory,
)


def _walk_arguments(params: fs.WalkParams, limits: Limits) -> tuple[bytes, dict[str, Any], int]:
    check_limits(params.options, limits)
    return params.path.native, msgspec.to_builtins(params.options), limits.walk_answer_bytes


def _walk(
    path: bytes, options: dict[str, Any], answer_bytes: int, is_cancelled: IsCancelled
) -> Encoded:
    return walk(path, msgspec.convert(options, fs.WalkOptions), answer_bytes, is_cancelled)


WALK = BulkOperation(fs.WALK, _walk_arguments, _walk)
COPY = Operation(
    fs.COPY,
    lambda params, _: (
        params.source_path.native,
        params.destination_path.native,
        params.recursive,
        params.archive,
    ),
    copy,
)

OPERATIONS: dict[str, Operation[Any, Any]] = {
    value.name: value for value in tuple(vars().values()) if isinstance(value, Operation)
}
