"""Messages that arrive in pieces, and the base64 in them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exec_server.errors import MalformedMessage
from exec_server.protocol import bulk
from exec_server.protocol.base64 import Blob, LongBase64, encode_base64
from exec_server.protocol.bulk import Assembly, Cut
from exec_server.protocol.envelope import Request, decode
from tests.requirements import requirement

DATA = bytes(range(256)) * 4
TEXT = encode_base64(DATA)
HEAD, TAIL = b'{"id":1,"method":"m","params":{"path":"/a","dataBase64":"', b'","x":1}}'


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch):
    """Small limits, so that short messages are treated like long ones."""
    monkeypatch.setattr(bulk, "AROUND_BYTES", 100)
    monkeypatch.setattr(bulk, "PIECE_CHARS", 64)
    monkeypatch.setattr(bulk, "_LEAST_CHARS", 16)
    monkeypatch.setattr(bulk, "_END_BYTES", 100)


def assembled(data: bytes, cuts: list[int]) -> bytes | Cut:
    assembly = Assembly()
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        # The caller reuses the memory afterwards.
        piece = bytearray(data[start:end])
        assembly.add(memoryview(piece))
        piece[:] = bytes(len(piece))
    return assembly.finish()


def outcome(data: bytes | Cut) -> object:
    """The message with plain bytes in place of base64, or the error."""
    try:
        message = decode(data)
    except MalformedMessage as exc:
        return str(exc)
    if isinstance(message, Request) and isinstance(message.params, dict):
        for name, value in message.params.items():
            if isinstance(value, LongBase64):
                message.params[name] = Blob(value.decode())
            elif isinstance(value, str) and value == TEXT.decode():
                message.params[name] = Blob(DATA)
    return message


def test_base64_is_decoded_while_it_arrives():
    message = assembled(HEAD + TEXT + TAIL, [150, 700])
    assert isinstance(message, Cut)
    assert (message.head, message.tail) == (HEAD, TAIL)
    assert message.bulk.decode() == DATA
    assert len(message) == len(HEAD + TEXT + TAIL)


spoils = st.sampled_from([b"", b"=", b"!", b"\\", b'"', b"\n", b"\xff", b"A", b'"chunk":"'])


@given(
    st.sampled_from([HEAD, HEAD.replace(b"path", b"chunk"), HEAD[:-1], b"x" * 120 + HEAD]),
    st.integers(0, len(TEXT)),
    spoils,
    st.sampled_from([TAIL, b"", b'","dataBase64":""}}', b'"' + TAIL, b" " * 200 + TAIL]),
    st.lists(st.integers(0), max_size=30),
)
@example(HEAD, 0, b"", TAIL, list(range(2000)))
@example(HEAD, len(TEXT), b"", TAIL, [])
@requirement("envelope/bulk")
def test_a_message_means_the_same_however_it_is_cut(head, where, spoil, tail, cuts):
    data = head + TEXT[:where] + spoil + TEXT[where:] + tail
    found = assembled(data, cuts)
    assert (found.text() if isinstance(found, Cut) else found) == data
    assert outcome(found) == outcome(data)
    # One that comes whole may be cut without a copy, and then it is text.
    whole = bulk.cut(memoryview(data))
    if whole is not None:
        assert (whole.text(), len(whole)) == (data, len(data))
        assert outcome(whole) == outcome(data)
        assert data.decode()


def test_a_whole_message_is_cut_around_its_base64():
    message = bulk.cut(memoryview(HEAD + TEXT + TAIL))
    assert message is not None
    assert (message.head, message.tail) == (HEAD, TAIL)
    assert message.bulk.decode() == DATA


@pytest.mark.parametrize(
    "data",
    [
        HEAD + TEXT[:400] + b"!" + TEXT[400:] + TAIL,
        HEAD + TEXT[:400] + b"\xff" + TEXT[400:] + TAIL,
        b"\xff" + HEAD + TEXT + TAIL,
        HEAD + TEXT + b'","x":"\xff"}}',
        HEAD + TEXT + TAIL + b" " * 200,
        HEAD.replace(b"dataBase64", b"other") + TEXT + TAIL,
        b" " * 200 + HEAD + TEXT + TAIL,
        # The quote that ends it is the first one of the whole message.
        HEAD + b'"',
        HEAD[:-1],
        b"",
    ],
)
def test_whatever_is_unusual_is_read_as_a_whole(data):
    found = bulk.cut(memoryview(data))
    assert found is None or found.text() == data
    assert outcome(data if found is None else found) == outcome(data)


@given(st.binary(max_size=300), st.lists(st.integers(0), max_size=10))
def test_it_is_text_exactly_when_all_of_it_is(noise, cuts):
    for data in (noise, HEAD + TEXT + noise, HEAD + noise + TEXT + TAIL):
        assembly = Assembly()
        edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        for start, end in pairwise(edges):
            assembly.add(memoryview(data[start:end]))
        try:
            data.decode()
            is_text = True
        except UnicodeDecodeError:
            is_text = False
        assert assembly.is_utf8() == is_text
