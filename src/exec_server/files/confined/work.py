"""What a helper can be asked to do. Everything may block; answers are JSON, or an open file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import msgspec

from exec_server.errors import InvalidRequest
from exec_server.files.confined.packets import FileContent
from exec_server.files.operations import atomic_write, attributes, local, nofollow
from exec_server.files.operations.content import Content
from exec_server.files.operations.copy import copy as copy_tree
from exec_server.files.operations.directory_listing import read_directory as list_directory
from exec_server.files.operations.oserrors import os_error
from exec_server.files.operations.walk import walk as walk_tree
from exec_server.limits import Limits
from exec_server.protocol import fs
from exec_server.protocol.environment import CapabilitiesResult, CapabilityRoot, DiscoveredRoot
from exec_server.protocol.hooks import encode_hook
from exec_server.protocol.method import NOTHING, Encoded
from exec_server.protocol.paths import PathUri

_encode = msgspec.json.Encoder(enc_hook=encode_hook).encode


class OpenedFile(msgspec.Struct):
    """A file that whoever asked now has open; the descriptor is the receiver's to close."""

    fd: int


def read_file(path: bytes, follow: bool, limit: int) -> Encoded:
    read = local.read_file if follow else nofollow.read_file
    return read(path, limit, _never)


def write_file(path: bytes, follow: bool, is_atomic: bool, *, content: Content) -> None:
    if is_atomic:
        atomic_write.write_file(path, content, follow)
    elif not follow:
        nofollow.write_file(path, content)
    else:
        try:
            local.write_file(path, content)
        except local.SpecialFile:
            _write_special(path, content)


def _write_special(path: bytes, content: Content) -> None:
    """Write to a FIFO or a device what it takes without waiting, or fail."""
    fd = os.open(path, os.O_WRONLY | local.QUIET)
    try:
        # The kernel lets a FIFO be written on a mount that is read-only.
        if os.fstatvfs(fd).f_flag & os.ST_RDONLY:
            raise os_error(errno.EROFS)
        data = content if isinstance(content, bytes) else content.decode()
        if os.write(fd, data) < len(data):
            raise InvalidRequest("the FIFO or device takes no more without waiting")
    finally:
        os.close(fd)


def append(path: bytes, follow: bool, create: bool, *, content: Content) -> fs.AppendResult:
    data = content if isinstance(content, bytes) else content.decode()
    return (local.append if follow else nofollow.append)(path, data, create)


def open_file(path: bytes, is_replaced: bool) -> OpenedFile:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if is_replaced else os.O_RDONLY
    fd, _ = local.open_regular(path, flags)
    return OpenedFile(fd)


def get_metadata(path: bytes, follow: bool) -> fs.Metadata:
    return (local.get_metadata if follow else nofollow.get_metadata)(path)


def canonicalize(path: bytes) -> fs.CanonicalizeResult:
    return fs.CanonicalizeResult(PathUri.of(local.canonicalize(path)))


def create_directory(path: bytes, follow: bool, recursive: bool) -> None:
    (local.create_directory if follow else nofollow.create_directory)(path, recursive)


def remove(path: bytes, follow: bool, recursive: bool, force: bool) -> None:
    (local.remove if follow else nofollow.remove)(path, recursive, force)


def rename(source: bytes, destination: bytes, overwrite: bool, follow: bool) -> None:
    attributes.rename(source, destination, overwrite, follow)


def set_permissions(
    path: bytes, mode: int | None, modified_ms: int | None, accessed_ms: int | None, follow: bool
) -> None:
    attributes.set_permissions(path, mode, modified_ms, accessed_ms, follow)


def copy(source: bytes, destination: bytes, recursive: bool) -> None:
    copy_tree(source, destination, recursive)


def read_directory(path: bytes, limit: int) -> Encoded:
    return list_directory(path, limit, _never)


def walk(path: bytes, options: dict[str, Any], limit: int) -> Encoded:
    return walk_tree(path, msgspec.convert(options, fs.WalkOptions), limit, _never)


# The one part of this that is not about `fs/*`; few helpers are asked to.


def discover_root(root_id: str, uri: str, numbers: dict[str, int]) -> DiscoveredRoot:
    from exec_server.discovery.roots import discover

    return discover(CapabilityRoot(root_id, PathUri(uri)), Limits(**numbers))


def discover_installed(homes: list[Any], numbers: dict[str, int]) -> CapabilitiesResult:
    from exec_server.discovery.homes import Homes
    from exec_server.discovery.installed import discover

    return discover(Homes(*homes), limits=Limits(**numbers))


def _never() -> bool:
    return False


# Done at once, in the order they came: none of these goes over more than one file's name.
SHORT: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        append,
        canonicalize,
        get_metadata,
        open_file,
        read_file,
        rename,
        set_permissions,
        write_file,
    )
}
# Each beside the others.
LONG: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        copy,
        create_directory,
        discover_installed,
        discover_root,
        read_directory,
        remove,
        walk,
    )
}
_ALL = SHORT | LONG


def perform(
    operation: str, args: tuple[Any, ...], content: bytes | FileContent | None
) -> tuple[bytes, ...] | OpenedFile:
    """The result of one call, as pieces of JSON or as an open file.

    Raises RpcError and OSError.
    """
    function = _ALL[operation]
    result = function(*args) if content is None else function(*args, content=content)
    if isinstance(result, OpenedFile):
        return result
    if isinstance(result, Encoded):
        return result.parts
    return (_encode(NOTHING if result is None else result),)
