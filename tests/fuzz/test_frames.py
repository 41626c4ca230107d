"""Arbitrary bytes where HTTP and WebSocket frames should be: the connection ends, nothing else."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from tests.requirements import requirement
from tests.support.raw import CONTINUATION, PING, TEXT, UPGRADE, RawSocket, frame, request_head

STATUS = json.dumps({"id": 1, "method": "environment/status"}).encode()


async def told(live, data: bytes, *, is_upgraded: bool) -> bytes:
    """Everything that the server says to *data* and the end of input after it."""
    async with RawSocket(live.server.url) as sock:
        if is_upgraded:
            await sock.upgrade()
        await sock.send(data)
        sock.writer.write_eof()
        answer = await sock.at_end()
    await live.prove_alive()
    assert live.complaints == []
    return answer


@st.composite
def damaged_heads(draw: st.DrawFn) -> bytes:
    data = bytearray(request_head("GET", "/", UPGRADE))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        data[start : start + draw(st.integers(0, 6))] = draw(st.binary(max_size=6))
    return bytes(data)


@requirement("fuzz:http")
@given(st.binary(max_size=300) | damaged_heads())
@example(b"\r\n" * 10_000)
@example(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 4000)
@example(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
def test_whatever_stands_for_a_request_is_answered_or_dropped(live, data):
    answer = live.run(told(live, data, is_upgraded=False))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Frames that are nearly right, and what may stand between them."""
    pieces = [
        frame(
            draw(st.integers(0, 15)),
            draw(st.sampled_from([STATUS, b"", b"[]"]) | st.binary(max_size=130)),
            fin=draw(st.booleans()),
            rsv=draw(st.sampled_from([0, 0, 0, 1, 7])),
            is_masked=draw(st.sampled_from([True, True, True, False])),
        )
        for _ in range(draw(st.integers(1, 5)))
    ]
    data = b"".join(pieces)
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


@requirement("fuzz:frames")
@given(st.binary(max_size=100) | frames())
@example(b"\x81\xff" + b"\xff" * 8)
@example(b"\x82\xff" + (1 << 24).to_bytes(8, "big"))
@example(frame(TEXT, b"[", fin=False) + frame(PING) + frame(CONTINUATION, b"]"))
def test_whatever_stands_for_a_frame_ends_nothing_but_its_connection(live, data):
    live.run(told(live, data, is_upgraded=True))


@requirement("fuzz:splits")
@given(st.lists(st.integers(1, 40), max_size=20), st.integers(1, 5))
def test_any_split_of_the_bytes_gives_the_same_messages(live, sizes, count):
    async def run() -> list[dict[str, object]]:
        async with RawSocket(live.server.url) as sock:
            await sock.upgrade()
            data = (frame(TEXT, b'{"id"', fin=False) + frame(CONTINUATION, b":1}")) * count
            for size in sizes:
                await sock.send(data[:size])
                data = data[size:]
            await sock.send(data)
            return [await sock.receive_json() for _ in range(count)]

    assert [answer["id"] for answer in live.run(run())] == [-1] * count
