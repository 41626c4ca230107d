"""Large frames are masked where they are, and reach the peer as they were, in order."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import websockets
from hypothesis import given
from hypothesis import strategies as st

from exec_server.limits import MIB, Limits
from exec_server.transport import frames
from exec_server.transport.frame_masks import LEAST_BYTES, Mask, mask_frame, quick_mask
from exec_server.transport.frames import FrameSocket, Sizes, dial_frames
from tests.requirements import requirement
from tests.support.leaks import eventually
from tests.support.moved import moved
from tests.support.wire import PATIENCE

LIMITS = Limits()
SIZES = Sizes(frame_bytes=MIB, message_bytes=MIB, sent_frame_bytes=MIB)
ROOM = 16


def mask() -> Mask:
    found = quick_mask()
    assert found is not None, moved(
        "aiohttp",
        aiohttp_version(),
        "its mask in C is gone",
        "src/exec_server/transport/frame_masks.py",
    )
    return found


def aiohttp_version() -> str:
    import aiohttp

    return aiohttp.__version__


def slow_mask(key: bytes, data: bytes) -> bytes:
    return bytes(byte ^ key[index % 4] for index, byte in enumerate(data))


def read(frame: memoryview) -> bytes:
    """The payload of a masked binary frame, by RFC 6455."""
    assert frame[0] == 0x82
    assert frame[1] & 0x80
    size, at = frame[1] & 0x7F, 2
    if size > 125:
        length = 2 if size == 126 else 8
        size, at = int.from_bytes(frame[2 : 2 + length], "big"), 2 + length
    key, payload = bytes(frame[at : at + 4]), bytes(frame[at + 4 :])
    assert len(payload) == size
    return slow_mask(key, payload)


@requirement("house/libraries:undocumented")
@given(st.binary(min_size=4, max_size=4), st.binary(max_size=300))
def test_the_mask_of_aiohttp_is_that_of_the_rfc(key, data):
    masked = bytearray(data)
    mask()(key, masked)
    assert masked == slow_mask(key, data)


@given(
    st.binary(max_size=300) | st.sampled_from([125, 126, 65535, 65536, 200_000]).map(bytes),
    st.sampled_from([16, 20, 64]),
)
def test_a_masked_frame_says_what_was_masked(payload, start):
    frame = mask_frame(mask(), bytearray(start) + payload, start)
    assert read(frame) == payload


def test_each_frame_has_a_new_key():
    masked = [bytes(mask_frame(mask(), bytearray(ROOM + 100), ROOM)) for _ in range(8)]
    assert len(set(masked)) == 8


class Sender:
    """Opens a socket and notes what happens to it."""

    def __init__(self) -> None:
        self.is_paused = False
        self.lost = asyncio.Event()

    def socket_opened(self, socket: FrameSocket) -> None:
        self.socket = socket

    def frame_received(self, data: bytes | memoryview) -> None: ...

    def text_received(self, data: bytes) -> None: ...

    def writing_paused(self) -> None:
        self.is_paused = True

    def writing_resumed(self) -> None:
        self.is_paused = False

    def socket_lost(self, reason: str) -> None:
        self.lost.set()


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("masks", ["quickly", "with picows"])
async def test_frames_of_all_sizes_arrive_whole_and_in_order(masks, monkeypatch):
    chosen = mask() if masks == "quickly" else None
    monkeypatch.setattr(frames, "loaded_mask", lambda: chosen)
    sent = [
        bytes([number % 256]) * size
        for number, size in enumerate([1, LEAST_BYTES - ROOM, LEAST_BYTES, 61_000, 5, 200_000] * 64)
    ]
    may_read = asyncio.Event()
    received: list[str | bytes] = []
    take = received.append

    async def handler(socket: websockets.ServerConnection) -> None:
        await may_read.wait()
        # The socket ends without a close frame.
        with contextlib.suppress(websockets.ConnectionClosedError):
            async for message in socket:
                take(message)

    async with websockets.serve(handler, "127.0.0.1", 0, max_queue=1) as server:
        port = server.sockets[0].getsockname()[1]
        sender = Sender()
        await dial_frames(f"ws://127.0.0.1:{port}", sender, sizes=SIZES, limits=LIMITS)
        for payload in sent:
            sender.socket.send(bytearray(ROOM) + payload, ROOM)
        # The peer does not read yet, so the last frames wait, whole or in part.
        unsent, was_paused = sender.socket.unsent_bytes, sender.is_paused
        may_read.set()
        assert unsent
        assert was_paused
        async with asyncio.timeout(PATIENCE):
            await eventually(lambda: len(received) == len(sent))
        sender.socket.close()
        async with asyncio.timeout(PATIENCE):
            await sender.lost.wait()
        # What comes after the end is dropped.
        sender.socket.send(bytearray(ROOM + LEAST_BYTES), ROOM)
    assert received == sent
