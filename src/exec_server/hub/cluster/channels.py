"""Sockets on other nodes: a `Port` whose frames cross the bus, each way complete and in order."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable

from exec_server.hub.bus import Bus, Unsubscribe
from exec_server.hub.cluster.reliable import Conduit
from exec_server.hub.cluster.reliable_halves import HEADER_BYTES
from exec_server.hub.relay.relay_socket import Took
from exec_server.hub.relay.routing import Harness
from exec_server.limits import Limits

logger = logging.getLogger(__name__)

# A channel's address is its node's name and a number.
_NODE_BYTES, _NUMBER_BYTES = 6, 8
_ADDRESS_BYTES = _NODE_BYTES + _NUMBER_BYTES
# A message begins with what it is about (a packet, that the other side is ready, that it does not
# know the channel), whom it is for, and whom it is from.
_PACKET, _READY, _UNKNOWN = b"\x00", b"\x01", b"\x02"
_HEAD_BYTES = 1 + 2 * _ADDRESS_BYTES
_FRAGMENT_BYTES = 512 * 1024

Receive = Callable[[bytes], None]
# The other side's code and reason, or None when it was lost.
Over = Callable[[tuple[int, str] | None], None]


def new_node() -> str:
    """A name for this node, until it ends."""
    return os.urandom(_NODE_BYTES).hex()


def _node_of(address: bytes) -> str:
    return address[:_NODE_BYTES].hex()


def _subject(node: str) -> str:
    return f"node.{node}"


class Channel:
    """One end of a pair."""

    def __init__(self, channels: Channels, address: bytes, conduit: Conduit) -> None:
        self._channels = channels
        self._conduit = conduit
        # Sizes and origins of what the other side has not taken.
        self._sent: deque[tuple[int, Harness | None]] = deque()
        self._receive: Receive = lambda data: None
        self._took: Took = lambda origin, size: None
        self._over: Over = lambda ended: None
        self._is_delivering = False
        self._has_ended = False
        # Nobody listens to what comes any more, and then: it does not exist any more.
        self._is_mute = False
        self._is_gone = False
        self.address = address
        # The other side's address, once it is known.
        self.peer = b""
        self.is_heard = False

    def tell(self, *, receive: Receive, took: Took, over: Over) -> None:
        """Whom to tell what; to be said before anything is sent or can arrive.

        *over* is called once, when the other side has ended or is lost; not after `close`.
        """
        self._receive, self._took, self._over = receive, took, over

    # A port.

    def send(self, data: bytes, origin: Harness | None) -> None:
        if self._has_ended or self._is_gone:
            self._took(origin, len(data))
            return
        self._sent.append((len(data), origin))
        self._conduit.send(data)
        self.flush()

    def discard(self) -> None:
        for _ in range(self._conduit.discard()):
            size, origin = self._sent.pop()
            self._took(origin, size)

    def end(self, code: int, reason: str) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._conduit.end(code, reason)
            self.flush()

    def pause(self) -> None:
        self._conduit.pause()

    def resume(self) -> None:
        self._conduit.resume()
        self._deliver()
        self.flush()

    def close(self, code: int, reason: str) -> None:
        """End, and listen no longer."""
        self._is_mute = True
        self.end(code, reason)
        self.resume()

    # The bus.

    def arrive(self, packet: bytes) -> None:
        self.is_heard = True
        self._conduit.receive(packet)
        for _ in range(self._conduit.taken()):
            size, origin = self._sent.popleft()
            self._took(origin, size)
        self._deliver()
        self.flush()

    def tick(self) -> None:
        self._conduit.tick()
        self.flush()

    def flush(self) -> None:
        """Publish what is due, and see whether that was all."""
        if self._is_gone or not self.peer:
            return
        for packet in self._conduit.packets():
            self._channels.publish(self, _PACKET, packet)
        if self._conduit.has_failed or self._conduit.is_finished:
            self.lose()
        elif self._conduit.needs_ticks:
            self._channels.watch(self)

    def lose(self) -> None:
        """There is no other side any more."""
        if self._is_gone:
            return
        self._is_gone = True
        self._channels.forget(self)
        while self._sent:
            size, origin = self._sent.popleft()
            self._took(origin, size)
        self._say_over(None)

    def _deliver(self) -> None:
        # Who receives may send and resume.
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while messages := self._conduit.messages():
                for message in messages:
                    if not self._is_mute:
                        self._receive(message)
        finally:
            self._is_delivering = False
        if self._conduit.ended is not None and not self._is_gone:
            self._say_over(self._conduit.ended)
            self.end(0, "")

    def _say_over(self, ended: tuple[int, str] | None) -> None:
        if not self._is_mute:
            self._is_mute = True
            self._over(ended)


class Channels:
    """All channels of this node."""

    def __init__(self, bus: Bus, node: str, *, limits: Limits) -> None:
        self._bus = bus
        self._node = node
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._channels: dict[bytes, Channel] = {}
        self._ticking: dict[Channel, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._unsubscribe: Unsubscribe | None = None
        self._none_left = asyncio.Event()
        self._none_left.set()

    def __len__(self) -> int:
        return len(self._channels)

    async def start(self) -> None:
        self._unsubscribe = await self._bus.subscribe(_subject(self._node), self._hear)

    async def stop(self) -> None:
        """Let what has been said arrive, for a moment."""
        try:
            async with asyncio.timeout(self._limits.close_timeout):
                await self._none_left.wait()
        except TimeoutError:
            logger.warning("%d channels to other nodes were cut", len(self._channels))
        if self._timer is not None:
            self._timer.cancel()
        if self._unsubscribe is not None:
            await self._unsubscribe()

    def new(self) -> Channel:
        """A channel that waits to be joined to one of another node."""
        most = self._bus.message_bytes - _HEAD_BYTES - HEADER_BYTES
        window = self._limits.hub_channel_window
        conduit = Conduit(
            window=window,
            fragment=min(_FRAGMENT_BYTES, most, window),
            patience=self._limits.hub_channel_patience,
            # A message of the older relay in a frame.
            longest=self._limits.relay_frame_bytes + self._limits.message_bytes,
        )
        address = bytes.fromhex(self._node) + os.urandom(_NUMBER_BYTES)
        channel = self._channels[address] = Channel(self, address, conduit)
        self._none_left.clear()
        return channel

    def join(self, channel: Channel, peer: bytes) -> None:
        """From now on it is one with the other node's channel, which may not know that yet."""
        channel.peer = peer
        self.publish(channel, _READY, b"")
        channel.flush()

    def expect(self, channel: Channel) -> None:
        """Give up a channel whose other side does not speak soon."""

        def check() -> None:
            if not channel.is_heard:
                channel.lose()

        self._loop.call_later(self._limits.bus_timeout, check)

    def lose_all_of(self, node: str) -> None:
        for channel in tuple(self._channels.values()):
            if _node_of(channel.peer) == node:
                channel.lose()

    # For channels.

    def publish(self, channel: Channel, kind: bytes, packet: bytes) -> None:
        message = b"".join((kind, channel.peer, channel.address, packet))
        self._bus.publish(_subject(_node_of(channel.peer)), message)

    def watch(self, channel: Channel) -> None:
        self._ticking[channel] = None
        if self._timer is None:
            self._timer = self._loop.call_later(self._limits.hub_channel_tick, self._tick)

    def forget(self, channel: Channel) -> None:
        self._channels.pop(channel.address, None)
        self._ticking.pop(channel, None)
        if not self._channels:
            self._none_left.set()

    # The bus.

    def _tick(self) -> None:
        self._timer = None
        ticking, self._ticking = self._ticking, {}
        for channel in ticking:
            channel.tick()

    def _hear(self, data: bytes) -> None:
        kind = data[:1]
        channel = self._channels.get(data[1 : 1 + _ADDRESS_BYTES])
        if channel is None:
            if kind == _PACKET:
                self._say_unknown(data)
        elif kind == _PACKET:
            channel.arrive(data[_HEAD_BYTES:])
        elif kind == _READY:
            channel.is_heard = True
        elif kind == _UNKNOWN:
            channel.lose()

    def _say_unknown(self, data: bytes) -> None:
        recipient, sender = data[1 : 1 + _ADDRESS_BYTES], data[1 + _ADDRESS_BYTES : _HEAD_BYTES]
        if len(sender) == _ADDRESS_BYTES:
            self._bus.publish(_subject(_node_of(sender)), _UNKNOWN + sender + recipient)
