"""Passages: how the frames of a harness reach its executor.

Three cases exist, seen from one node:

    here        the sockets of harness and executor are both on this node
    elsewhere   the harness is here and its executor is on another node
    let_in      the executor is here and the harness is on another node

In the last two cases a pair of channels joins the nodes, one channel on each of them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

import msgspec

from exec_server.errors import RelayError
from exec_server.hub.cluster.channels import NodeChannel, NodeChannels
from exec_server.hub.cluster.node_messages import JoinAccepted, JoinRefused, JoinRequest, encode
from exec_server.hub.cluster.registration import LiveRegistration
from exec_server.hub.relay.queue_memory import Memory
from exec_server.hub.relay.relay_socket import RelaySocket
from exec_server.hub.relay.routing import (
    GOING_AWAY,
    POLICY_VIOLATION,
    Exchange,
    JoinedHarness,
)
from exec_server.limits import Limits

JoinAnswer = JoinAccepted | JoinRefused
_read_answer: Callable[[bytes], JoinAnswer] = msgspec.msgpack.Decoder(JoinAnswer).decode

# Sends a request to the node that serves an environment; None if there is no such node.
AskExecutorNode = Callable[[bytes], Awaitable[bytes | None]]


class Passage(msgspec.Struct, eq=False, frozen=True, kw_only=True):
    """One harness on this node, and the exchange that takes its frames."""

    exchange: Exchange
    harness: JoinedHarness
    # The channel to the executor's node and the executor's socket there; only if that is
    # another node.
    channel: NodeChannel | None = None
    socket_id: str = ""

    def close(self) -> None:
        if self.channel is not None:
            # The executor's node resets the streams, as it does when this node is lost.
            self.channel.close(GOING_AWAY, "the harness is gone")
        self.exchange.leave(self.harness)


class Passages:
    """The passages of one node."""

    def __init__(
        self, channels: NodeChannels, node: str, *, memory: Memory, limits: Limits
    ) -> None:
        self._channels = channels
        self._node = node
        self._memory = memory
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._crossings: set[Passage] = set()
        # Channels by the id of the executor's socket at their other end.
        self._crossing_to: defaultdict[str, set[NodeChannel]] = defaultdict(set)

    def crossings(self) -> list[Passage]:
        """The passages to executors on other nodes."""
        return list(self._crossings)

    def here(
        self, registration: LiveRegistration, socket: RelaySocket, *, token_id: str
    ) -> Passage:
        """Join a harness to an executor of this node."""
        exchange = registration.exchange
        harness = exchange.join(socket, now=self._loop.time(), token_id=token_id)
        socket.on_taken(lambda _, size: exchange.harness_took(harness, size))
        return Passage(exchange=exchange, harness=harness)

    async def elsewhere(
        self,
        environment_id: str,
        registration_id: str,
        socket: RelaySocket,
        *,
        token_id: str,
        ask: AskExecutorNode,
    ) -> Passage | None:
        """Join a harness to an executor of another node; None if no node lets it in.

        Raises BusUnavailable.
        """
        channel = self._channels.new()
        try:
            request = JoinRequest(registration_id, self._node, channel.address, token_id)
            answer = await ask(encode(request))
            joined = None if answer is None else _read_answer(answer)
        except BaseException:
            channel.lose()
            raise
        if not isinstance(joined, JoinAccepted):
            channel.lose()
            return None
        exchange = Exchange(
            channel, memory=self._memory, limits=self._limits, environment_id=environment_id
        )
        harness = exchange.join(socket, now=self._loop.time(), token_id=token_id)
        passage = Passage(
            exchange=exchange, harness=harness, channel=channel, socket_id=joined.socket_id
        )
        self._bridge(passage, channel, socket)
        self._channels.join(channel, joined.channel)
        return passage

    def _bridge(self, passage: Passage, channel: NodeChannel, socket: RelaySocket) -> None:
        """Connect the harness's *socket* with *channel*, behind which its executor is."""
        exchange, harness = passage.exchange, passage.harness

        def over(ended: tuple[int, str] | None) -> None:
            if ended is not None:
                # The executor's node has already sent the resets as frames.
                socket.end(*ended)
            exchange.end("the executor is gone")

        channel.listen(
            receive=lambda data: exchange.from_executor(data, now=self._loop.time()),
            taken=exchange.executor_took,
            over=over,
        )
        socket.on_taken(lambda _, size: exchange.harness_took(harness, size))
        self._crossings.add(passage)
        self._crossing_to[passage.socket_id].add(channel)

    def let_in(self, registration: LiveRegistration, request: JoinRequest) -> JoinAnswer:
        """Join a harness of another node to an executor of this one."""
        exchange = registration.exchange
        is_newest = request.registration_id == registration.registration_id
        if not is_newest or not exchange.has_room_for(request.token_id):
            return JoinRefused()
        channel = self._channels.new()
        harness = exchange.join(channel, now=self._loop.time(), token_id=request.token_id)

        def receive(data: bytes) -> None:
            try:
                exchange.from_harness(harness, data, now=self._loop.time())
            except RelayError as exc:
                channel.end(POLICY_VIOLATION, str(exc))

        channel.listen(
            receive=receive,
            taken=lambda _, size: exchange.harness_took(harness, size),
            over=lambda ended: exchange.leave(harness),
        )
        self._channels.join(channel, request.channel)
        self._channels.expect(channel)
        return JoinAccepted(channel.address, registration.socket_id)

    def close(self, passage: Passage) -> None:
        self._crossings.discard(passage)
        if passage.channel is not None:
            channels = self._crossing_to[passage.socket_id]
            channels.discard(passage.channel)
            if not channels:
                del self._crossing_to[passage.socket_id]
        passage.close()

    def lose_all_to(self, socket_id: str) -> None:
        """End the passages to an executor's socket that was replaced; its node may be dead."""
        for channel in tuple(self._crossing_to.get(socket_id, ())):
            channel.lose()
