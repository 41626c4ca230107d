"""The options of `rg --json`, and the lines that it prints, for an agent and for the server."""

from __future__ import annotations

import base64
import re
from typing import Any, Literal

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


_NO_TEXT = _RipgrepText("")
_NO_STATS = _RipgrepStats()
_NO_HITS = FileHits("", [], [], [], [])


class _RipgrepFacts(msgspec.Struct, gc=False):
    # It is decoded once for each file.
    path: msgspec.Raw = msgspec.Raw(b'{"text":""}')
    lines: _RipgrepText = _NO_TEXT
    line_number: int = 0
    submatches: list[_ByteSpan] = []
    stats: _RipgrepStats = _NO_STATS


class _RipgrepLine(msgspec.Struct, gc=False):
    # These are known without a new text for each of them.
    type: Literal["begin", "match", "context", "end", "summary"]
    data: _RipgrepFacts


# One call for many lines: a call for each of them takes as long as its line.
_decode_lines = msgspec.json.Decoder(_RipgrepLine).decode_lines
_decode_text = msgspec.json.Decoder(_RipgrepText).decode


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
        self._rest = b""
        self._is_skipping = False

    def take(self, data: bytes) -> list[FileHits]:
        """The hits that *data* completes. Raises msgspec.MsgspecError and ValueError."""
        found: list[FileHits] = []
        path: msgspec.Raw | None = None
        file = _NO_HITS
        for message in _decode_lines(self._complete_lines(data)):
            kind, facts = message.type, message.data
            if kind == "match" or kind == "context":
                if facts.path != path:
                    # The hits of a file follow one another.
                    path = facts.path
                    file = FileHits(to_uri(_decode_text(path).as_bytes()), [], [], [], [])
                    found.append(file)
                if kind == "context":
                    file.context.append(len(file.texts))
                text, spans = facts.lines.text, facts.submatches
                if text is None:
                    text = facts.lines.as_bytes().decode("utf-8", "replace")
                    ranges = _ranges(facts)
                elif len(spans) == 1 and spans[0].end <= TEXT_CHARS and text.isascii():
                    # The usual case of what `_ranges` does.
                    ranges = ((spans[0].start, spans[0].end),)
                else:
                    ranges = _ranges(facts) if spans else ()
                file.lines.append(facts.line_number)
                file.texts.append(text.rstrip("\r\n")[:TEXT_CHARS])
                file.ranges.append(ranges)
            elif kind == "summary":
                self._searched = facts.stats.searches
        return found

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


def _ranges(data: _RipgrepFacts) -> tuple[tuple[int, int], ...]:
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
