"""Who is where: an executor has a seat on the node of its socket, and is reached from every node.

That a seat is there is told by its subscription on the bus, which ends with its node. Which of two
is the environment's is told by the fence: the one of the newest registration that came last. While
the fence is away executors are served nevertheless, and the fence has its say when it is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from exec_server.hub.bus import Bus, BusUnavailable, Unsubscribe
from exec_server.hub.cluster.channels import Channels, new_node
from exec_server.hub.cluster.node_messages import (
    Ask,
    Census,
    Full,
    Gone,
    Joined,
    Page,
    Presence,
    SeatRequest,
    Taken,
    encode,
    fence_key,
)
from exec_server.hub.cluster.ownership import Ownership
from exec_server.hub.cluster.passages import Passage, Passages
from exec_server.hub.cluster.peers import Peers
from exec_server.hub.cluster.registration import Seat
from exec_server.hub.relay.relay_socket import Link
from exec_server.hub.relay.routing import Memory
from exec_server.hub.store.names import fits
from exec_server.limits import Limits

logger = logging.getLogger(__name__)

_PAGE = 500
# To whom everybody is told that an executor has come, and how often, should it be lost.
_TAKEN = "taken"
_TIMES = 3
# How long one attempt to ask a seat may take; its node may die meanwhile.
_ATTEMPT_SECONDS = 1.0
# Seats that are checked at once after the bus was away.
_AT_ONCE = 32

_request = msgspec.msgpack.Decoder(SeatRequest).decode
_presence = msgspec.msgpack.Decoder(Presence).decode
_joined: Callable[[bytes], Joined | Full] = msgspec.msgpack.Decoder(Joined | Full).decode
_census = msgspec.msgpack.Decoder(Census).decode
_page = msgspec.msgpack.Decoder(Page).decode
_taken = msgspec.msgpack.Decoder(Taken).decode
_GONE = encode(Gone())
_NEWER_SOCKET = "a newer socket serves this environment"
_NEWER_REGISTRATION = "a newer registration serves this environment"


class Seats:
    """The seats of this node, and the way to all others."""

    def __init__(self, bus: Bus, *, limits: Limits, url: str | None = None) -> None:
        """*url* is how others reach this node itself, where they can."""
        self._bus = bus
        self._url = url
        self.memory = Memory(limits.hub_total_bytes)
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self.node = new_node()
        self._by_environment: dict[str, Seat] = {}
        self._by_id: dict[str, Seat] = {}
        self._channels = Channels(bus, self.node, limits=limits)
        self._passages = Passages(self._channels, self.node, memory=self.memory, limits=limits)
        self._peers = Peers(bus, self.node, lost=self._channels.lose_all_of, limits=limits)
        self._ownership = Ownership(bus, self.node, limits=limits)
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsubscribe: list[Unsubscribe] = []

    async def start(self) -> None:
        """Raises BusUnavailable."""
        await self._channels.start()
        self._unsubscribe = [
            await self._bus.answer(f"census.{self.node}", self._answer_census),
            await self._bus.subscribe(_TAKEN, self._hear_taken),
        ]
        await self._peers.start()
        self._spawn(self._look_after_the_fence())

    async def stop(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._peers.stop()
        for unsubscribe in self._unsubscribe:
            await unsubscribe()
        await self._channels.stop()

    def here(self) -> list[Seat]:
        """Those of this node."""
        return list(self._by_id.values())

    def crossings(self) -> list[Passage]:
        """The ways of harnesses of this node to executors of others."""
        return self._passages.crossings()

    @property
    def channels(self) -> int:
        """How many join sockets here with sockets of other nodes."""
        return len(self._channels)

    @property
    def peers(self) -> list[str]:
        """The other nodes."""
        return self._peers.nodes

    # The executor.

    async def take(self, seat: Seat) -> bool:
        """Be the executor of an environment; whoever was, goes. False when a newer one is.

        Raises BusUnavailable.
        """
        self._by_id[seat.id] = seat
        claiming = self._spawn(self._claim(seat))
        # It goes on behind our back when the fence is away.
        await asyncio.wait({claiming}, timeout=self._limits.hub_fence_seconds)
        seat.unsubscribe = await self._listen(seat)
        here = self._by_environment.get(seat.environment_id)
        if seat.is_over or (here is not None and seat.is_older_than(here.taken())):
            return False
        self._by_environment[seat.environment_id] = seat
        seat.is_taken = True
        if here is not None:
            self._dismiss(here, _NEWER_SOCKET)
        if not seat.revision:
            logger.warning("%s is served without the fence, which is away", seat.environment_id)
        if seat.before or not seat.revision:
            # Not before we can be found.
            self._spawn(self._tell_all(seat.taken()))
        return True

    async def leave(self, seat: Seat) -> None:
        """Nothing else happens when somebody else has it by now."""
        self._forget(seat)
        if seat.unsubscribe is not None:
            await seat.unsubscribe()
        await self._ownership.release(seat)

    async def supersede(self, environment_id: str, generation: int) -> None:
        """A newer registration has come: the sockets of older ones end at once."""
        taken = Taken(environment_id=environment_id, generation=generation)
        self._give_way(taken, _NEWER_REGISTRATION)
        if generation > 1:
            self._spawn(self._tell_all(taken))

    async def _listen(self, seat: Seat) -> Unsubscribe:
        """A bus that is away for a moment, because it changes its server, is waited for."""
        subject = _subject(seat.environment_id)
        deadline = self._loop.time() + self._limits.hub_settle_seconds
        while True:
            try:
                return await self._bus.answer(subject, partial(self._answer, seat))
            except BusUnavailable:
                if seat.is_over or self._loop.time() > deadline:
                    raise
            await asyncio.sleep(self._limits.hub_channel_tick)

    async def _claim(self, seat: Seat) -> None:
        try:
            before = await self._ownership.claim(seat)
        except BusUnavailable:
            return
        if seat.is_over:
            # It has left while the fence let it in.
            await self._ownership.release(seat)
        elif not seat.revision:
            self._dismiss(seat, _NEWER_SOCKET)
        elif before is not None and before.seat and before.node != self.node:
            seat.before = before.seat
            if seat.is_taken:
                self._spawn(self._tell_all(seat.taken()))

    async def _tell_all(self, taken: Taken) -> None:
        for _ in range(_TIMES):
            self._bus.publish(_TAKEN, encode(taken))
            await asyncio.sleep(self._limits.hub_beat_seconds)

    def _hear_taken(self, data: bytes) -> None:
        taken = _taken(data)
        self._give_way(taken, _NEWER_SOCKET if taken.seat else _NEWER_REGISTRATION)
        self._passages.lose_all_to(taken.before)

    def _give_way(self, taken: Taken, reason: str) -> None:
        here = self._by_environment.get(taken.environment_id)
        if here is not None and here.id != taken.seat and here.is_older_than(taken):
            self._dismiss(here, reason)

    def _dismiss(self, seat: Seat, reason: str) -> None:
        self._forget(seat)
        seat.dismiss(reason)

    def _forget(self, seat: Seat) -> None:
        seat.is_over = True
        self._by_id.pop(seat.id, None)
        if self._by_environment.get(seat.environment_id) is seat:
            del self._by_environment[seat.environment_id]

    # Everybody.

    async def find(self, environment_id: str) -> Presence | None:
        """The environment's executor, wherever it is. Raises BusUnavailable."""
        self._check_bus()
        seat = self._by_environment.get(environment_id)
        if seat is not None:
            return self._presence_of(seat)
        answer = await self._ask(environment_id, encode(Ask()))
        return None if answer is None else _presence(answer)

    def _check_bus(self) -> None:
        if self._bus.connected_since is None:
            # Somebody else may have taken the environment of a seat that is here.
            raise BusUnavailable("the bus is away")

    async def census(self, wanted: Census) -> dict[str, Presence]:
        """Every executor that is wanted, of every node that answers in time, by environment."""
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
            page = _page(answer)
            found += page.presences
            after = page.after
        return found

    def _answer_census(self, data: bytes) -> bytes:
        names = sorted(self._names(_census(data)))
        shown = [self._presence_of(self._by_environment[name]) for name in names[:_PAGE]]
        return encode(Page(shown, names[_PAGE - 1] if len(names) > _PAGE else None))

    def _names(self, wanted: Census) -> list[str]:
        return [
            name
            for name in self._by_environment
            if wanted.after < name <= wanted.until and fits(name, wanted.patterns)
        ]

    def _presence_of(self, seat: Seat) -> Presence:
        return Presence(
            environment_id=seat.environment_id,
            registration_id=seat.registration_id,
            node=self.node,
            since=seat.since,
            streams=seat.exchange.streams,
            bytes=seat.exchange.bytes,
            has_room=seat.exchange.has_room,
            url=self._url,
        )

    async def _ask(self, environment_id: str, request: bytes) -> bytes | None:
        """What the environment's seat answers; None when there is none.

        Subscriptions of a living node are missing for a moment when it changes its server.
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

    # The harness.

    async def join(self, environment_id: str, registration_id: str, link: Link) -> Passage | None:
        """A passage for the harness behind *link*; None when its executor is gone, or full.

        Raises BusUnavailable.
        """
        self._check_bus()
        seat = self._by_environment.get(environment_id)
        if seat is None:
            ask = partial(self._ask, environment_id)
            return await self._passages.elsewhere(registration_id, link, ask=ask)
        return self._passages.here(seat, link) if seat.registration_id == registration_id else None

    def close(self, passage: Passage) -> None:
        self._passages.close(passage)

    # What others ask of a seat.

    def _answer(self, seat: Seat, data: bytes) -> bytes:
        if seat.is_over or not seat.is_taken:
            return _GONE
        request = _request(data)
        if isinstance(request, Ask):
            return encode(self._presence_of(seat))
        return encode(self._passages.let_in(seat, request))

    # The fence, after the bus was away.

    async def _look_after_the_fence(self) -> None:
        since = self._bus.connected_since
        while True:
            await asyncio.sleep(self._limits.hub_beat_seconds)
            if self._bus.connected_since in (None, since):
                continue
            since = self._bus.connected_since
            seats = tuple(self._by_environment.values())
            for start in range(0, len(seats), _AT_ONCE):
                await asyncio.gather(*map(self._confirm, seats[start : start + _AT_ONCE]))

    async def _confirm(self, seat: Seat) -> None:
        """It may have missed that it was sent away, or the fence may have lost it."""
        if not seat.revision:
            # It waits for the fence already.
            return
        try:
            owner, revision = await self._ownership.owner_of(seat)
        except BusUnavailable:
            # It will be back once more.
            return
        if owner is None:
            seat.revision = 0
            self._spawn(self._claim(seat))
        elif owner.seat != seat.id and revision > seat.revision:
            self._dismiss(seat, _NEWER_SOCKET)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _subject(environment_id: str) -> str:
    return f"executor.{fence_key(environment_id)}"
