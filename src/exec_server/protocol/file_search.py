"""`fs/search`: find text in files, or files by name. An extension of ours."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.protocol.fs import FAMILY, Confined, Sandbox
from exec_server.protocol.method import Event, Method, Nothing
from exec_server.protocol.numbers import Count
from exec_server.protocol.paths import PathUri
from exec_server.protocol.sandbox import OldSandbox

# The most patterns of one kind in one request, and the longest one.
_MOST_PATTERNS = 1000
_Pattern = Annotated[str, msgspec.Meta(max_length=4096)]
_Patterns = Annotated[tuple[_Pattern, ...], msgspec.Meta(max_length=_MOST_PATTERNS)]
_Lines = Annotated[int, msgspec.Meta(ge=0, le=100)]
_Identifier = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class SearchParams(Confined, rename="camel", omit_defaults=True):
    """Searches the files at and below a path. Symbolic links below it are not followed."""

    # The client chooses this name, under which the results come.
    search_id: _Identifier
    path: PathUri
    # A regular expression, or a text with `literal`.
    pattern: _Pattern
    # `content` searches in files, line by line; `names` searches in the paths below `path`.
    mode: Literal["content", "names"] = "content"
    literal: bool = False
    ignore_case: bool = False
    whole_words: bool = False
    # Only files with one of these names, as in .gitignore; `!` excludes files instead.
    globs: _Patterns = ()
    # Hidden files are searched, too; and files that .gitignore and .ignore name.
    hidden: bool = False
    ignored: bool = False
    # Lines around a match.
    before: _Lines = 0
    after: _Lines = 0
    # None are the server's limits.
    max_matches: Count | None = None
    max_seconds: float | None = None
    sandbox: Sandbox = None
    sandbox_policy: OldSandbox | None = None


class CancelSearchParams(msgspec.Struct, rename="camel"):
    search_id: str


class SearchMatch(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """A line with a match, a line around one, or a name."""

    path: str
    # The line's number, from 1 on; None for a name.
    line: int | None = None
    # The line without its end, or the path below the root; bytes that are not UTF-8 are replaced.
    text: str = ""
    # Where the matches are in `text`, in characters.
    ranges: list[tuple[int, int]] = []
    is_context: bool = False


class SearchEnd(msgspec.Struct, rename="camel", omit_defaults=True):
    """How a search has ended."""

    reason: Literal["complete", "matches", "time", "cancelled", "failed"]
    # What failed, or the first file that could not be read.
    message: str = ""
    matches: int = 0
    # `ripgrep`, or `walker` if the machine does not have it.
    engine: str = ""


class SearchFoundEvent(msgspec.Struct, rename="camel"):
    search_id: str
    matches: list[SearchMatch]
    # The last event of a search has it.
    end: SearchEnd | UnsetType = UNSET


# Starts a search, whose results come as events.
SEARCH = Method("fs/search", SearchParams, Nothing, family=FAMILY)
# Ends a search early.
CANCEL_SEARCH = Method(
    "fs/cancelSearch", CancelSearchParams, Nothing, family=FAMILY, is_control=True
)

# Some results of a search.
SEARCH_FOUND = Event("fs/searchFound", SearchFoundEvent)
