"""Content is cut where the content says so."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from exec_server.state.content_chunks import MAX_BYTES, MIN_BYTES, chunks
from tests.requirements import requirement

MIB = 1024 * 1024


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@given(st.integers(0, 3 * MAX_BYTES), st.integers(1, MAX_BYTES), st.integers(0, 255))
@settings(max_examples=20, deadline=None)
@requirement("fs/signature:chunks")
def test_chunks_do_not_depend_on_the_pieces(size: int, step: int, kinds: int) -> None:
    source = random.Random(size)
    data = bytes(source.choices(range(kinds + 1), k=size))
    found = list(chunks(pieces(data, max(step, 4096))))
    assert b"".join(found) == data
    assert found == list(chunks([data]))
    assert all(MIN_BYTES <= len(each) <= MAX_BYTES for each in found[:-1])


@requirement("fs/signature:chunks")
def test_an_insertion_changes_few_chunks() -> None:
    source = random.Random(1)
    binary = source.randbytes(16 * MIB)
    words = [source.randbytes(source.randrange(1, 6)).hex() for _ in range(2000)]
    text = " ".join(source.choices(words, k=2 * MIB)).encode()[: 16 * MIB]
    for data in (binary, text):
        changed = b"a line at the beginning\n" + data[: 5 * MIB] + b"\none more\n" + data[5 * MIB :]
        before, after = set(chunks([data])), list(chunks([changed]))
        assert sum(len(each) for each in after if each not in before) < MIB
