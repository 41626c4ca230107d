"""Where each executor is connected: the registrations of this node, and the way to all others.

An executor has its socket on one node and is reached from every node. To find it, a node sends a
request on the environment's subject of the bus, and the node that holds the socket answers. The
subscription ends with its node, so no separate list of living sockets can be wrong.

If an environment has two sockets, the owner record decides which of them serves: the one of the
newest registration, and among those the last to come. While the bus cannot change owner records,
executors are served without them, and the records decide as soon as they are available again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any

import msgspec

from exec_server.hub.bus import Bus, BusUnavailable, Unsubscribe
from exec_server.hub.cluster.channels import NodeChannels, new_node
from exec_server.hub.cluster.node_messages import (
    Census,
    CensusPage,
    Presence,
    PresenceRequest,
    RegistrationGone,
    RegistrationRequest,
    Takeover,
    encode,
    ownership_key,
)
from exec_server.hub.cluster.ownership import Ownership
from exec_server.hub.cluster.passages import Passage, Passages
from exec_server.hub.cluster.peers import Peers
from exec_server.hub.cluster.registration import LiveRegistration
from exec_server.hub.relay.queue_memory import Memory
from exec_server.hub.relay.relay_socket import RelaySocket
from exec_server.hub.store.names import fits
from exec_server.limits import Limits
from exec_server.protocol.registry import SUPERSEDED_REASON

logger = logging.getLogger(__name__)

_PAGE = 500
# The subject of takeovers. Each is published several times, because a message may be lost.
_TAKEOVERS = "taken"
_TIMES = 3
# How long one request to an executor's node may take; the node may die meanwhile.
_ATTEMPT_SECONDS = 1.0
# How many owner records are checked at the same time after the bus was away.
_AT_ONCE = 32

_read_request = msgspec.msgpack.Decoder(RegistrationRequest).decode
_read_presence = msgspec.msgpack.Decoder(Presence).decode
_read_census = msgspec.msgpack.Decoder(Census).decode
_read_page = msgspec.msgpack.Decoder(CensusPage).decode
_read_takeover = msgspec.msgpack.Decoder(Takeover).decode
_GONE = encode(RegistrationGone())
_NEWER_SOCKET = "a newer socket serves this environment"


class Registrations:
    """The live registrations of this node, and access to those of other nodes."""

    def __init__(self, bus: Bus, *, limits: Limits, url: str | None = None) -> None:
        """*url* is the public URL of this node alone, if it has one."""
        self._bus = bus
        self._url = url
        self.memory = Memory(limits.hub_total_bytes, share=limits.hub_share_bytes)
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self.node = new_node()
        self._by_environment: dict[str, LiveRegistration] = {}
        self._by_socket: dict[str, LiveRegistration] = {}
        self._channels = NodeChannels(bus, self.node, limits=limits)
        self._passages = Passages(self._channels, self.node, memory=self.memory, limits=limits)
        lose = self._channels.lose_all_of
        self._peers = Peers(bus, self.node, lost=lose, limits=limits, url=url)
        self._ownership = Ownership(bus, self.node, limits=limits)
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsubscribe: list[Unsubscribe] = []

    async def start(self) -> None:
        """Raises BusUnavailable."""
        await self._channels.start()
        self._unsubscribe = [
            await self._bus.answer(f"census.{self.node}", self._answer_census),
            await self._bus.subscribe(_TAKEOVERS, self._hear_takeover),
        ]
        await self._peers.start()
        self._spawn(self._check_owners_after_outages())

    async def stop(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._peers.stop()
        for unsubscribe in self._unsubscribe:
            await unsubscribe()
        await self._channels.stop()

    def here(self) -> list[LiveRegistration]:
        """The registrations whose executors are connected to this node."""
        return list(self._by_socket.values())

    def crossings(self) -> list[Passage]:
        """The passages of harnesses of this node to executors of other nodes."""
        return self._passages.crossings()

    @property
    def channels(self) -> int:
        """The number of channels between this node and others."""
        return len(self._channels)

    @property
    def peers(self) -> list[str]:
        """The other nodes."""
        return self._peers.nodes

    # For the executor's socket.

    async def serve(self, registration: LiveRegistration) -> bool:
        """Let *registration* serve its environment, and end the socket that served it before.

        Returns False if a newer one serves. Raises BusUnavailable.
        """
        self._by_socket[registration.socket_id] = registration
        claiming = self._spawn(self._claim(registration))
        # The claim continues in the background if the bus takes longer.
        await asyncio.wait({claiming}, timeout=self._limits.hub_ownership_seconds)
        registration.unsubscribe = await self._listen(registration)
        here = self._by_environment.get(registration.environment_id)
        if registration.is_over or (
            here is not None and registration.is_older_than(here.takeover())
        ):
            return False
        self._by_environment[registration.environment_id] = registration
        registration.is_serving = True
        if here is not None:
            self._dismiss(here, _NEWER_SOCKET)
        if not registration.revision:
            logger.warning(
                "%s is served without an owner record, which cannot be written now",
                registration.environment_id,
            )
        if registration.replaced_socket_id or not registration.revision:
            # Other nodes are told only now, because now they can find this socket.
            self._spawn(self._tell_all(registration.takeover()))
        return True

    async def leave(self, registration: LiveRegistration) -> None:
        """Forget *registration*. A newer one of the same environment is not touched."""
        self._forget(registration)
        try:
            if registration.unsubscribe is not None:
                await registration.unsubscribe()
        finally:
            await self._ownership.release(registration)

    async def supersede(self, environment_id: str, generation: int) -> None:
        """End the sockets of older registrations at once, because a newer one has come."""
        takeover = Takeover(environment_id=environment_id, generation=generation)
        self._give_way(takeover, SUPERSEDED_REASON)
        if generation > 1:
            self._spawn(self._tell_all(takeover))

    async def _listen(self, registration: LiveRegistration) -> Unsubscribe:
        """Answer requests for the environment.

        A bus that is away for a moment, because it changes its server, is waited for.
        """
        subject = _subject(registration.environment_id)
        deadline = self._loop.time() + self._limits.hub_settle_seconds
        while True:
            try:
                return await self._bus.answer(subject, partial(self._answer, registration))
            except BusUnavailable:
                if registration.is_over or self._loop.time() > deadline:
                    raise
            await asyncio.sleep(self._limits.hub_channel_tick)

    async def _claim(self, registration: LiveRegistration) -> None:
        try:
            before = await self._ownership.claim(registration)
        except BusUnavailable:
            return
        if registration.is_over:
            # The socket has left while the record was written.
            await self._ownership.release(registration)
        elif not registration.revision:
            self._dismiss(registration, _NEWER_SOCKET)
        elif before is not None and before.socket_id and before.node != self.node:
            registration.replaced_socket_id = before.socket_id
            if registration.is_serving:
                self._spawn(self._tell_all(registration.takeover()))

    async def _tell_all(self, takeover: Takeover) -> None:
        for _ in range(_TIMES):
            self._bus.publish(_TAKEOVERS, encode(takeover))
            await asyncio.sleep(self._limits.hub_beat_seconds)

    def _hear_takeover(self, data: bytes) -> None:
        takeover = _read_takeover(data)
        self._give_way(takeover, _NEWER_SOCKET if takeover.socket_id else SUPERSEDED_REASON)
        self._passages.lose_all_to(takeover.replaced_socket_id)

    def _give_way(self, takeover: Takeover, reason: str) -> None:
        here = self._by_environment.get(takeover.environment_id)
        if here is None or here.socket_id == takeover.socket_id:
            return
        if here.is_older_than(takeover):
            self._dismiss(here, reason)

    def _dismiss(self, registration: LiveRegistration, reason: str) -> None:
        self._forget(registration)
        registration.dismiss(reason)

    def _forget(self, registration: LiveRegistration) -> None:
        registration.is_over = True
        self._by_socket.pop(registration.socket_id, None)
        if self._by_environment.get(registration.environment_id) is registration:
            del self._by_environment[registration.environment_id]

    # Finding executors.

    async def find(self, environment_id: str, *, token_id: str = "") -> Presence | None:
        """The environment's executor, on any node. Raises BusUnavailable.

        If *token_id* is given, `has_room` is that for a harness with this token.
        """
        self._check_bus()
        registration = self._by_environment.get(environment_id)
        if registration is not None:
            return self._presence_of(registration, token_id)
        answer = await self._ask(environment_id, encode(PresenceRequest(token_id)))
        if answer is None:
            return None
        presence = _read_presence(answer)
        # Clients are sent only to URLs that living nodes announce.
        return msgspec.structs.replace(presence, url=self._peers.url_of(presence.node))

    def _check_bus(self) -> None:
        if self._bus.connected_since is None:
            # Another node may have taken over an environment that this one still serves.
            raise BusUnavailable("the bus is away")

    async def census(self, wanted: Census) -> dict[str, Presence]:
        """The executors that fit *wanted*, of all nodes that answer in time, by environment."""
        found: dict[str, Presence] = {}
        pages = await asyncio.gather(*(self._census_of(node, wanted) for node in self._peers.nodes))
        here = [self._presence_of(self._by_environment[name]) for name in self._names(wanted)]
        for presence in (*(each for page in pages for each in page), *here):
            other = found.get(presence.environment_id)
            if other is None or other.since < presence.since:
                found[presence.environment_id] = presence
        return found

    async def _census_of(self, node: str, wanted: Census) -> list[Presence]:
        found: list[Presence] = []
        after: str | None = wanted.after
        while after is not None:
            request = encode(msgspec.structs.replace(wanted, after=after))
            try:
                answer = await self._bus.request(
                    f"census.{node}", request, timeout=self._limits.bus_timeout
                )
            except BusUnavailable:
                answer = None
            if answer is None:
                break
            page = _read_page(answer)
            found += page.presences
            after = page.after
        return found

    def _answer_census(self, data: bytes) -> bytes:
        names = sorted(self._names(_read_census(data)))
        shown = [self._presence_of(self._by_environment[name]) for name in names[:_PAGE]]
        return encode(CensusPage(shown, names[_PAGE - 1] if len(names) > _PAGE else None))

    def _names(self, wanted: Census) -> list[str]:
        return [
            name
            for name in self._by_environment
            if wanted.after < name <= wanted.until and fits(name, wanted.patterns)
        ]

    def _presence_of(self, registration: LiveRegistration, token_id: str = "") -> Presence:
        return Presence(
            environment_id=registration.environment_id,
            registration_id=registration.registration_id,
            node=self.node,
            since=registration.since,
            streams=registration.exchange.streams,
            bytes=registration.exchange.bytes,
            has_room=registration.exchange.has_room_for(token_id),
            url=self._url,
        )

    async def _ask(self, environment_id: str, request: bytes) -> bytes | None:
        """The answer of the node that serves the environment; None if no node does.

        A request without an answer is repeated for a while, because the subscription of a living
        node is missing for a moment when the node changes its server.
        """
        started_at = self._loop.time()
        while True:
            try:
                answer = await self._bus.request(
                    _subject(environment_id), request, timeout=_ATTEMPT_SECONDS
                )
            except BusUnavailable:
                if self._loop.time() - started_at > self._limits.bus_timeout:
                    raise
            else:
                if answer is not None and answer != _GONE:
                    return answer
                is_late = self._loop.time() - started_at > self._limits.hub_settle_seconds
                if is_late or (answer is None and self._peers.are_steady):
                    return None
            await asyncio.sleep(self._limits.hub_channel_tick)

    # For the harness's socket.

    async def join(
        self, environment_id: str, registration_id: str, socket: RelaySocket, *, token_id: str
    ) -> Passage | None:
        """A passage for the harness behind *socket*; None if its executor is gone or full.

        Raises BusUnavailable.
        """
        self._check_bus()
        registration = self._by_environment.get(environment_id)
        if registration is None:
            ask = partial(self._ask, environment_id)
            return await self._passages.elsewhere(
                environment_id, registration_id, socket, token_id=token_id, ask=ask
            )
        # Others may have joined since the room was checked.
        is_newest = registration.registration_id == registration_id
        if not is_newest or not registration.exchange.has_room_for(token_id):
            return None
        return self._passages.here(registration, socket, token_id=token_id)

    def close(self, passage: Passage) -> None:
        self._passages.close(passage)

    # Requests of other nodes.

    def _answer(self, registration: LiveRegistration, data: bytes) -> bytes:
        if registration.is_over or not registration.is_serving:
            return _GONE
        request = _read_request(data)
        if isinstance(request, PresenceRequest):
            return encode(self._presence_of(registration, request.token_id))
        return encode(self._passages.let_in(registration, request))

    # Owner records, after the bus was away.

    async def _check_owners_after_outages(self) -> None:
        since = self._bus.connected_since
        while True:
            await asyncio.sleep(self._limits.hub_beat_seconds)
            if self._bus.connected_since in (None, since):
                continue
            since = self._bus.connected_since
            serving = tuple(self._by_environment.values())
            for start in range(0, len(serving), _AT_ONCE):
                await asyncio.gather(*map(self._check_owner, serving[start : start + _AT_ONCE]))

    async def _check_owner(self, registration: LiveRegistration) -> None:
        """End a registration that missed a takeover, and write a record that the bus has lost."""
        if not registration.revision:
            # Its claim still runs.
            return
        try:
            owner, revision = await self._ownership.owner_of(registration)
        except BusUnavailable:
            # It is checked again when the bus is back.
            return
        if owner is None:
            registration.revision = 0
            self._spawn(self._claim(registration))
        elif owner.socket_id != registration.socket_id and revision > registration.revision:
            self._dismiss(registration, _NEWER_SOCKET)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _subject(environment_id: str) -> str:
    return f"executor.{ownership_key(environment_id)}"
