"""The options of `rg --json`, and the lines that it prints, for an agent and for the server."""

from __future__ import annotations

import base64
import re
from typing import Any

import msgspec

from exec_server.files.agents.match_batches import TEXT_CHARS
from exec_server.protocol.file_search import FileHits, SearchEnd
from exec_server.protocol.paths import to_uri

# A line with more is not a line of text, and is left out.
_LINE_BYTES = 4 * 1024 * 1024
# What is shown of a line has no more.
_TEXT_BYTES = 4 * TEXT_CHARS
# The status of rg after an error; it may have printed matches before.
_ERROR = 2
_NO_SUCH_PLACE = re.compile(r"(?:rg: )?(.*): (.*) \(os error \d+\)", re.DOTALL)


class _RipgrepText(msgspec.Struct, frozen=True, gc=False):
    """Text, or bytes in base64 if it is not UTF-8."""

    text: str | None = None
    encoded: str = msgspec.field(default="", name="bytes")

    def as_bytes(self) -> bytes:
        return base64.b64decode(self.encoded) if self.text is None else self.text.encode()


class _ByteSpan(msgspec.Struct, gc=False):
    """A match, in bytes of its line."""

    start: int
    end: int


class _RipgrepStats(msgspec.Struct, frozen=True, gc=False):
    searches: int = 0


class _BeginFacts(msgspec.Struct, gc=False):
    path: _RipgrepText


class _LineFacts(msgspec.Struct, gc=False):
    lines: _RipgrepText
    line_number: int = 0
    submatches: list[_ByteSpan] = []


class _Stats(msgspec.Struct, gc=False):
    searches: int = 0


class _SummaryFacts(msgspec.Struct, gc=False):
    stats: _Stats


class _RipgrepBegin(msgspec.Struct, gc=False, tag_field="type", tag="begin"):
    """The lines of a file follow it, and no line is before the first one."""

    data: _BeginFacts


class _RipgrepMatch(msgspec.Struct, gc=False, tag_field="type", tag="match"):
    data: _LineFacts


class _RipgrepContext(_RipgrepMatch, gc=False, tag="context"):
    pass


class _RipgrepEnd(msgspec.Struct, gc=False, tag_field="type", tag="end"):
    pass


class _RipgrepSummary(msgspec.Struct, gc=False, tag_field="type", tag="summary"):
    data: _SummaryFacts


# One call for many lines: a call for each of them takes as long as its line. Each kind has only the
# members that are wanted; all others are skipped.
_decode_lines = msgspec.json.Decoder(
    _RipgrepBegin | _RipgrepMatch | _RipgrepContext | _RipgrepEnd | _RipgrepSummary
).decode_lines


def ripgrep_options(request: dict[str, Any]) -> list[str]:
    """The options that say what *request* says."""
    words = ["--json", "--no-config", "-e", request["pattern"]]
    flags = {
        "literal": "--fixed-strings",
        "ignoreCase": "--ignore-case",
        "wholeWords": "--word-regexp",
        "hidden": "--hidden",
        "ignored": "--no-ignore",
    }
    words += [flag for name, flag in flags.items() if request[name]]
    words += [f"--before-context={request['before']}", f"--after-context={request['after']}"]
    for glob in request["globs"]:
        words += ["--glob", glob]
    return words


class RipgrepOutput:
    """What one `rg --json` has printed so far."""

    def __init__(self) -> None:
        # The files that it has searched; None until it has said so at its end.
        self._searched: int | None = None
        # The file whose lines come.
        self._uri: str | None = None
        self._rest = b""
        self._is_skipping = False

    def take(self, data: bytes) -> list[FileHits]:
        """The hits that *data* completes. Raises msgspec.MsgspecError and ValueError."""
        found: list[FileHits] = []
        file: FileHits | None = None
        for message in _decode_lines(self._complete_lines(data)):
            if isinstance(message, _RipgrepMatch):
                if file is None:
                    file = self._file_hits()
                    found.append(file)
                    lines, texts, ranges = file.lines, file.texts, file.ranges
                facts = message.data
                text, spans = facts.lines.text, facts.submatches
                if type(message) is _RipgrepContext:
                    file.context.append(len(texts))
                lines.append(facts.line_number)
                if (
                    text is not None
                    and len(spans) == 1
                    and spans[0].end <= TEXT_CHARS
                    and text.isascii()
                ):
                    # The usual case of what `_ranges` does.
                    ranges.append(((spans[0].start, spans[0].end),))
                else:
                    ranges.append(_ranges(facts) if spans else ())
                    if text is None:
                        text = facts.lines.as_bytes().decode("utf-8", "replace")
                texts.append(text.rstrip("\r\n")[:TEXT_CHARS])
            elif type(message) is _RipgrepBegin:
                self._uri, file = to_uri(message.data.path.as_bytes()), None
            elif type(message) is _RipgrepSummary:
                self._searched = message.data.stats.searches
        return found

    def _file_hits(self) -> FileHits:
        """A place for lines of the file that has begun."""
        if self._uri is None:
            raise ValueError("a line of no file")
        return FileHits(self._uri, [], [], [], [])

    def _complete_lines(self, data: bytes) -> bytes:
        """The lines that *data* completes, without those that are too long."""
        end = data.rfind(b"\n") + 1
        if not end:
            if not self._is_skipping:
                self._rest += data
            if len(self._rest) > _LINE_BYTES:
                self._rest, self._is_skipping = b"", True
            return b""
        start = data.index(b"\n") + 1 if self._is_skipping else 0
        self._is_skipping = False
        lines, self._rest = self._rest + data[start:end], data[end:]
        return lines

    def end(self, status: int | None, complaints: str, root: bytes) -> SearchEnd:
        """How a search of *root* has ended, with what rg has said on stderr."""
        message = complaints.partition("\n")[0]
        if self._searched is None:
            # It could not read the pattern, or was killed.
            return SearchEnd("failed", complaints or f"rg ended with status {status}")
        if status == _ERROR and not self._searched:
            said = _NO_SUCH_PLACE.fullmatch(message)
            if said is not None and said[1] == root.decode("utf-8", "replace"):
                return SearchEnd("failed", said[2])
        return SearchEnd("complete", message)


def _ranges(data: _LineFacts) -> tuple[tuple[int, int], ...]:
    # A character has four bytes at most. A line may have tens of thousands of matches.
    spans = [(each.start, each.end) for each in data.submatches if each.end <= _TEXT_BYTES]
    text = data.lines.text
    if text is None or not text.isascii():
        line = data.lines.as_bytes().rstrip(b"\r\n")
        spans = _in_characters(line[:_TEXT_BYTES], spans)
    return tuple([each for each in spans if each[1] <= TEXT_CHARS])


def _in_characters(line: bytes, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same ranges, counted in characters of the text of *line* and not in its bytes.

    The last one may be behind what is shown; those after it are left out.
    """

    def place(offset: int) -> int:
        return len(line[:offset].decode("utf-8", "replace"))

    found: list[tuple[int, int]] = []
    for start, end in spans:
        found.append((place(start), place(end)))
        if found[-1][0] > TEXT_CHARS:
            break
    return found
