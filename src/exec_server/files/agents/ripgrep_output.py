"""The options of `rg --json`, and the lines that it prints, for an agent and for the server."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from exec_server.files.agents.match_batches import TEXT_CHARS
from exec_server.protocol.file_search import SearchEnd, SearchMatch
from exec_server.protocol.paths import to_uri

# A line with more is not a line of text, and is left out.
_LINE_BYTES = 4 * 1024 * 1024
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


class _RipgrepStats(msgspec.Struct, gc=False):
    searches: int = 0


_NO_TEXT = _RipgrepText("")


class _RipgrepFacts(msgspec.Struct, gc=False):
    path: _RipgrepText | None = None
    lines: _RipgrepText = _NO_TEXT
    line_number: int | None = None
    submatches: list[_ByteSpan] = []
    stats: _RipgrepStats | None = None


class _RipgrepLine(msgspec.Struct, gc=False):
    type: str
    data: _RipgrepFacts


_decode = msgspec.json.Decoder(_RipgrepLine).decode


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
        # The last path; the matches of a file follow one another.
        self._path: _RipgrepText = _NO_TEXT
        self._uri = ""

    def take(self, data: bytes) -> Iterator[SearchMatch]:
        """The matches that *data* completes. Raises msgspec.MsgspecError and ValueError."""
        *lines, rest = (self._rest + data).split(b"\n")
        if self._is_skipping and lines:
            lines, self._is_skipping = lines[1:], False
        if len(rest) > _LINE_BYTES or self._is_skipping:
            rest, self._is_skipping = b"", True
        self._rest = rest
        for line in lines:
            found = self._match(_decode(line))
            if found is not None:
                yield found

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

    def _match(self, message: _RipgrepLine) -> SearchMatch | None:
        data, is_context = message.data, message.type == "context"
        if message.type == "summary":
            self._searched = data.stats.searches if data.stats is not None else 0
        if data.path is None or not (is_context or message.type == "match"):
            return None
        if data.path != self._path:
            self._path, self._uri = data.path, to_uri(data.path.as_bytes())
        if is_context:
            return SearchMatch(self._uri, data.line_number, _shown(data.lines), [], True)
        return SearchMatch(self._uri, data.line_number, _shown(data.lines), _ranges(data))


def _shown(line: _RipgrepText) -> str:
    text = line.text
    if text is None:
        text = line.as_bytes().decode("utf-8", "replace")
    return text.rstrip("\r\n")[:TEXT_CHARS]


def _ranges(data: _RipgrepFacts) -> list[tuple[int, int]]:
    spans = [(each.start, each.end) for each in data.submatches]
    text = data.lines.text
    if text is None or not text.isascii():
        spans = _in_characters(data.lines.as_bytes().rstrip(b"\r\n"), spans)
    return [each for each in spans if each[1] <= TEXT_CHARS]


def _in_characters(line: bytes, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same ranges, counted in characters of the text of *line* and not in its bytes."""

    def place(offset: int) -> int:
        return len(line[:offset].decode("utf-8", "replace"))

    return [(place(start), place(end)) for start, end in spans]
