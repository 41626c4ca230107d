"""Whatever way its bytes come, a client's frames are what picows would have read."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exec_server.transport.data_frames import DataFrame, FrameSorter
from exec_server.transport.frame_headers import frame_header
from exec_server.transport.frame_masks import quick_mask
from exec_server.transport.picows_names import WSMsgType

FRAME_BYTES = 262_144
KEY = b"\x01\xf2\x43\x84"
WHOLE, FIRST, MORE, LAST, TEXT = 0x82, 0x02, 0x00, 0x80, 0x81
PING, PONG, CLOSE = 0x89, 0x8A, 0x88

Sorted = list[tuple[int, bytes] | bytes]


def masked(first: int, payload: bytes) -> bytes:
    header = bytearray(frame_header(first, len(payload)))
    header[1] |= 0x80
    return bytes(header) + KEY + bytes(b ^ KEY[i % 4] for i, b in enumerate(payload))


def sort(data: bytes, borders: list[int] | None = None, *, room: int = 4096) -> Sorted:
    """Data frames as (first byte, payload), and what is left for picows; read in pieces."""
    mask = quick_mask()
    assert mask is not None
    sorter = FrameSorter(mask, bytearray(room), frame_bytes=FRAME_BYTES)
    found: Sorted = []
    for start, end in pairwise([0, *sorted(borders or []), len(data)]):
        while start < end:
            buffer = sorter.room()
            size = min(len(buffer), end - start)
            assert size
            buffer[:size] = data[start : start + size]
            start += size
            for part in sorter.sort(size):
                if isinstance(part, DataFrame):
                    assert not (part.rsv1 or part.rsv2 or part.rsv3)
                    assert part.payload_size == len(part.get_payload_as_bytes())
                    assert part.get_payload_as_memoryview() == part.get_payload_as_bytes()
                    first = cast(int, part.msg_type) | part.fin << 7
                    found.append((first, part.get_payload_as_bytes()))
                elif found and isinstance(found[-1], bytes):
                    found[-1] += bytes(part)
                else:
                    found.append(bytes(part))
        # Sockets share the room.
        sorter._room[:] = bytes(len(sorter._room))
    return found


def test_each_frame_says_what_it_is():
    frames = [(WHOLE, b"a"), (TEXT, b"b"), (FIRST, b"c"), (MORE, b""), (LAST, b"d" * 60_000)]
    assert sort(b"".join(masked(*frame) for frame in frames)) == frames
    mask = quick_mask()
    assert mask is not None
    frame = DataFrame(FIRST, bytearray())
    assert frame.msg_type is WSMsgType.BINARY
    assert not frame.fin


def test_a_frame_takes_memory_when_a_part_of_it_has_come():
    mask = quick_mask()
    assert mask is not None
    sorter = FrameSorter(mask, bytearray(100_000), frame_bytes=FRAME_BYTES)
    data = masked(WHOLE, bytes(FRAME_BYTES))
    for size, is_whole_buffer in ((5000, False), (15_000, True)):
        sorter.room()[:size] = data[:size]
        data = data[size:]
        assert not sorter.sort(size)
        assert (sorter._frame is not None) is is_whole_buffer


DATA = st.tuples(
    st.sampled_from([WHOLE, TEXT, FIRST, MORE, LAST]),
    st.sampled_from([0, 1, 3, 125, 126, 127, 4096, 65535, 65536, 70_000]).map(
        lambda size: bytes(range(256)) * (size // 256) + bytes(size % 256)
    ),
)
CONTROL = st.tuples(st.sampled_from([PING, PONG]), st.binary(max_size=125))


@given(st.lists(DATA | CONTROL, max_size=6), st.lists(st.integers(0, 100_000), max_size=8))
@example([(WHOLE, b"x" * 300), (PING, b"?")], list(range(400)))
def test_any_split_gives_the_same_frames(frames, borders):
    data = b"".join(masked(*frame) for frame in frames)
    expected: Sorted = []
    for first, payload in frames:
        if first not in (PING, PONG):
            expected.append((first, payload))
        elif expected and isinstance(expected[-1], bytes):
            expected[-1] += masked(first, payload)
        else:
            expected.append(masked(first, payload))
    assert sort(data, [border for border in borders if border < len(data)]) == expected


@pytest.mark.parametrize(
    "odd",
    [
        frame_header(WHOLE, 5) + b"plain",
        masked(0xC2, b"a reserved bit"),
        masked(0x83, b"a reserved kind"),
        masked(0x09, b"a ping in parts"),
        masked(PING, bytes(126)),
        masked(CLOSE, b"\x03\xe8"),
        bytes((WHOLE, 0xFE)) + b"\x00\x05" + KEY + b"short",
        bytes((WHOLE, 0xFF)) + (65_535).to_bytes(8, "big") + KEY + bytes(65_535),
        bytes((WHOLE, 0xFF)) + (1 << 63).to_bytes(8, "big") + KEY + b"very long",
        masked(WHOLE, bytes(FRAME_BYTES + 1)),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 4096])
def test_from_a_violation_or_a_close_frame_on_picows_sees_everything(odd, step):
    before, after = (WHOLE, b"before"), masked(WHOLE, b"after")
    data = masked(*before) + odd
    borders = list(range(0, min(len(data), 200), step))
    if len(odd) <= FRAME_BYTES:
        assert sort(data + after, borders) == [before, odd + after]
    else:
        # It is too large; picows says so and goes on.
        assert sort(data + after, borders) == [before, odd, (WHOLE, b"after")]


def test_the_largest_frame_is_taken():
    frame = (WHOLE, bytes(FRAME_BYTES))
    assert sort(masked(*frame), room=FRAME_BYTES // 2) == [frame]


def test_what_is_announced_and_does_not_come_takes_the_size_of_one_frame():
    mask = quick_mask()
    assert mask is not None
    room = bytearray(4096)
    sorter = FrameSorter(mask, room, frame_bytes=1 << 40)
    header = bytes((WHOLE, 0xFF)) + (1 << 30).to_bytes(8, "big") + KEY
    room[: len(header)] = header
    (part,) = sorter.sort(len(header))
    assert isinstance(part, memoryview) and part == header
    assert sorter._frame is None
