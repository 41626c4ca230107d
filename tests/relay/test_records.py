"""Any messages, cut anywhere, come out as they went in."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import RelayError
from exec_server.limits import Limits
from exec_server.relay.records import RECORD_BYTES, RecordAssembler, split
from tests.requirements import requirement

MESSAGES = st.lists(st.binary(min_size=1, max_size=60), max_size=12)


def framed(messages: list[bytes]) -> bytes:
    return b"".join(bytes(record) for message in messages for record in split(message))


def received(assembler: RecordAssembler, *records: bytes) -> list[bytes]:
    return [message for record in records for message in assembler.receive(record)]


@requirement("relay/records:split")
@pytest.mark.parametrize(
    ("size", "records"),
    [(1, [5]), (61_436, [61_440]), (61_437, [61_440, 1]), (200_000, [61_440] * 3 + [15_684])],
)
def test_a_message_is_cut_into_full_records(size, records):
    assert [len(record) for record in split(bytes(size))] == records


@given(st.lists(st.binary(max_size=20), min_size=1).filter(any))
def test_a_message_may_be_given_in_pieces(parts):
    assert received(RecordAssembler(), *map(bytes, split(*parts))) == [b"".join(parts)]


@requirement("relay/records:any-borders")
@given(MESSAGES, st.data())
def test_any_split_of_the_bytes_gives_the_same_messages(messages, data):
    stream = framed(messages)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20).map(sorted))
    borders = zip([0, *cuts], [*cuts, len(stream)], strict=True)
    assembler = RecordAssembler()
    assert received(assembler, *(stream[a:b] for a, b in borders)) == messages
    assert assembler.held_bytes == 0


@requirement("relay/records:any-borders")
@given(MESSAGES)
def test_one_byte_at_a_time_gives_the_same_messages(messages):
    assert received(RecordAssembler(), *(bytes([byte]) for byte in framed(messages))) == messages


@given(MESSAGES, st.integers(0, 500))
def test_a_stream_that_is_cut_off_gives_its_whole_messages(messages, size):
    stream = framed(messages)[:size]
    whole = received(RecordAssembler(), stream)
    assert whole == messages[: len(whole)]
    assert len(framed(messages[: len(whole) + 1])) > len(stream) or whole == messages


@requirement("relay/records:limits")
@pytest.mark.parametrize("length", ["00000000", "04000001", "ffffffff"])
@pytest.mark.parametrize("is_split", [False, True])
def test_a_length_that_no_message_has_is_refused_before_the_body(length, is_split):
    raw = bytes.fromhex(length)
    assembler = RecordAssembler()
    if is_split:
        assembler.receive(raw[:2])
        raw = raw[2:]
    with pytest.raises(RelayError):
        assembler.receive(raw)


@requirement("relay/records:limits")
def test_the_longest_message_passes():
    assembler = RecordAssembler()
    assert assembler.receive((64 * 2**20).to_bytes(4, "big")) == []
    limits = Limits(message_bytes=100_000)
    assert received(
        RecordAssembler(limits=limits), *map(bytes, split(bytes(100_000), limits=limits))
    )
    for size in (0, 100_001):
        with pytest.raises(RelayError):
            split(bytes(size), limits=limits)


@requirement("relay/records:limits")
def test_a_record_has_its_own_limit():
    assert RecordAssembler().receive((2**20).to_bytes(4, "big") + bytes(RECORD_BYTES - 4)) == []
    assert RecordAssembler().receive(b"") == []
    with pytest.raises(RelayError):
        RecordAssembler().receive((2**20).to_bytes(4, "big") + bytes(RECORD_BYTES - 3))


@requirement("relay/records:limits")
@given(st.lists(st.binary(max_size=40), max_size=30))
def test_arbitrary_records_give_bounded_messages_or_an_error(records):
    limits = Limits(message_bytes=50)
    assembler = RecordAssembler(limits=limits)
    for record in records:
        try:
            messages = assembler.receive(record)
        except RelayError:
            return
        assert all(0 < len(message) <= 50 for message in messages)
        assert assembler.held_bytes < 54


@requirement("relay/records:any-borders")
@given(
    sizes=st.lists(st.sampled_from([1, 3, 4, 4095, 4096, 50_000, 200_000]), min_size=1, max_size=4),
    cuts=st.lists(st.sampled_from([1, 2, 3, 4095, 4096, 5000, RECORD_BYTES]), min_size=1),
)
def test_long_messages_survive_any_cuts(sizes, cuts):
    messages = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream, assembler, found, at = framed(messages), RecordAssembler(), [], 0
    # A long message in the shortest pieces would take too long.
    lengths = itertools.chain(cuts, itertools.repeat(max(*cuts, 4096)))
    while at < len(stream):
        size = next(lengths)
        found += assembler.receive(stream[at : at + size])
        at += size
        assert assembler.held_bytes <= max(sizes) + 4
    assert found == messages
    assert assembler.held_bytes == 0


@requirement("relay/records:any-borders")
@pytest.mark.parametrize(
    "sizes", [(1, 200_000), (70_000, 1, 70_000), (RECORD_BYTES - 4, 1), (9,) * 20_000]
)
def test_records_of_a_message_in_pieces_are_those_of_the_whole(sizes):
    parts = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    found, whole = split(*parts), split(b"".join(parts))
    assert len(found) == len(whole) == len(list(found))
    assert [bytes(record) for record in found] == [bytes(record) for record in whole]
    assert all(len(record) == RECORD_BYTES for record in list(found)[:-1])
