"""Channels between two nodes: frames cross the bus completely and in order, in both directions.

A channel is a `Port`, so an exchange uses it like a socket. The socket itself is on the node at the
other end.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable

from exec_server.hub.bus import Bus, Unsubscribe
from exec_server.hub.cluster.reliable import ReliableChannel
from exec_server.hub.cluster.reliable_halves import HEADER_BYTES
from exec_server.hub.relay.relay_socket import Taken
from exec_server.hub.relay.routing import Frame, JoinedHarness
from exec_server.limits import Limits

logger = logging.getLogger(__name__)

# The address of a channel is the name of its node and a random number.
_NODE_BYTES, _NUMBER_BYTES = 6, 8
_ADDRESS_BYTES = _NODE_BYTES + _NUMBER_BYTES
# A message begins with its kind, the address of its receiver and the address of its sender. It
# carries a packet, or says that its sender is ready, or that its sender does not know the channel.
_PACKET, _READY, _UNKNOWN = b"\x00", b"\x01", b"\x02"
_HEAD_BYTES = 1 + 2 * _ADDRESS_BYTES
_FRAGMENT_BYTES = 512 * 1024

Receive = Callable[[bytes], None]
# Called with the close code and reason of the other side, or None if the other side was lost.
Over = Callable[[tuple[int, str] | None], None]


def new_node() -> str:
    """A new random name for a node."""
    return os.urandom(_NODE_BYTES).hex()


def _node_of(address: bytes) -> str:
    return address[:_NODE_BYTES].hex()


def _subject(node: str) -> str:
    return f"node.{node}"


class NodeChannel:
    """One end of a pair of channels."""

    def __init__(self, channels: NodeChannels, address: bytes, reliable: ReliableChannel) -> None:
        self._channels = channels
        self._reliable = reliable
        # The size and origin of each message that the other side has not taken.
        self._sent: deque[tuple[int, JoinedHarness | None]] = deque()
        self._receive: Receive = lambda data: None
        self._taken: Taken = lambda origin, size: None
        self._over: Over = lambda ended: None
        self._is_delivering = False
        self._has_ended = False
        # True once messages that arrive are dropped.
        self._is_mute = False
        # True once the channel does not exist any more.
        self._is_gone = False
        self.address = address
        # The address of the other side; empty until it is known.
        self.peer = b""
        self.is_heard = False

    def listen(self, *, receive: Receive, taken: Taken, over: Over) -> None:
        """Set what is called with each event. Call this before anything is sent or can arrive.

        *over* is called once, when the other side has ended or is lost; not after `close`.
        """
        self._receive, self._taken, self._over = receive, taken, over

    # The methods of a port.

    def send(self, data: Frame, origin: JoinedHarness | None) -> bool:
        if self._has_ended or self._is_gone:
            return True
        self._sent.append((len(data), origin))
        self._reliable.send(bytes(data))
        self.flush()
        return False

    def discard(self) -> None:
        for _ in range(self._reliable.discard()):
            size, origin = self._sent.pop()
            self._taken(origin, size)

    def end(self, code: int, reason: str) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._reliable.end(code, reason)
            self.flush()

    def pause(self) -> None:
        self._reliable.pause()

    def resume(self) -> None:
        self._reliable.resume()
        self._deliver()
        self.flush()

    def close(self, code: int, reason: str) -> None:
        """End, and drop messages that still arrive."""
        self._is_mute = True
        self.end(code, reason)
        self.resume()

    # For NodeChannels.

    def arrive(self, packet: bytes) -> None:
        """Handle a packet from the bus."""
        self.is_heard = True
        self._reliable.receive(packet)
        for _ in range(self._reliable.taken()):
            size, origin = self._sent.popleft()
            self._taken(origin, size)
        self._deliver()
        self.flush()

    def tick(self) -> None:
        self._reliable.tick()
        self.flush()

    def flush(self) -> None:
        """Publish the packets that are due, and forget the channel if it is finished."""
        if self._is_gone or not self.peer:
            return
        for packet in self._reliable.packets():
            self._channels.publish(self, _PACKET, packet)
        if self._reliable.has_failed or self._reliable.is_finished:
            self.lose()
        elif self._reliable.needs_ticks:
            self._channels.watch(self)

    def lose(self) -> None:
        """End without telling the other side, which is gone."""
        if self._is_gone:
            return
        self._is_gone = True
        self._channels.forget(self)
        while self._sent:
            size, origin = self._sent.popleft()
            self._taken(origin, size)
        self._say_over(None)

    def _deliver(self) -> None:
        # A receiver may call `send` and `resume`, which leads back here.
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while messages := self._reliable.messages():
                for message in messages:
                    if not self._is_mute:
                        self._receive(message)
        finally:
            self._is_delivering = False
        if self._reliable.ended is not None and not self._is_gone:
            self._say_over(self._reliable.ended)
            self.end(0, "")

    def _say_over(self, ended: tuple[int, str] | None) -> None:
        if not self._is_mute:
            self._is_mute = True
            self._over(ended)


class NodeChannels:
    """The channels of this node."""

    def __init__(self, bus: Bus, node: str, *, limits: Limits) -> None:
        self._bus = bus
        self._node = node
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._channels: dict[bytes, NodeChannel] = {}
        self._ticking: dict[NodeChannel, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._unsubscribe: Unsubscribe | None = None
        self._none_left = asyncio.Event()
        self._none_left.set()

    def __len__(self) -> int:
        return len(self._channels)

    async def start(self) -> None:
        self._unsubscribe = await self._bus.subscribe(_subject(self._node), self._hear)

    async def stop(self) -> None:
        """Wait until all channels have ended, for `close_timeout` seconds at most."""
        try:
            async with asyncio.timeout(self._limits.close_timeout):
                await self._none_left.wait()
        except TimeoutError:
            logger.warning("%d channels to other nodes were cut", len(self._channels))
        if self._timer is not None:
            self._timer.cancel()
        if self._unsubscribe is not None:
            await self._unsubscribe()

    def new(self) -> NodeChannel:
        """A channel that is not joined to one of another node yet."""
        most = self._bus.message_bytes - _HEAD_BYTES - HEADER_BYTES
        window = self._limits.hub_channel_window
        reliable = ReliableChannel(
            window=window,
            fragment=min(_FRAGMENT_BYTES, most, window),
            patience=self._limits.hub_channel_patience,
            # The longest frame carries a whole message of the older relay.
            longest=self._limits.relay_frame_bytes + self._limits.message_bytes,
        )
        address = bytes.fromhex(self._node) + os.urandom(_NUMBER_BYTES)
        channel = self._channels[address] = NodeChannel(self, address, reliable)
        self._none_left.clear()
        return channel

    def join(self, channel: NodeChannel, peer: bytes) -> None:
        """Connect *channel* with the one of another node, whose address is *peer*."""
        channel.peer = peer
        self.publish(channel, _READY, b"")
        channel.flush()

    def expect(self, channel: NodeChannel) -> None:
        """Give up *channel* if nothing is heard of its other side within `bus_timeout`."""

        def check() -> None:
            if not channel.is_heard:
                channel.lose()

        self._loop.call_later(self._limits.bus_timeout, check)

    def lose_all_of(self, node: str) -> None:
        """Give up all channels to *node*, which is gone."""
        for channel in tuple(self._channels.values()):
            if _node_of(channel.peer) == node:
                channel.lose()

    # For the channels.

    def publish(self, channel: NodeChannel, kind: bytes, packet: bytes) -> None:
        message = b"".join((kind, channel.peer, channel.address, packet))
        self._bus.publish(_subject(_node_of(channel.peer)), message)

    def watch(self, channel: NodeChannel) -> None:
        """Call the channel's `tick` soon."""
        self._ticking[channel] = None
        if self._timer is None:
            self._timer = self._loop.call_later(self._limits.hub_channel_tick, self._tick)

    def forget(self, channel: NodeChannel) -> None:
        self._channels.pop(channel.address, None)
        self._ticking.pop(channel, None)
        if not self._channels:
            self._none_left.set()

    # Timer and bus.

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
