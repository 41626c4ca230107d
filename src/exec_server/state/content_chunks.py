"""Cut content into chunks where the content itself says so.

The same content is cut in the same way wherever it is, so that after an insertion the chunks behind
it are the same again. Each byte is mapped to one of four symbols, and a chunk ends before a certain
sequence of symbols. Both steps are calls of C code: 400 MB a second, where a rolling checksum in
Python does 10.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

MIN_BYTES = 16 * 1024
MAX_BYTES = 256 * 1024


def _symbols() -> bytes:
    # Any fixed table will do in which neighbours are unrelated, also among letters and digits.
    digest = b"".join(hashlib.sha256(b"chunk table %d" % part).digest() for part in range(8))
    return bytes(value & 3 for value in digest)


_TABLE = _symbols()
# A sequence of eight symbols is found every 64 KiB in random content. Text has fewer kinds of bytes
# and repeats itself, so shorter sequences are looked for where there is none.
_MARKS = (
    bytes((0, 3, 1, 2, 3, 0, 2, 1)),
    bytes((2, 0, 1, 3, 0, 2)),
    bytes((1, 3, 2, 0)),
)


def cuts(data: bytes, *, is_last: bool) -> Iterator[int]:
    """The ends of the chunks in *data*, in order.

    Unless it *is_last*, more content follows, and what is left behind the last end belongs to it.
    """
    symbols = data.translate(_TABLE)
    start, size = 0, len(data)
    while size - start > MAX_BYTES or (is_last and start < size):
        start = _next_cut(symbols, start, size)
        yield start


def _next_cut(symbols: bytes, start: int, size: int) -> int:
    first, last = start + MIN_BYTES, min(start + MAX_BYTES, size)
    for mark in _MARKS:
        found = symbols.find(mark, first, last)
        if found >= 0:
            return found
    return last


def chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks of the content that *pieces* make up together."""
    rest = b""
    for piece in pieces:
        data, start = rest + piece, 0
        for end in cuts(data, is_last=False):
            yield data[start:end]
            start = end
        rest = data[start:]
    start = 0
    for end in cuts(rest, is_last=True):
        yield rest[start:end]
        start = end
