"""Frames beside the reference."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.raw import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Frame,
    RawSocket,
    frame,
)

pytestmark = pytest.mark.one_loop

MESSAGE = b'{"id":1,"method":"x"}'
MIB = 1 << 20

FRAMES = {
    "text": frame(TEXT, MESSAGE),
    "binary": frame(BINARY, MESSAGE),
    "fragments": frame(TEXT, MESSAGE[:5], fin=False)
    + frame(PING, b"between")
    + frame(CONTINUATION, b"", fin=False)
    + frame(CONTINUATION, MESSAGE[5:]),
    "fragments of binary": frame(BINARY, b"", fin=False) + frame(CONTINUATION, MESSAGE),
    "empty": frame(TEXT, b""),
    "ping": frame(PING, b"payload"),
    "empty ping": frame(PING),
    "longest ping": frame(PING, b"x" * 125),
    "pong": frame(PONG, b"never asked for"),
    "largest frame": frame(TEXT, MESSAGE.ljust(16 * MIB)),
    "unmasked": frame(TEXT, MESSAGE, is_masked=False),
    "unmasked ping": frame(PING, is_masked=False),
    **{f"opcode {opcode}": frame(opcode) for opcode in (3, 7, 0xB, 0xF)},
    **{f"reserved bit {rsv}": frame(TEXT, MESSAGE, rsv=rsv) for rsv in (1, 2, 4)},
    "reserved bit of a ping": frame(PING, rsv=4),
    "not UTF-8": frame(TEXT, b"\xff"),
    "half a character": frame(TEXT, b'{"id":"\xc3"}'),
    "not UTF-8 in fragments": frame(TEXT, b"\xff", fin=False) + frame(CONTINUATION, b"x"),
    "binary that is not UTF-8": frame(BINARY, b"\xff"),
    "stray continuation": frame(CONTINUATION, MESSAGE),
    "text in text": frame(TEXT, b"{", fin=False) + frame(TEXT, MESSAGE),
    "cut ping": frame(PING, b"x", fin=False),
    "long ping": frame(PING, b"x" * 126),
    "too large a frame": frame(TEXT, MESSAGE.ljust(16 * MIB + 1))[: 1 << 16],
    "close": frame(CLOSE, b"\x03\xe8"),
    "close without a code": frame(CLOSE),
}


async def heard(url: str, data: bytes) -> list[Any]:
    """Pongs and the ids of answers, up to the end or to the answer of a message behind *data*."""
    found: list[Any] = []
    async with RawSocket(url) as sock:
        await sock.upgrade()
        await sock.send(data)
        try:
            await sock.send(frame(TEXT, b'{"id":"barrier","method":"x"}'))
            while True:
                got: Frame = await sock.receive_frame()
                if got.opcode == PONG:
                    found.append(got.payload)
                elif got.opcode == TEXT:
                    found.append(json.loads(got.payload)["id"])
                    if found[-1] == "barrier":
                        break
                # Only ours says goodbye.
        except (EOFError, ConnectionError):
            found.append("end")
    return sorted(map(repr, found))


@pytest.mark.parametrize("name", FRAMES)
@requirement("websocket:violations", "websocket:fragments", "websocket:frame-limit")
async def test_frames_do_the_same(both, name):
    assert await heard(both.ours, FRAMES[name]) == await heard(both.reference, FRAMES[name])


@pytest.mark.parametrize("size", [64 * MIB, 64 * MIB + 1])
@requirement("websocket:message-limit")
async def test_the_longest_message_is_the_same(both, size):
    message = MESSAGE.ljust(size)
    pieces = [message[start : start + 16 * MIB] for start in range(0, size, 16 * MIB)]
    data = b"".join(
        frame(CONTINUATION if number else TEXT, piece, fin=number == len(pieces) - 1)
        for number, piece in enumerate(pieces)
    )
    theirs = await heard(both.reference, data)
    assert await heard(both.ours, data) == theirs
    assert theirs == (["'barrier'", "1"] if size == 64 * MIB else ["'end'"])
