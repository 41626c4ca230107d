"""`fs/search`: find text in files, or files by name. An extension of ours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import count, repeat
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.limits import Limits
from exec_server.protocol.base64 import Blob
from exec_server.protocol.envelope import has_too_many_values
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
    # Results come as `dataBase64`, which takes less time to read and less of the wire. Only servers
    # with `fsSearchPacked` know it.
    packed: bool = False
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


_Ranges = tuple[tuple[int, int], ...]


class FileHits(msgspec.Struct, array_like=True, gc=False):
    """Hits of one file that follow one another, in columns; or one name."""

    path: str
    # The numbers of the lines, from 1 on; empty for a name.
    lines: list[int]
    # As `text` and `ranges` of SearchMatch.
    texts: list[str]
    ranges: list[_Ranges]
    # Which of them have no match themselves: their places in the lists above, in order.
    context: list[int]

    def __post_init__(self) -> None:
        size = len(self.texts)
        if len(self.ranges) != size or len(self.lines) != (size if self.lines else 0):
            raise ValueError("the columns have different lengths")
        if self.context and not 0 <= min(self.context) <= max(self.context) < size:
            raise ValueError("there is no such line")

    @property
    def match_count(self) -> int:
        return len(self.texts) - len(self.context)

    def first(self, matches: int) -> FileHits:
        """What comes before the match that follows the first *matches*."""
        around = set(self.context)
        places = [place for place in range(len(self.texts)) if place not in around]
        end = places[matches] if matches < len(places) else len(self.texts)
        context = [place for place in self.context if place < end]
        return FileHits(self.path, self.lines[:end], self.texts[:end], self.ranges[:end], context)


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
    # With `packed` they are here instead, as JSON; `fsSearchPacked` in docs/wire.md says how.
    data_base64: Blob | UnsetType = UNSET
    # The last event of a search has it.
    end: SearchEnd | UnsetType = UNSET


class _PackedFile(msgspec.Struct, array_like=True, gc=False):
    """As FileHits, with places of PackedHits.ranges."""

    path: str
    lines: list[int]
    texts: list[str]
    ranges: list[Annotated[int, msgspec.Meta(ge=0)]]
    context: list[int]


class PackedHits(msgspec.Struct, array_like=True, gc=False):
    """Many hits. The matches of most of them are at the same few places."""

    # Each `ranges` of a hit once.
    ranges: list[_Ranges]
    files: list[_PackedFile]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(PackedHits).decode


def packed(found: list[FileHits]) -> Blob:
    """*found* as the member `dataBase64` of an event."""
    places: defaultdict[_Ranges, int] = defaultdict(count().__next__)
    place = places.__getitem__
    files = [
        _PackedFile(each.path, each.lines, each.texts, list(map(place, each.ranges)), each.context)
        for each in found
    ]
    return Blob(_encode(PackedHits(list(places), files)))


def unpacked(blob: Blob, limits: Limits) -> list[FileHits]:
    """The hits in a `dataBase64`. Raises ValueError."""
    # The limit of messages does not count what is in their base64.
    if has_too_many_values(blob.data, limits):
        raise ValueError(f"more than {limits.json_values} JSON values")
    found = _decode(blob.data)
    # Hits share their ranges, which are the larger part of what would be made for a hit.
    ranges = found.ranges.__getitem__
    try:
        return [
            FileHits(
                each.path, each.lines, each.texts, list(map(ranges, each.ranges)), each.context
            )
            for each in found.files
        ]
    except IndexError:
        raise ValueError("there are no such ranges") from None


def as_matches(found: list[FileHits]) -> list[SearchMatch]:
    """*found* as the member `matches` of an event."""
    matches: list[SearchMatch] = []
    for each in found:
        around = set(each.context)
        numbers: Iterable[int | None] = each.lines or repeat(None, len(each.texts))
        for place, (line, text, ranges) in enumerate(
            zip(numbers, each.texts, each.ranges, strict=True)
        ):
            matches.append(SearchMatch(each.path, line, text, list(ranges), place in around))
    return matches


# Starts a search, whose results come as events.
SEARCH = Method("fs/search", SearchParams, Nothing, family=FAMILY)
# Ends a search early.
CANCEL_SEARCH = Method(
    "fs/cancelSearch", CancelSearchParams, Nothing, family=FAMILY, is_control=True
)

# Some results of a search.
SEARCH_FOUND = Event("fs/searchFound", SearchFoundEvent)
