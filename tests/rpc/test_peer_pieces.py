"""A message that a connection gives in pieces means what it means as a whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exec_server.errors import MalformedMessage
from exec_server.limits import DEFAULT_LIMITS
from exec_server.protocol.bulk import Cut
from exec_server.protocol.envelope import Notification, decoder
from exec_server.protocol.packed import packed_text
from exec_server.rpc.peer import Peer
from tests.requirements import requirement

BEFORE, AFTER = b'{"method":"m","params":{"seq":7,"chunk":"', b'"}}'
decode = decoder(DEFAULT_LIMITS, takes_packed=True)


def joined(pieces: list[bytes | memoryview], *, takes_packed: bool = True) -> bytes | Cut:
    peer = SimpleNamespace(takes_packed=takes_packed, _limits=DEFAULT_LIMITS)
    return Peer.join(cast(Peer, peer), pieces)


def meaning(data: bytes | Cut) -> Any:
    try:
        message = decode(data)
    except MalformedMessage as exc:
        return str(exc)
    assert isinstance(message, Notification)
    return message.params["seq"], message.params["chunk"].data


@requirement("packed/same-meaning", "packed/malformed")
@given(
    content=st.binary(min_size=1, max_size=3000),
    borders=st.lists(st.integers(1, 3000), max_size=4),
    spoiled=st.none() | st.tuples(st.integers(0, 60), st.integers(0, 255)),
)
@example(b"short", [1], None)
@example(b"short", [20], None)
def test_any_split_means_the_same(content, borders, spoiled):
    whole = bytearray(packed_text(BEFORE, AFTER) + content)
    if spoiled is not None:
        whole[spoiled[0] % len(whole)] = spoiled[1]
    ends = [*sorted(border for border in borders if border < len(whole)), len(whole)]
    pieces: list[bytes | memoryview] = []
    start = 0
    for end in ends:
        if start < end:
            pieces.append(memoryview(whole)[start:end])
        start = end
    assert len(joined(pieces)) == len(whole)
    assert meaning(joined(pieces)) == meaning(bytes(whole))


@requirement("packed/not-agreed")
def test_without_an_agreement_pieces_are_only_joined():
    whole = packed_text(BEFORE, AFTER) + b"content"
    assert joined([whole[:50], whole[50:]], takes_packed=False) == whole


def test_the_content_of_long_pieces_is_copied_once():
    whole = packed_text(BEFORE, AFTER) + bytes(200_000)
    cut = joined([whole[:60_000], whole[60_000:120_000], whole[120_000:]])
    assert isinstance(cut, Cut)
    assert meaning(cut) == (7, bytes(200_000))


@pytest.mark.parametrize("message", [b'{"id":1,"result":{}}', b"no JSON"])
def test_other_messages_are_joined(message):
    assert joined([message[:5], message[5:]]) == message


def test_a_piece_without_bytes_harms_nothing():
    assert joined([b"", b'{"id":1,', b'"result":{}}']) == b'{"id":1,"result":{}}'
