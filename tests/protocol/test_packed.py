"""Packed messages mean what their text with base64 means."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import MalformedMessage
from exec_server.limits import DEFAULT_LIMITS
from exec_server.protocol.base64 import Blob, LongBase64, encode_base64
from exec_server.protocol.envelope import decoder
from exec_server.protocol.packed import packed_text, unpack
from tests.requirements import requirement

decode = decoder(DEFAULT_LIMITS, takes_packed=True)

SURROUNDINGS = [
    (b'{"id":1,"method":"m","params":{"processId":"p","chunk":"', b'","writeId":"w"}}'),
    (b'{"method":"m","params":{"seq":7,"stream":"stdout","chunk":"', b'"}}'),
    (b'{"id":7,"result":{"chunk":"', b'","eof":false}}'),
    (b'{"id":7,"result":{"dataBase64":"', b'"}}'),
    # The member is deeper than a receiver looks, or is there twice.
    (b'{"id":7,"result":{"chunks":[{"chunk":"', b'"}]}}'),
    (b'{"id":1,"method":"m","params":{"chunk":"","chunk":"', b'"}}'),
    (b'{"id":1,"method":"m","params":{"name":"\\"chunk\\":\\"","chunk":"', b'"}}'),
]
surroundings = st.sampled_from(SURROUNDINGS)
contents = st.binary(max_size=300) | st.integers(1000, 5000).map(bytes)


def meaning(data: bytes | bytearray) -> object:
    """The message with its content as bytes, or the error."""
    try:
        message = decode(bytes(data))
    except MalformedMessage as exc:
        return str(exc)
    return plain(message)


def plain(value: object) -> object:
    if isinstance(value, LongBase64):
        return encode_base64(value.decode()).decode()
    if isinstance(value, Blob):
        return encode_base64(value.data).decode()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if hasattr(value, "__struct_fields__"):
        names = set(value.__struct_fields__) - {"size"}
        return type(value).__name__, {name: plain(getattr(value, name)) for name in names}
    return value


@given(surroundings, contents)
@requirement("packed/same-meaning")
def test_a_packed_message_means_the_same_as_its_base64(around, content):
    before, after = around
    packed = packed_text(before, after) + content
    assert meaning(packed) == meaning(before + encode_base64(content) + after)


@given(surroundings, st.binary(max_size=20), st.integers(0), st.integers(0, 255))
@requirement("packed/malformed")
def test_a_spoiled_packed_message_is_refused_or_means_what_its_text_says(
    around, content, where, value
):
    data = bytearray(packed_text(*around) + content)
    data[where % len(data)] = value
    try:
        parts = unpack(data)
    except MalformedMessage:
        return
    if data[:1] == b"\x01":
        assert meaning(data) == meaning(parts.text())


@given(surroundings, st.binary(max_size=20), st.integers(0))
@requirement("packed/malformed")
def test_a_packed_message_that_ends_early_is_refused_or_has_less_content(around, content, size):
    before, after = around
    data = packed_text(before, after) + content
    least = len(data) - len(content)
    size %= len(data)
    if size < least:
        with pytest.raises(MalformedMessage):
            unpack(data[:size])
    else:
        assert unpack(data[:size]).bulk.decode() == content[: size - least]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x01\x00\x00\x00",
        b"\x01\x00\x00\x00\x00",
        b"\x01\xff\xff\x00\x10" + bytes(16),
        packed_text(b'{"id":1,"method":"m","params":{"other":"', b'"}}'),
        packed_text(b'{"id":1,"method":"m","params":{"chunk":"', b'x"}}'),
        packed_text(b'{"x":"' + bytes(17 * 1024) + b'","chunk":"', b'"}'),
    ],
)
@requirement("packed/malformed")
def test_what_is_no_packed_message_is_refused(data):
    with pytest.raises(MalformedMessage):
        unpack(data)
    with pytest.raises(MalformedMessage):
        decode(data)


@requirement("packed/limits")
def test_a_packed_message_is_as_large_as_its_base64_would_be():
    before, after = SURROUNDINGS[0]
    packed = packed_text(before, after) + bytes(6001)
    size = len(before) + len(encode_base64(bytes(6001))) + len(after)
    for most, is_refused in ((size, False), (size - 1, True)):
        limits = msgspec.structs.replace(DEFAULT_LIMITS, message_bytes=most)
        expected = pytest.raises(MalformedMessage) if is_refused else contextlib.nullcontext()
        with expected:
            decoder(limits, takes_packed=True)(packed)
        with expected:
            unpack(memoryview(packed), limits=limits)


@given(surroundings, st.binary(max_size=5000))
@requirement("packed/not-agreed")
def test_without_an_agreement_a_packed_message_is_malformed(around, content):
    with pytest.raises(MalformedMessage):
        decoder(DEFAULT_LIMITS)(packed_text(*around) + content)
