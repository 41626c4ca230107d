"""`fs/*`: shapes and names.

The module is long because one family of methods has all its shapes in one place.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.errors import InvalidParams
from exec_server.protocol.base64 import Blob, LazyBlob
from exec_server.protocol.method import Event, Method, Nothing
from exec_server.protocol.numbers import Count, fits_u64
from exec_server.protocol.paths import PathUri
from exec_server.protocol.sandbox import OldSandbox, SandboxContext

FAMILY = "filesystem"

# Milliseconds since 1970, within the range of a signed 64-bit number of nanoseconds.
Instant = Annotated[int, msgspec.Meta(ge=-(2**63) // 1_000_000 + 1, le=2**63 // 1_000_000 - 1)]
# The permission, set-id and sticky bits.
Mode = Annotated[int, msgspec.Meta(ge=0, le=0o7777)]
# The files that the request may touch; None is no restriction.
Sandbox = SandboxContext | None


def _check_u64(*values: int) -> None:
    if not fits_u64(*values):
        raise InvalidParams("invalid number: more than 64 bits")


class Confined(msgspec.Struct):
    """Parameters with a `sandbox`; the value of `sandboxPolicy`, its older name, moves to it.

    Each shape declares both members last, so this base class declares none.
    """

    def __post_init__(self) -> None:
        _adopt_old_sandbox(self)


def _adopt_old_sandbox(params: Any) -> None:
    if params.sandbox_policy is not None:
        params.sandbox, params.sandbox_policy = params.sandbox or params.sandbox_policy, None


class ReadFileParams(Confined, rename="camel", omit_defaults=True):
    path: PathUri
    # False refuses a symbolic link anywhere in the path; None and True follow links.
    follow_symlinks: bool | None = None
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


class ReadFileResult(msgspec.Struct, rename="camel"):
    data_base64: Blob


class OpenParams(Confined, rename="camel", omit_defaults=True):
    # The client chooses this name for the file, which is valid until `fs/close`.
    handle_id: str
    path: PathUri
    # `replace` creates the file or empties it at once. Ours: `update` creates it or keeps its
    # content, and it can be read and written.
    mode: Literal["read", "replace", "update"] = "read"
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


class OpenResult(msgspec.Struct, rename="camel"):
    handle_id: str


class ReadBlockParams(msgspec.Struct, rename="camel"):
    handle_id: str
    offset: Count
    len: Count

    def __post_init__(self) -> None:
        _check_u64(self.offset, self.len)


class ReadBlockResult(msgspec.Struct, rename="camel"):
    chunk: Blob
    # True if fewer bytes came than were asked for.
    eof: bool


class WriteBlockParams(msgspec.Struct, rename="camel"):
    handle_id: str
    offset: Count
    chunk: Blob

    def __post_init__(self) -> None:
        _check_u64(self.offset)


class CloseParams(msgspec.Struct, rename="camel"):
    handle_id: str


class WriteFileParams(Confined, rename="camel", omit_defaults=True):
    """Replaces the content of a file in place: its inode, mode and hard links stay.

    Ours: with `atomic` the new content replaces the old in one step, or not at all. It is written
    to a new file beside the old one, flushed to disk and renamed. The mode is kept, and the owner
    if the system allows it. Hard links are not kept. A symbolic link to the file stays a link.
    """

    path: PathUri
    data_base64: LazyBlob
    follow_symlinks: bool | None = None
    atomic: bool = False
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


class CreateDirectoryParams(Confined, rename="camel", omit_defaults=True):
    path: PathUri
    # None means True.
    recursive: bool | None = None
    follow_symlinks: bool | None = None
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


class GetMetadataParams(Confined, rename="camel", omit_defaults=True):
    path: PathUri
    follow_symlinks: bool | None = None
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None
    # Ours: the answer also has the members of Metadata that are ours.
    attributes: bool = False


class Metadata(msgspec.Struct, rename="camel", gc=False):
    """Describes the target of the path; only `is_symlink` is about the last component itself."""

    is_directory: bool
    is_file: bool
    # The oldest dialects have neither this nor `size`.
    is_symlink: bool = False
    size: int = 0
    # Milliseconds since 1970; 0 if the file system does not know.
    created_at_ms: int = 0
    modified_at_ms: int = 0
    # Ours, with `attributes` and of `fs/lstat`: the mode with the bits of the kind, as in
    # `os.stat`, the owner's numbers, and the number of hard links.
    mode: int | UnsetType = UNSET
    uid: int | UnsetType = UNSET
    gid: int | UnsetType = UNSET
    link_count: int | UnsetType = UNSET


class CanonicalizeParams(Confined, rename="camel", omit_defaults=True):
    path: PathUri
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


class CanonicalizeResult(msgspec.Struct, rename="camel"):
    path: PathUri


class ReadDirectoryParams(Confined, rename="camel", omit_defaults=True):
    path: PathUri
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None
    # Ours: also list links that lead nowhere, and names that are not UTF-8 exactly.
    complete: bool = False


class DirectoryEntry(msgspec.Struct, rename="camel", gc=False):
    # Bytes that are not UTF-8 are replaced by U+FFFD.
    file_name: str
    is_directory: bool
    is_file: bool
    # Ours, with `complete`: true for a link, and a name that is not UTF-8, percent-encoded.
    is_symlink: bool | UnsetType = UNSET
    encoded_name: str | UnsetType = UNSET

    @property
    def name(self) -> str:
        """The name, in which bytes that are not UTF-8 are surrogates, as in `os.fsdecode`."""
        if isinstance(self.encoded_name, str):
            return _unquoted(self.encoded_name).decode("utf-8", "surrogateescape")
        return self.file_name


def _unquoted(text: str) -> bytes:
    # Names that are not UTF-8 are rare, and the module takes a hundredth of a start.
    from urllib.parse import unquote_to_bytes

    return unquote_to_bytes(text)


class ReadDirectoryResult(msgspec.Struct, rename="camel"):
    entries: list[DirectoryEntry]


class WalkOptions(msgspec.Struct, rename="camel", omit_defaults=True):
    max_depth: Count
    max_directories: Count
    max_entries: Count
    follow_directory_symlinks: bool
    prune_hidden_directories: bool = False
    # An extension: names that are not UTF-8 are listed, in URIs that have their exact bytes.
    exact_names: bool = False
    # Ours: links that are not entered are listed, too, also those that lead nowhere.
    links: bool = False

    def __post_init__(self) -> None:
        _check_u64(self.max_depth, self.max_directories, self.max_entries)


class WalkParams(Confined, rename="camel", omit_defaults=True):
    path: PathUri
    options: WalkOptions
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


class WalkEntry(msgspec.Struct, rename="camel", gc=False):
    path: str
    # Only walks with `links` have links.
    kind: Literal["directory", "file", "symlink"]


class WalkError(msgspec.Struct, rename="camel", gc=False):
    path: str
    message: str


class WalkResult(msgspec.Struct, rename="camel"):
    entries: list[WalkEntry]
    errors: list[WalkError]
    truncated: bool


class RemoveParams(Confined, rename="camel", omit_defaults=True):
    path: PathUri
    # None means True for both.
    recursive: bool | None = None
    force: bool | None = None
    follow_symlinks: bool | None = None
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


class CopyParams(Confined, rename="camel", omit_defaults=True):
    source_path: PathUri
    destination_path: PathUri
    recursive: bool
    # Times and the modes of directories are kept, what has arrived already is not copied again, and
    # links below the destination are replaced. Servers with `fsCopyArchive` know it.
    archive: bool = False
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


class WatchMissingParams(msgspec.Struct, rename="camel", omit_defaults=True):
    watch_id: Count
    missing: list[PathUri]
    present: PathUri | None = None

    def __post_init__(self) -> None:
        _check_u64(self.watch_id)


class WatchMissingResult(msgspec.Struct, rename="camel"):
    watching: bool


class MissingChangedEvent(msgspec.Struct, rename="camel"):
    watch_id: int


class RenameParams(Confined, rename="camel", omit_defaults=True):
    """Ours: renames a file, directory or symbolic link within one file system.

    Like rename(2) it replaces the destination in the same step: a file by a file, an empty
    directory by a directory. Without `overwrite` it is an error if the destination exists.
    A symbolic link at the end of either path is renamed or replaced itself, never its target.
    """

    source_path: PathUri
    destination_path: PathUri
    overwrite: bool = True
    follow_symlinks: bool | None = None
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


class SetPermissionsParams(Confined, rename="camel", omit_defaults=True):
    """Ours: sets the mode and the times that are given, and keeps the others."""

    path: PathUri
    mode: Mode | None = None
    modified_at_ms: Instant | None = None
    accessed_at_ms: Instant | None = None
    follow_symlinks: bool | None = None
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


class AppendParams(Confined, rename="camel", omit_defaults=True):
    """Ours: writes at the end of a regular file."""

    path: PathUri
    data_base64: Blob
    # True makes a missing file. Its parent must exist in any case.
    create: bool = True
    follow_symlinks: bool | None = None
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


class AppendResult(msgspec.Struct, rename="camel"):
    # The size of the file after the write.
    size: int


class LstatParams(Confined, rename="camel", omit_defaults=True):
    """Ours: describes the last component of the path, also if it is a link that leads nowhere."""

    path: PathUri
    # False refuses a link among the directories of the path.
    follow_symlinks: bool | None = None
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


class ReadLinkParams(Confined, rename="camel", omit_defaults=True):
    """Ours: asks where a symbolic link leads."""

    path: PathUri
    follow_symlinks: bool | None = None
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


class LinkTarget(msgspec.Struct, rename="camel"):
    """The text in a link, which need not be the path of anything."""

    # Bytes that are not UTF-8 are replaced by U+FFFD; then the whole is in the second member, too,
    # percent-encoded.
    target: str
    encoded_target: str | UnsetType = UNSET

    @property
    def native(self) -> bytes:
        if isinstance(self.encoded_target, str):
            return _unquoted(self.encoded_target)
        return self.target.encode()


class SymlinkParams(Confined, rename="camel", omit_defaults=True):
    """Ours: makes a symbolic link, which must be new. Its target is not looked at."""

    path: PathUri
    link: LinkTarget
    follow_symlinks: bool | None = None
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


# Returns a whole file.
READ_FILE = Method(
    "fs/readFile", ReadFileParams, ReadFileResult, family=FAMILY, dialect="documented"
)
# Opens a file under an id of the client's choice, to read or write it in blocks.
OPEN = Method("fs/open", OpenParams, OpenResult, family=FAMILY, dialect="documented")
# Reads a block of an open file.
READ_BLOCK = Method(
    "fs/readBlock", ReadBlockParams, ReadBlockResult, family=FAMILY, dialect="documented"
)
# Writes a block of an open file.
WRITE_BLOCK = Method(
    "fs/writeBlock", WriteBlockParams, Nothing, family=FAMILY, dialect="undocumented"
)
# Closes an open file.
CLOSE = Method(
    "fs/close", CloseParams, Nothing, family=FAMILY, is_control=True, dialect="documented"
)
# Writes a whole file.
WRITE_FILE = Method("fs/writeFile", WriteFileParams, Nothing, family=FAMILY, dialect="documented")
# Makes a directory.
CREATE_DIRECTORY = Method(
    "fs/createDirectory", CreateDirectoryParams, Nothing, family=FAMILY, dialect="documented"
)
# Tells the kind, the size and the times of a file.
GET_METADATA = Method(
    "fs/getMetadata", GetMetadataParams, Metadata, family=FAMILY, dialect="documented"
)
# Resolves all links of a path.
CANONICALIZE = Method(
    "fs/canonicalize", CanonicalizeParams, CanonicalizeResult, family=FAMILY, dialect="documented"
)
# Lists a directory.
READ_DIRECTORY = Method(
    "fs/readDirectory",
    ReadDirectoryParams,
    ReadDirectoryResult,
    family=FAMILY,
    dialect="documented",
)
# Lists a tree of directories.
WALK = Method("fs/walk", WalkParams, WalkResult, family=FAMILY, dialect="undocumented")
# Removes a file, a link or a tree.
REMOVE = Method("fs/remove", RemoveParams, Nothing, family=FAMILY, dialect="documented")
# Copies a file or a tree on the server's machine.
COPY = Method("fs/copy", CopyParams, Nothing, family=FAMILY, dialect="documented")
# Asks for one notice when a missing file appears, or a present one changes.
WATCH_MISSING = Method(
    "fs/watchMissing", WatchMissingParams, WatchMissingResult, family=FAMILY, dialect="undocumented"
)
# Renames a file or a directory.
RENAME = Method("fs/rename", RenameParams, Nothing, family=FAMILY)
# Sets the mode of a file.
SET_PERMISSIONS = Method("fs/setPermissions", SetPermissionsParams, Nothing, family=FAMILY)
# Tells about a path without following a link at its end.
LSTAT = Method("fs/lstat", LstatParams, Metadata, family=FAMILY)
# Tells where a symbolic link points.
READ_LINK = Method("fs/readLink", ReadLinkParams, LinkTarget, family=FAMILY)
# Makes a symbolic link.
SYMLINK = Method("fs/symlink", SymlinkParams, Nothing, family=FAMILY)
# Appends to a file.
APPEND = Method("fs/append", AppendParams, AppendResult, family=FAMILY)

# A file of `fs/watchMissing` has appeared or changed.
MISSING_CHANGED = Event("fs/missingChanged", MissingChangedEvent, dialect="undocumented")
