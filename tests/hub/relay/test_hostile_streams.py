"""Whatever one harness sends, the streams of another one live, and every stream gets its reset."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exec_server.errors import RelayError
from exec_server.hub.relay.routing import JoinedHarness
from exec_server.relay import relay_pb2 as pb
from exec_server.relay.frame import Data, RelayFrame, Reset, StreamId, decode, encode
from tests.requirements import requirement

from .test_routing import Board, FakePort, frame, is_reset, number_of

WHITE_SPACE = [" ", "\t\r\n", "\x85", "\xa0", "\u2028", "\u3000 \u1680"]
# Python's `str.strip` removes the first one, but it is not white space in Unicode.
ODD = ["\x1c", "\0", "\ufeff", "\u200b", "a b", " a ", "x" * 1024, "\U0001f600", "..", "a/b?c#d"]


def raw(stream_id: bytes) -> bytes:
    """A frame with any bytes as its stream id."""
    tail = pb.RelayMessageFrame(data=pb.RelayData(segment_count=1, payload=b"p"))
    length = bytearray()
    size = len(stream_id)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return b"\x08\x01\x12" + bytes(length) + stream_id + tail.SerializeToString()


ids = st.one_of(
    st.sampled_from(WHITE_SPACE + ODD).map(str.encode),
    st.text(st.sampled_from(" \t\x85\xa0\u2003a"), max_size=4).map(str.encode),
    st.binary(max_size=1030),
    st.just(b"innocent"),
)
messages = st.one_of(ids.map(raw), st.binary(max_size=60))


def resets_in(port: FakePort) -> set[str]:
    return {decode(data).stream_id for data in port.got if is_reset(data)}


@requirement("security/registry:one-harness")
@settings(max_examples=300, deadline=None)
@given(sent=st.lists(messages, max_size=12), who_leaves=st.sampled_from(["harness", "executor"]))
def test_whatever_one_harness_sends_the_streams_of_another_live(sent, who_leaves):
    board = Board()
    (good, innocent), (bad, hostile) = board.join(), board.join()
    board.exchange.from_harness(innocent, frame("innocent", 1), now=0)
    for data in sent:
        try:
            board.exchange.from_harness(hostile, data, now=0)
        except RelayError:
            continue
    opened = {text for text in hostile.streams.values()}
    board.exchange.from_harness(innocent, frame("innocent", 2), now=0)
    board.exchange.from_executor(frame("innocent", 3), now=0)
    if who_leaves == "harness":
        board.exchange.leave(hostile)
        board.executor.read(99)
        assert resets_in(board.executor) == opened
        board.exchange.from_executor(frame("innocent", 4), now=0)
        good.read(99)
        assert [number_of(data) for data in good.got] == [3, 4]
    else:
        board.exchange.end("the executor is gone")
        board.executor.read(99)
        good.read(99)
        bad.read(99)
        assert resets_in(good) == {"innocent"}
        assert resets_in(bad) == opened
        assert good.ended is not None and bad.ended is not None
        assert board.exchange.harnesses == board.exchange.streams == 0
    own = [data for data in board.executor.got if decode(data).stream_id == "innocent"]
    assert [number_of(data) for data in own if not is_reset(data)] == [1, 2]
    assert board.memory.used == 0


@requirement("security/registry:one-harness")
@pytest.mark.parametrize("stream_id", WHITE_SPACE)
def test_a_stream_id_of_white_space_opens_nothing(stream_id):
    board = Board()
    _, harness = board.join()
    with pytest.raises(RelayError, match="blank"):
        board.exchange.from_harness(harness, raw(stream_id.encode()), now=0)
    assert board.exchange.streams == 0 and not board.executor.queue


@pytest.mark.parametrize("stream_id", ODD)
def test_an_odd_stream_id_can_be_reset(stream_id):
    board = Board()
    _, harness = board.join()
    board.exchange.from_harness(harness, raw(stream_id.encode()), now=0)
    board.exchange.leave(harness)
    board.executor.read(9)
    assert resets_in(board.executor) == {stream_id}


class BrokenPort(FakePort):
    def send(self, data: bytes, origin: JoinedHarness | None) -> None:
        raise OSError("broken")


def test_a_harness_that_cannot_be_told_does_not_keep_the_end_from_others():
    board = Board()
    ports = []
    for number in range(6):
        port = BrokenPort() if number % 2 else FakePort()
        harness = board.exchange.join(port, now=0)
        board.exchange.from_harness(harness, frame(f"s{number}", 1), now=0)
        ports.append(port)
    with pytest.raises(OSError, match="broken"):
        board.exchange.end("the executor is gone")
    assert all(port.ended is not None for port in ports[::2])
    assert board.exchange.harnesses == board.exchange.streams == 0


# Over real sockets.

LAST = aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR


async def until_closed(socket) -> list[bytes]:
    came = []
    async with asyncio.timeout(60):
        while (message := await socket.receive()).type not in LAST:
            came.append(message.data)
    return came


def data_frame(stream_id: str) -> bytes:
    return encode(RelayFrame(StreamId(stream_id), Data(0, b"payload")))


@requirement("security/registry:one-harness")
async def test_a_blank_stream_id_ends_the_socket_of_its_harness_alone(pair):
    good, bad = await pair.open_harness(), await pair.open_harness()
    await good.send_bytes(data_frame("good"))
    await bad.send_bytes(data_frame("other"))
    for _ in range(2):
        await pair.executor.receive(timeout=60)
    await bad.send_bytes(raw(b" "))
    await until_closed(bad)
    lost = decode((await pair.executor.receive(timeout=60)).data)
    assert (lost.stream_id, type(lost.body)) == ("other", Reset)
    await pair.executor.send_bytes(data_frame("good"))
    assert (await good.receive(timeout=60)).data == data_frame("good")


@requirement("security/registry:leaves")
async def test_an_executor_that_leaves_is_offline_even_if_its_streams_cannot_be_ended(
    pair, monkeypatch
):
    harness = await pair.open_harness()
    await harness.send_bytes(data_frame("s"))
    await pair.executor.receive(timeout=60)

    def fail(self: object) -> None:
        raise RuntimeError("an error of ours")

    monkeypatch.setattr("exec_server.hub.relay.relay_socket.RelaySocket.give_up", fail)
    await pair.executor.close()
    (lost,) = await until_closed(harness)
    assert isinstance(decode(lost).body, Reset)
    monkeypatch.undo()
    async with asyncio.timeout(60):
        while (await pair.visitor.connect(pair.name, pair.harness)).code != "environment_offline":
            pass
