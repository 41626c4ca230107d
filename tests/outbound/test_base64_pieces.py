"""Base64 of a body that arrives in pieces."""

from __future__ import annotations

import base64
import random

from hypothesis import given
from hypothesis import strategies as st

from exec_server.outbound import base64_pieces
from exec_server.outbound.base64_pieces import Base64Pieces
from tests.requirements import requirement


@given(st.lists(st.binary(max_size=50), max_size=20))
@requirement("http/answer:memory")
def test_pieces_of_any_size_are_the_base64_of_the_whole(pieces):
    body = Base64Pieces()
    for piece in pieces:
        body.add(piece)
    whole = b"".join(pieces)
    assert body.size == len(whole)
    assert b"".join(body.finish()) == base64.b64encode(whole)


@given(st.lists(st.integers(0, 3 * base64_pieces._PIECE_BYTES), max_size=4))
@requirement("http/answer:memory")
def test_long_pieces_are_cut_without_padding_between_them(sizes):
    body = Base64Pieces()
    whole = b""
    for size in sizes:
        data = random.Random(size).randbytes(size)
        body.add(data)
        whole += data
    assert b"".join(body.finish()) == base64.b64encode(whole)
