"""The chain of an audit log: each line has a number, its own hash and that of the line before it.

A line is ``{"n":NUMBER,"prev":"HASH",...,"hash":"HASH"}``. Its hash is the SHA-256 of its bytes up
to the member ``hash``, with ``}`` in its place. The first line of a chain has an empty ``prev``.

The check finds lines that are missing, changed, moved or cut. It cannot find lines that are missing
at the end: for this, the last number has to be known from elsewhere.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from exec_server.audit.event import AuditLine

TORN = "torn line"

_DIGITS = 64
_TAIL = re.compile(rb',"hash":"([0-9a-f]{64})"\}')
_TAIL_BYTES = len(b',"hash":""}') + _DIGITS
_decode = msgspec.json.Decoder(AuditLine).decode


class Link(NamedTuple):
    """The end of a chain: the number and the hash of its last line."""

    number: int = 0
    hash: str = ""

    def __str__(self) -> str:
        return f"{self.number} {self.hash or '-'}"


def linked(event: bytes, end: Link) -> tuple[bytes, Link]:
    """An encoded event as the next line after *end*, without a newline, and the new end."""
    number = end.number + 1
    body = b'{"n":%d,"prev":"%b",%b' % (number, end.hash.encode(), event[1:])
    digest = hashlib.sha256(body).hexdigest()
    return b'%b,"hash":"%b"}' % (body[:-1], digest.encode()), Link(number, digest)


def read_line(line: bytes) -> AuditLine | None:
    """The event of a line; None if it is none, whatever its hashes are."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def end_of(line: bytes) -> Link | None:
    """The end of a chain whose last line this is; None if it is changed, cut, or of no chain."""
    found = read_line(line)
    if found is None or not found.number or not is_unchanged(line, found):
        return None
    return Link(found.number, found.hash)


def is_unchanged(line: bytes, found: AuditLine) -> bool:
    """True if the hash of a line is right."""
    tail = _TAIL.fullmatch(line, len(line) - _TAIL_BYTES) if len(line) > _TAIL_BYTES else None
    if tail is None or tail[1].decode() != found.hash:
        return False
    return hashlib.sha256(line[: tail.start()] + b"}").hexdigest() == found.hash


def torn_detail(torn: bytes) -> str:
    """What the line after a torn one tells about it."""
    return f"{len(torn)} bytes, sha256 {hashlib.sha256(torn).hexdigest()}"


class LinePlace(NamedTuple):
    """A line of a file."""

    file: str
    # Counted from 1, as editors do.
    row: int

    def __str__(self) -> str:
        return f"{self.file}:{self.row}"


class Fault(NamedTuple):
    """Something that is wrong with the chain at *place*."""

    place: LinePlace
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class ChainCheck:
    """Checks the lines of a log, which are fed in order."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        # Things that are no faults, in words for a person.
        self.remarks: list[str] = []
        self.first: Link | None = None
        self.end = Link()
        self.lines = 0
        self._before_chain = 0
        # A line that is none, if it was the last one. The next one may say that it was torn.
        self._torn: tuple[LinePlace, bytes] | None = None
        self._anchored: set[Link] = set()

    def feed(self, place: LinePlace, line: bytes, wanted: Link | None = None) -> None:
        """Take the next line. If it is the one that *wanted* names, `has_anchor` is true then."""
        self.lines += 1
        found = read_line(line)
        if found is None:
            self._settle_torn()
            self._torn = (place, line)
            return
        if not found.number:
            self._settle_torn()
            self._unchained(place, found)
            return
        self._settle_torn(found)
        if self._check(place, line, found):
            self.end = Link(found.number, found.hash)
            if wanted is not None and self.end == wanted:
                self._anchored.add(wanted)

    def has_anchor(self, wanted: Link) -> bool:
        return wanted in self._anchored

    def finish(self) -> None:
        """No line follows."""
        if self._torn is not None:
            place, line = self._torn
            self._torn = None
            text = f"the last line is cut after {len(line)} bytes; the server marks it at its start"
            self.faults.append(Fault(place, text))
        if self._before_chain:
            self.remarks.insert(0, f"{self._before_chain} lines before the chain are not protected")
        if self.first is not None and self.first.number > 1:
            self.remarks.insert(
                0, f"the log begins with line {self.first.number}; older files are not there"
            )

    def _settle_torn(self, after: AuditLine | None = None) -> None:
        if self._torn is None:
            return
        (place, line), self._torn = self._torn, None
        if after is not None and after.name == TORN and after.detail == torn_detail(line):
            self.remarks.append(f"{place}: a line was cut by a crash; line {after.number} says so")
        else:
            self.faults.append(Fault(place, "this is no line of an audit log, or a part of one"))

    def _unchained(self, place: LinePlace, found: AuditLine) -> None:
        if found.hash or found.previous:
            self._fault(place, "a line was changed: its number is missing")
        elif self.first is None:
            # Lines of a release that had no chain.
            self._before_chain += 1
        else:
            self.faults.append(Fault(place, "this line has no number: it was added"))

    def _check(self, place: LinePlace, line: bytes, found: AuditLine) -> bool:
        """True if the chain goes on after this line."""
        if not is_unchanged(line, found):
            self._fault(place, f"line {found.number} was changed")
            # Its number and hash are what is known; the next line is compared with them.
            self._begin(found)
            return True
        if self.first is None:
            self._begin(found)
            return True
        return self._follows(place, found)

    def _begin(self, found: AuditLine) -> None:
        if self.first is None:
            self.first = Link(found.number, found.hash)

    def _follows(self, place: LinePlace, found: AuditLine) -> bool:
        expected = self.end.number + 1
        if found.number == 1 and not found.previous and expected > 1:
            text = "a new chain begins here, and the end of the one before it cannot be proved"
            self._fault(place, text)
            return True
        if found.number < expected:
            self._fault(place, f"line {found.number} is not in its place, or is there twice")
            return False
        if found.number > expected:
            last = found.number - 1
            gone = f"line {expected} is" if last == expected else f"lines {expected} to {last} are"
            self._fault(place, f"{gone} missing before line {found.number}")
        elif found.previous != self.end.hash:
            self._fault(
                place, f"line {found.number} does not follow the line {self.end.number} before it"
            )
        return True

    def _fault(self, place: LinePlace, text: str) -> None:
        self.faults.append(Fault(place, text))


def check(lines: Iterable[tuple[LinePlace, bytes]], wanted: Link | None = None) -> ChainCheck:
    """Check all *lines*, and whether the line *wanted* is one of them."""
    done = ChainCheck()
    for place, line in lines:
        done.feed(place, line, wanted)
    done.finish()
    return done


def placed(file: str, lines: Iterable[bytes]) -> Iterator[tuple[LinePlace, bytes]]:
    """The lines of one file with their places."""
    for row, line in enumerate(lines, 1):
        yield LinePlace(file, row), line
