"""`fs/watch`: notices of changes in a directory and below it. An extension of ours."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.protocol.fs import FAMILY, Confined, Sandbox
from exec_server.protocol.method import Event, Method, Nothing
from exec_server.protocol.numbers import Count
from exec_server.protocol.paths import PathUri
from exec_server.protocol.sandbox import OldSandbox

_Identifier = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
_Pattern = Annotated[str, msgspec.Meta(max_length=4096)]
_Patterns = Annotated[tuple[_Pattern, ...], msgspec.Meta(max_length=1000)]


class WatchParams(Confined, rename="camel", omit_defaults=True):
    """Watches a directory, or a single file. It belongs to the session, and outlives connections.

    A client that has reconnected sends the same request again, with `after`.
    """

    # The client chooses this name, under which the events come.
    watch_id: _Identifier
    path: PathUri
    # True also watches everything below a directory. Symbolic links are not followed.
    recursive: bool = True
    # Names that are not watched, as in .gitignore.
    ignore: _Patterns = ()
    # The number of the last event that the client has; later ones are sent again.
    after: Count | None = None
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


class WatchResult(msgspec.Struct, rename="camel"):
    # The number of the last event so far.
    seq: int
    # True if the watch existed already.
    resumed: bool


class UnwatchParams(msgspec.Struct, rename="camel"):
    watch_id: str


class FileChange(msgspec.Struct, rename="camel", gc=False):
    """One path and how it was found after the change."""

    path: str
    # A directory that is removed is removed with everything below it.
    kind: Literal["created", "modified", "removed"]
    # What is there now; `missing` if it is removed.
    type: Literal["file", "directory", "symlink", "other", "missing"]


class FilesChangedEvent(msgspec.Struct, rename="camel", omit_defaults=True):
    watch_id: str
    seq: int
    changes: list[FileChange] = []
    # Directories in which anything may have changed, because notices were lost.
    rescan: list[str] = []
    # Why there will be no more events, if so.
    ended: str | UnsetType = UNSET


# Watches a directory or a file.
WATCH = Method("fs/watch", WatchParams, WatchResult, family=FAMILY)
# Ends a watch.
UNWATCH = Method("fs/unwatch", UnwatchParams, Nothing, family=FAMILY, is_control=True)

# Something has changed below a watched path.
FILES_CHANGED = Event("fs/filesChanged", FilesChangedEvent)
