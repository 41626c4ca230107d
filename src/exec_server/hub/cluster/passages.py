"""The ways of harnesses to executors: within this node, out to another one, and in from there."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

import msgspec

from exec_server.errors import RelayError
from exec_server.hub.cluster.channels import Channel, Channels
from exec_server.hub.cluster.node_messages import Full, Join, Joined, encode
from exec_server.hub.cluster.registration import Seat
from exec_server.hub.relay.relay_socket import Link
from exec_server.hub.relay.routing import GOING_AWAY, POLICY_VIOLATION, Exchange, Harness, Memory
from exec_server.limits import Limits

_joined: Callable[[bytes], Joined | Full] = msgspec.msgpack.Decoder(Joined | Full).decode

# Asks the seat of an environment, wherever it is.
Ask = Callable[[bytes], Awaitable[bytes | None]]


class Passage(msgspec.Struct, eq=False, frozen=True, kw_only=True):
    """A harness's way to its executor: what its frames are given to."""

    exchange: Exchange
    harness: Harness
    # To the executor's node, when that is another one, and its seat there.
    channel: Channel | None = None
    seat: str = ""

    def close(self) -> None:
        if self.channel is not None:
            # The executor's node resets the streams, as it does when this one is lost.
            self.channel.close(GOING_AWAY, "the harness is gone")
        self.exchange.leave(self.harness)


class Passages:
    """Those of one node."""

    def __init__(self, channels: Channels, node: str, *, memory: Memory, limits: Limits) -> None:
        self._channels = channels
        self._node = node
        self._memory = memory
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._crossings: set[Passage] = set()
        self._crossing_to: defaultdict[str, set[Channel]] = defaultdict(set)

    def crossings(self) -> list[Passage]:
        """Those that lead to other nodes."""
        return list(self._crossings)

    def here(self, seat: Seat, link: Link) -> Passage:
        """Harness and executor are both at this node."""
        harness = seat.exchange.join(link, now=self._loop.time())
        link.tell(lambda _, size: seat.exchange.harness_took(harness, size))
        return Passage(exchange=seat.exchange, harness=harness)

    async def elsewhere(self, registration_id: str, link: Link, *, ask: Ask) -> Passage | None:
        """The executor is at another node; None when it is nowhere. Raises BusUnavailable."""
        channel = self._channels.new()
        try:
            answer = await ask(encode(Join(registration_id, self._node, channel.address)))
            joined = None if answer is None else _joined(answer)
        except BaseException:
            channel.lose()
            raise
        if not isinstance(joined, Joined):
            channel.lose()
            return None
        passage = self._bridge(joined.seat, channel, link)
        self._channels.join(channel, joined.channel)
        return passage

    def _bridge(self, seat: str, channel: Channel, link: Link) -> Passage:
        """A harness here, its executor behind *channel*."""
        exchange = Exchange(channel, memory=self._memory, limits=self._limits)
        harness = exchange.join(link, now=self._loop.time())
        passage = Passage(exchange=exchange, harness=harness, channel=channel, seat=seat)

        def over(ended: tuple[int, str] | None) -> None:
            if ended is not None:
                # What the executor's node had to say to the harness was said by frames.
                link.end(*ended)
            exchange.end("the executor is gone")

        channel.tell(
            receive=lambda data: exchange.from_executor(data, now=self._loop.time()),
            took=exchange.executor_took,
            over=over,
        )
        link.tell(lambda _, size: exchange.harness_took(harness, size))
        self._crossings.add(passage)
        self._crossing_to[seat].add(channel)
        return passage

    def let_in(self, seat: Seat, request: Join) -> Joined | Full:
        """A harness that is behind a channel of another node."""
        exchange = seat.exchange
        if request.registration_id != seat.registration_id or not exchange.has_room:
            return Full()
        channel = self._channels.new()
        harness = exchange.join(channel, now=self._loop.time())

        def receive(data: bytes) -> None:
            try:
                exchange.from_harness(harness, data, now=self._loop.time())
            except RelayError as exc:
                channel.end(POLICY_VIOLATION, str(exc))

        channel.tell(
            receive=receive,
            took=lambda _, size: exchange.harness_took(harness, size),
            over=lambda ended: exchange.leave(harness),
        )
        self._channels.join(channel, request.channel)
        self._channels.expect(channel)
        return Joined(channel.address, seat.id)

    def close(self, passage: Passage) -> None:
        self._crossings.discard(passage)
        if passage.channel is not None:
            channels = self._crossing_to[passage.seat]
            channels.discard(passage.channel)
            if not channels:
                del self._crossing_to[passage.seat]
        passage.close()

    def lose_all_to(self, seat: str) -> None:
        """That seat is another one's by now, and its node may be dead."""
        for channel in tuple(self._crossing_to.get(seat, ())):
            channel.lose()
