"""WebSocket frames, byte by byte, as a client may and may not send them."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import socket
import struct
import weakref

import pytest

from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.leaks import eventually
from tests.support.local import resumed, server_with
from tests.support.raw import (
    ACCEPT,
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    RawSocket,
    frame,
)
from tests.support.wire import start_params

# Everything here is the same over TLS.
pytestmark = [
    pytest.mark.usefixtures("carrier"),
    pytest.mark.parametrize("carrier", ["plain", "tls"], indirect=True),
]

MIB = 1 << 20
STATUS = b'{"id":1,"method":"x"}'
WRITE = b'{"id":1,"method":"process/write","params":{"processId":"p","writeId":"w","chunk":"%b"}}'


@pytest.fixture
async def sock(server):
    """A raw WebSocket."""
    async with RawSocket(server.url) as raw:
        await raw.upgrade()
        yield raw


async def assert_answered(sock: RawSocket) -> None:
    """Check that the connection works: a request is answered, and nothing comes before."""
    await sock.send_frame(TEXT, b'{"id":"alive","method":"x"}')
    got = await sock.receive_frame()
    assert json.loads(got.payload)["id"] == "alive", got


async def assert_dropped(sock: RawSocket) -> None:
    """Check that the connection ends without an answer; a close frame may come."""
    rest = await sock.at_end()
    assert rest == b"" or (rest[0] == 0x80 | CLOSE and len(rest) == 2 + rest[1]), rest


# Messages.


@requirement("websocket:no-negotiation")
async def test_nothing_is_negotiated(server):
    async with RawSocket(server.url) as sock:
        answer = await sock.upgrade(
            **{
                "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits",
                "Sec-WebSocket-Protocol": "json-rpc, other",
                "Host": "somewhere.else:99",
            }
        )
        assert answer.headers["sec-websocket-accept"] == ACCEPT
        assert "sec-websocket-extensions" not in answer.headers
        assert "sec-websocket-protocol" not in answer.headers
        await assert_answered(sock)


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@requirement("websocket:text-and-binary", "websocket:output-frames")
async def test_text_and_binary_are_equal_and_answered_in_one_text_frame(sock, opcode):
    await sock.send_frame(opcode, STATUS)
    got = await sock.receive_frame()
    assert (got.opcode, got.fin, got.rsv, got.is_masked) == (TEXT, True, 0, False)


@requirement("websocket:output-frames")
async def test_a_large_answer_is_one_frame(server):
    async with RawSocket(server.url) as sock:
        await sock.upgrade()
        await sock.send_json({"id": 1, "method": "x" * 1_400_000})
        got = await sock.receive_frame()
        assert (got.opcode, got.fin) == (TEXT, True)
        assert len(got.payload) > 1_400_000


@requirement("websocket:output-limit")
async def test_an_answer_beyond_the_frame_limit_is_cut_into_frames():
    async with server_with(frame_bytes=1000) as server, RawSocket(server.url) as sock:
        await sock.upgrade()
        await sock.send_json({"id": 1, "method": "é" * 150})
        whole = await sock.receive_frame()
        assert (whole.opcode, whole.fin) == (TEXT, True)
        await sock.send_json({"id": 1, "method": "initialize", "params": {"clientName": "x"}})
        frames = [await sock.receive_frame()]
        while not frames[-1].fin:
            frames.append(await sock.receive_frame())
        assert [got.opcode for got in frames] == [TEXT] + [CONTINUATION] * (len(frames) - 1)
        assert max(len(got.payload) for got in frames) == 1000
        message = json.loads(b"".join(got.payload for got in frames))
        assert message["result"]["environmentInfo"]["capabilities"]


@requirement("websocket:fragments")
async def test_fragments_are_joined_with_control_frames_between(sock):
    pieces = [STATUS[:5], b"", STATUS[5:6], STATUS[6:]]
    for number, piece in enumerate(pieces):
        opcode = CONTINUATION if number else TEXT
        await sock.send_frame(opcode, piece, fin=number == len(pieces) - 1)
        if number < len(pieces) - 1:
            await sock.send_frame(PONG, b"unsolicited")
            await sock.send_frame(PING, b"%d" % number)
    got = [await sock.receive_frame() for _ in range(4)]
    assert [(f.opcode, f.payload) for f in got[:3]] == [(PONG, b"0"), (PONG, b"1"), (PONG, b"2")]
    assert json.loads(got[3].payload)["id"] == 1
    await assert_answered(sock)


@requirement("websocket:fragments")
async def test_an_empty_first_fragment_is_one(sock):
    await sock.send_frame(TEXT, b"", fin=False)
    await sock.send_frame(CONTINUATION, b"", fin=False)
    await sock.send_frame(CONTINUATION, STATUS)
    assert (await sock.receive_json())["id"] == 1


@requirement("websocket:fragments")
async def test_a_character_may_be_cut_by_fragments(sock):
    data = '{"id":"é","method":"x"}'.encode()
    for number in range(len(data)):
        await sock.send_frame(
            CONTINUATION if number else TEXT,
            data[number : number + 1],
            fin=number == len(data) - 1,
        )
    assert (await sock.receive_json())["id"] == "é"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 64, 1000])
@requirement("websocket:any-split")
async def test_any_split_of_the_bytes_gives_the_same_messages(sock, size):
    stream = b"".join(
        [
            frame(TEXT, b'{"id":1,"method":"x"}'),
            frame(TEXT, b'{"id":2,', fin=False),
            frame(PING, b"p"),
            frame(CONTINUATION, b'"method":"' + b"y" * 300 + b'"}'),
            frame(BINARY, b'{"id":3,"method":"x"}'),
        ]
    )
    raw = sock.writer.get_extra_info("socket")
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for start in range(0, len(stream), size):
        await sock.send(stream[start : start + size])
    got = [await sock.receive_frame() for _ in range(4)]
    # A pong may overtake messages.
    assert [f.payload for f in got if f.opcode == PONG] == [b"p"]
    assert [json.loads(f.payload)["id"] for f in got if f.opcode == TEXT] == [1, 2, 3]


# Limits.


@requirement("websocket:frame-limit")
async def test_a_frame_of_16_mib_passes_and_one_byte_more_does_not(server, sock):
    await sock.send_frame(TEXT, STATUS.ljust(16 * MIB))
    assert (await sock.receive_json())["id"] == 1
    await sock.send(frame(TEXT, STATUS.ljust(16 * MIB + 1))[: 1 << 16])
    await assert_dropped(sock)


@requirement("websocket:message-limit")
async def test_a_message_of_64_mib_passes(sock):
    piece = b" " * (16 * MIB)
    await sock.send_frame(TEXT, piece, fin=False)
    await sock.send_frame(CONTINUATION, piece, fin=False)
    await sock.send_frame(CONTINUATION, piece, fin=False)
    await sock.send_frame(CONTINUATION, STATUS.rjust(16 * MIB))
    assert (await sock.receive_json())["id"] == 1
    await assert_answered(sock)


@requirement("websocket:message-limit")
async def test_a_message_of_one_byte_more_does_not():
    # The limits are small here; the server treats all lengths alike.
    async with server_with(frame_bytes=1000, message_bytes=4000) as server:
        for size, passes in ((4000, True), (4001, False)):
            async with RawSocket(server.url) as sock:
                await sock.upgrade()
                data = STATUS.ljust(size)
                pieces = [data[start : start + 1000] for start in range(0, size, 1000)]
                for number, piece in enumerate(pieces):
                    opcode = CONTINUATION if number else TEXT
                    await sock.send_frame(opcode, piece, fin=number == len(pieces) - 1)
                if passes:
                    assert (await sock.receive_json())["id"] == 1
                else:
                    await assert_dropped(sock)


@requirement("websocket:frame-limit")
async def test_a_length_that_nobody_can_send_is_refused_at_once(sock):
    await sock.send(struct.pack(">BBQ4s", 0x80 | TEXT, 0x80 | 127, 2**63 - 1, b"mask"))
    await assert_dropped(sock)


# Violations.


@requirement("websocket:violations")
async def test_a_frame_without_a_mask_ends_the_connection(sock):
    await sock.send_frame(TEXT, STATUS, is_masked=False)
    await assert_dropped(sock)


@pytest.mark.parametrize("opcode", [3, 4, 5, 6, 7, 0xB, 0xC, 0xD, 0xE, 0xF])
@requirement("websocket:violations")
async def test_a_reserved_opcode_ends_the_connection(sock, opcode):
    await sock.send_frame(opcode, b"")
    await assert_dropped(sock)


@pytest.mark.parametrize("rsv", [1, 2, 4, 7])
@pytest.mark.parametrize("opcode", [TEXT, BINARY, PING])
@requirement("websocket:violations")
async def test_a_reserved_bit_ends_the_connection(sock, rsv, opcode):
    await sock.send_frame(opcode, STATUS, rsv=rsv)
    await assert_dropped(sock)


@pytest.mark.parametrize(
    "data", [b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", STATUS + b"\x80"]
)
@pytest.mark.parametrize("is_cut", [False, True])
@requirement("websocket:violations")
async def test_text_that_is_not_utf8_ends_the_connection(sock, data, is_cut):
    if is_cut:
        await sock.send_frame(TEXT, data[:1], fin=False)
        await sock.send_frame(CONTINUATION, data[1:])
    else:
        await sock.send_frame(TEXT, data)
    await assert_dropped(sock)


@pytest.mark.parametrize("where", [0, 40, 60_000, -1])
@requirement("websocket:violations")
async def test_a_long_write_that_is_not_utf8_ends_the_connection(sock, where):
    """Its base64 is decoded from the buffer, and that is the check of the text."""
    data = bytearray(WRITE % (b"QUFB" * 30_000))
    data[where] = 0xFF
    await sock.send_frame(TEXT, bytes(data))
    await assert_dropped(sock)


@pytest.mark.parametrize("chunk", [b"QUFB" * 30_000, b"QUFB" * 30_000 + b"QQ==", b"!" * 120_000])
@requirement("envelope/bulk")
async def test_a_long_write_is_answered_however_its_base64_is(sock, chunk):
    await sock.send_frame(TEXT, WRITE % chunk)
    answer = await sock.receive_json()
    assert answer["id"] == 1
    is_base64 = b"!" not in chunk
    assert ("invalid base64" in answer["error"]["message"]) is not is_base64
    await assert_answered(sock)


@pytest.mark.parametrize(
    "frames",
    [
        [frame(CONTINUATION, STATUS)],
        [frame(CONTINUATION, b"", fin=False)],
        [frame(TEXT, b"", fin=False), frame(TEXT, STATUS)],
        [frame(TEXT, b"{", fin=False), frame(BINARY, STATUS, fin=False)],
        [frame(PING, b"x", fin=False)],
        [frame(PING, b"x" * 126)],
    ],
    ids=["stray", "stray, more", "text in text", "binary in text", "cut ping", "long ping"],
)
@requirement("websocket:violations")
async def test_frames_out_of_order_end_the_connection(sock, frames):
    await sock.send(b"".join(frames))
    await assert_dropped(sock)


@requirement("websocket:violations", "session:detach")
async def test_a_violation_detaches_and_nothing_behind_it_is_read(server):
    async with RawSocket(server.url) as sock:
        await sock.upgrade()
        await sock.send_json({"id": 1, "method": "initialize", "params": {"clientName": "x"}})
        session_id = (await sock.receive_json())["result"]["sessionId"]
        await sock.send(frame(3, b"") + frame(TEXT, STATUS))
        await assert_dropped(sock)
    wire = await resumed(server.url, session_id)
    assert await wire.call("environment/status") == {"status": "ready"}
    wire.cut()


# Keepalive.


@pytest.mark.parametrize("payload", [b"", b"x", b"\x00\xff" * 62, b"y" * 125])
@requirement("websocket:ping-answered")
async def test_a_ping_is_answered_with_its_payload(sock, payload):
    await sock.send_frame(PING, payload)
    got = await sock.receive_frame()
    assert (got.opcode, got.payload, got.is_masked) == (PONG, payload, False)


@requirement("websocket:ping-answered")
async def test_an_unsolicited_pong_is_ignored(sock):
    for _ in range(3):
        await sock.send_frame(PONG, b"never asked for")
    await assert_answered(sock)


@requirement("websocket:pings")
async def test_the_server_pings_with_an_empty_payload_whatever_the_traffic():
    async with server_with(ping_interval=0.02) as server, RawSocket(server.url) as sock:
        await sock.upgrade()
        pings = 0
        while pings < 5:
            await sock.send_frame(TEXT, STATUS)
            got = await sock.receive_frame()
            if got.opcode == PING:
                assert got.payload == b""
                pings += 1
            else:
                assert json.loads(got.payload)["id"] == 1


@requirement("websocket:dead-peer")
async def test_a_peer_that_says_nothing_is_dropped_and_its_session_can_be_resumed():
    async with server_with(ping_interval=0.02, pong_timeout=0.1) as server:
        async with RawSocket(server.url) as sock:
            await sock.upgrade()
            await sock.send_json({"id": 1, "method": "initialize", "params": {"clientName": "x"}})
            session_id = (await sock.receive_json())["result"]["sessionId"]
            # The client reads the pings and does not answer.
            rest = await sock.at_end()
            assert rest.count(frame(PING, is_masked=False)) >= 3
        wire = await resumed(server.url, session_id)
        wire.cut()


@requirement("websocket:dead-peer")
async def test_a_peer_that_answers_pings_stays():
    async with (
        server_with(ping_interval=0.02, pong_timeout=0.06) as server,
        RawSocket(server.url) as sock,
    ):
        await sock.upgrade()
        for _ in range(12):
            assert (await sock.receive_frame()).opcode == PING
            await sock.send_frame(PONG)
        await sock.send_frame(TEXT, STATUS)
        assert (await sock.receive_json())["id"] == 1


# The end.


@pytest.mark.parametrize("payload", [b"", b"\x03\xe8", b"\x03\xe9bye", b"\x0f\xa0"])
@requirement("websocket:close")
async def test_a_close_frame_is_answered_and_ends_the_connection(sock, payload):
    await sock.send_frame(CLOSE, payload)
    got = await sock.receive_frame()
    assert got.opcode == CLOSE
    assert await sock.at_end() == b""


@requirement("websocket:close")
async def test_nothing_behind_a_close_frame_is_read(sock):
    await sock.send(frame(CLOSE, b"\x03\xe8") + frame(TEXT, STATUS))
    assert (await sock.receive_frame()).opcode == CLOSE
    assert await sock.at_end() == b""


@requirement("websocket:every-end-disconnects")
async def test_a_half_closed_connection_is_ended(sock):
    await sock.send_frame(TEXT, STATUS)
    sock.end_writing()
    rest = await sock.at_end()
    # Earlier requests may be answered.
    assert rest == b"" or json.loads(rest[2 + 2 * (rest[1] == 126) :])["id"] == 1


@requirement("websocket:going-away")
async def test_a_server_that_stops_says_goodbye():
    async with serve() as server:
        sock = await RawSocket(server.url).__aenter__()
        await sock.upgrade()
        await assert_answered(sock)
    got = await sock.receive_frame()
    assert (got.opcode, got.payload[:2]) == (CLOSE, b"\x03\xe9")
    assert await sock.at_end() == b""
    sock.writer.transport.abort()


@requirement("websocket:nodelay")
async def test_small_frames_are_not_held_back(server, sock):
    await assert_answered(sock)
    (context,) = server.core._contexts
    raw = context.connection._stream.get_extra_info("socket")
    assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


@pytest.mark.parametrize("size", [70_000, 1 << 20, 64 << 20])
@requirement("websocket:fragments", "envelope/bulk")
async def test_long_base64_may_be_cut_anywhere(sock, tmp_path, size):
    """Frames have *size* bytes; with the largest size the message is one frame."""
    await sock.send_json({"id": 1, "method": "initialize", "params": {"clientName": "x"}})
    await sock.receive_json()
    await sock.send_json({"method": "initialized"})
    data = os.urandom(5 * MIB + 1)
    for text, is_right in (
        (base64.b64encode(data).decode(), True),
        (base64.b64encode(data[1:]).decode()[:-5] + "?abc=", False),
    ):
        params = {"path": (tmp_path / "file").as_uri(), "dataBase64": text, "atomic": False}
        message = json.dumps(
            {"id": 2, "method": "fs/writeFile", "params": params}, separators=(",", ":")
        ).encode()
        for start in range(0, len(message), size):
            opcode, fin = CONTINUATION if start else TEXT, start + size >= len(message)
            await sock.send_frame(opcode, message[start : start + size], fin=fin)
        answer = await sock.receive_json()
        assert ("result" in answer) == is_right
        assert (tmp_path / "file").read_bytes() == data


@requirement("tls:back-pressure")
async def test_output_waits_for_a_client_that_does_not_read(server, sock):
    await sock.send_json({"id": 1, "method": "initialize", "params": {"clientName": "x"}})
    await sock.receive_json()
    await sock.send_json({"method": "initialized"})
    size = 32 * MIB
    argv = ["head", "-c", str(size), "/dev/zero"]
    await sock.send_json({"id": 2, "method": "process/start", "params": start_params("p", argv)})
    (context,) = server.core._contexts
    await eventually(lambda: context.peer.is_writing_paused)
    # What is queued stays bounded, however long the client does not read.
    for _ in range(1000):
        await asyncio.sleep(0)
    assert context.connection.unsent_bytes < 2 * MIB
    seen = 0
    while seen < size:
        message = await sock.receive_json()
        if message.get("method") == "process/output":
            seen += len(base64.b64decode(message["params"]["chunk"]))
    assert seen == size


async def test_a_connection_that_has_ended_is_kept_by_no_timer(server):
    sock = await RawSocket(server.url).__aenter__()
    await sock.upgrade()
    await assert_answered(sock)
    (context,) = server.core._contexts
    connection = weakref.ref(context.connection)
    del context
    await sock.send_frame(CLOSE, b"\x03\xe8")
    assert (await sock.receive_frame()).opcode == CLOSE
    await sock.__aexit__(None, None, None)
    # This is sooner than the time that a graceful end may take.
    await eventually(lambda: gc.collect() >= 0 and connection() is None)
