"""A socket of the relay as a harness has it, its streams, and messages on a stream."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from exec_server.conformance.kit_wire import ConnectionEnded, dialled
from exec_server.conformance.remote import kit_frames
from exec_server.conformance.remote.kit_frames import KitFrame
from exec_server.conformance.remote.kit_noise import (
    PROTOCOL,
    KitHandshake,
    KitKeyPair,
    StreamKeys,
    prologue,
)
from exec_server.conformance.remote.kit_registry import KitBundle

RECORD_BYTES = 61440
MESSAGE_BYTES = 64 * 1024 * 1024
# The only reason that an executor gives.
PROTOCOL_ERROR = "noise_relay_protocol_error"
# An executor refuses all handshakes for ten seconds after eight that failed, and an earlier check
# may have been the eighth.
_PAUSE_SECONDS = 12.0

AskBundle = Callable[[], Awaitable[KitBundle]]


class StreamReset(ConnectionEnded):
    """The executor or the relay has ended the stream."""


class KitRelay:
    """One socket. Every wait has a deadline."""

    def __init__(self, socket: Any, bundle: KitBundle, ask: AskBundle, key: KitKeyPair) -> None:
        self.bundle = bundle
        self.socket = socket
        self._ask = ask
        self.key = key
        # Frames that arrived while one of another stream was awaited.
        self._unread: list[KitFrame] = []
        self._is_bundle_used = False

    async def send(self, data: bytes | str) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await self.socket.send(data)
        except ConnectionClosed as exc:
            raise ConnectionEnded(f"the relay's socket: {exc}") from exc

    async def frame_of(self, stream_id: str) -> KitFrame:
        """The next frame of a stream. Those of others are kept."""
        for index, found in enumerate(self._unread):
            if found.stream_id == stream_id:
                return self._unread.pop(index)
        while True:
            found = await self._receive()
            if found.stream_id == stream_id:
                return found
            self._unread.append(found)

    async def _receive(self) -> KitFrame:
        from websockets.exceptions import ConnectionClosed

        try:
            data: str | bytes = await self.socket.recv()
        except ConnectionClosed as exc:
            raise ConnectionEnded(f"the relay's socket: {exc}") from exc
        if isinstance(data, str):
            raise ValueError("the relay sent a text message")
        return kit_frames.read_frame(data)

    async def fresh_bundle(self) -> KitBundle:
        """A bundle that no handshake has used."""
        if self._is_bundle_used:
            return await self._ask()
        self._is_bundle_used = True
        return self.bundle

    async def open(self, *, patience: float) -> KitStream:
        """A new stream whose handshake is complete."""
        async with asyncio.timeout(patience + _PAUSE_SECONDS):
            while True:
                stream = KitStream(self, patience=patience)
                try:
                    await stream.handshake()
                except StreamReset:
                    await asyncio.sleep(0.5)
                else:
                    return stream

    def cut(self) -> None:
        """Lose the socket without a goodbye."""
        self.socket.transport.abort()


class KitStream:
    """A stream of a relay's socket: a way to send and receive messages."""

    def __init__(self, relay: KitRelay, *, patience: float, stream_id: str = "") -> None:
        self.relay = relay
        self.patience = patience
        self.id = stream_id or str(uuid.uuid4())
        self.next_seq = 0
        # How long each received record was, without its tag.
        self.received: list[int] = []
        self._keys: StreamKeys | None = None
        self._buffer = bytearray()

    async def handshake(self, *, protocol: bytes = PROTOCOL, **changes: Any) -> None:
        """Both messages. *changes* replace parts of the bundle, to do it wrongly."""
        bundle = (await self.relay.fresh_bundle())._replace(**changes)
        initiator, message = self.first_message(bundle, protocol=protocol)
        await self.relay.send(kit_frames.resume_frame(self.id))
        await self.relay.send(kit_frames.handshake_frame(self.id, message))
        answer = await self.frame()
        if answer.body != "handshake":
            raise ValueError(f"a {answer.body} frame instead of message 2")
        self._keys = initiator.finish(answer.payload)

    def first_message(
        self, bundle: KitBundle, *, protocol: bytes = PROTOCOL
    ) -> tuple[KitHandshake, bytes]:
        place = prologue(bundle.environment_id, bundle.registration_id, self.id)
        initiator = KitHandshake(self.relay.key, bundle.executor, place, protocol=protocol)
        return initiator, initiator.message_1(bundle.authorization.encode())

    async def frame(self) -> KitFrame:
        """The next frame, which is no reset."""
        async with asyncio.timeout(self.patience):
            found = await self.relay.frame_of(self.id)
        if found.body == "reset":
            raise StreamReset(f"the stream was reset: {found.payload.decode(errors='replace')}")
        return found

    async def reset_reason(self) -> str:
        """Wait until the stream is reset. Messages before that are dropped."""
        async with asyncio.timeout(self.patience):
            while True:
                found = await self.relay.frame_of(self.id)
                if found.body == "reset":
                    return found.payload.decode()

    # Messages.

    async def send(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        await self.send_plain(len(data).to_bytes(4, "big") + data)

    async def send_plain(self, plain: bytes) -> None:
        """Send bytes in records that are as long as they may be."""
        for at in range(0, len(plain), RECORD_BYTES):
            await self.send_record(plain[at : at + RECORD_BYTES])

    async def send_record(self, plain: bytes) -> None:
        record = self.record(plain)
        await self.relay.send(record)

    def record(self, plain: bytes) -> bytes:
        """The frame of the next record."""
        assert self._keys is not None, "the handshake is not complete"
        seq = self.next_seq
        self.next_seq += 1
        return kit_frames.data_frame(self.id, seq, self._keys.seal(seq, plain))

    async def receive(self) -> str | bytes:
        """The next message."""
        while True:
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) >= 4 and not 1 <= size <= MESSAGE_BYTES:
                raise ValueError(f"a message of {size} bytes")
            if len(self._buffer) >= 4 + size and size:
                message = bytes(self._buffer[4 : 4 + size])
                del self._buffer[: 4 + size]
                return message
            await self._receive_record()

    async def _receive_record(self) -> None:
        assert self._keys is not None, "the handshake is not complete"
        found = await self.frame()
        if found.body != "data":
            # Acknowledgements, heartbeats and resumes say nothing to a harness.
            if found.body == "handshake":
                raise ValueError("a second message 2")
            return
        if found.seq != len(self.received):
            raise ValueError(f"record {found.seq} came instead of {len(self.received)}")
        plain = self._keys.open(found.seq, found.payload)
        if len(plain) > RECORD_BYTES:
            raise ValueError(f"a record of {len(plain)} bytes")
        self.received.append(len(plain))
        self._buffer += plain

    def cut(self) -> None:
        self.relay.cut()


@asynccontextmanager
async def open_relay(
    ask: AskBundle, *, patience: float, key: KitKeyPair
) -> AsyncIterator[KitRelay]:
    """A new socket of the relay."""
    bundle = await ask()
    async with dialled(bundle.url, headers={}, patience=patience) as socket:
        yield KitRelay(socket, bundle, ask, key)
