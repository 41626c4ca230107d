"""Which seat an environment has, behind the fence of the bus."""

from __future__ import annotations

import asyncio

import msgspec

from exec_server.hub.bus import Bus, BusUnavailable
from exec_server.hub.cluster.node_messages import Owner, encode, fence_key
from exec_server.hub.cluster.registration import Seat
from exec_server.limits import Limits

_owner = msgspec.msgpack.Decoder(Owner).decode


class Ownership:
    """The fence, as one node sees it. Its servers may take a while to elect a leader."""

    def __init__(self, bus: Bus, node: str, *, limits: Limits) -> None:
        self._bus = bus
        self._node = node
        self._limits = limits

    async def claim(self, seat: Seat) -> Owner | None:
        """Who had the environment before *seat*, or has it, when `seat.revision` stays 0.

        Goes on for as long as the seat is wanted, and then raises BusUnavailable.
        """
        value = encode(self._owned_by(seat, seat.id))
        while not seat.is_over:
            try:
                owner, revision = await self.owner_of(seat)
                if owner is not None and owner.seat == seat.id:
                    # An attempt whose answer was lost.
                    seat.revision = revision
                    return None
                if owner is not None and _is_newer(owner, seat):
                    return owner
                held = await self._bus.hold(fence_key(seat.environment_id), value, after=revision)
            except BusUnavailable:
                await asyncio.sleep(self._limits.hub_channel_tick)
                continue
            if held is not None:
                seat.revision = held
                return owner
        raise BusUnavailable("the seat was left")

    async def release(self, seat: Seat) -> None:
        """Nothing happens when somebody else has the environment by now."""
        if not seat.revision:
            return
        owner = self._owned_by(seat, "")
        try:
            await self._bus.hold(fence_key(seat.environment_id), encode(owner), after=seat.revision)
        except BusUnavailable:
            # Nobody answers for it any more, which says the same.
            pass

    async def owner_of(self, seat: Seat) -> tuple[Owner | None, int]:
        """Who has the environment of *seat*, and since which revision. Raises BusUnavailable."""
        held = await self._bus.held(fence_key(seat.environment_id))
        return (None, 0) if held is None else (_owner(held.value), held.revision)

    def _owned_by(self, seat: Seat, seat_id: str) -> Owner:
        return Owner(
            node=self._node,
            seat=seat_id,
            registration_id=seat.registration_id,
            generation=seat.generation,
            since=seat.since,
        )


def _is_newer(owner: Owner, seat: Seat) -> bool:
    """Whoever comes last is the newest, unless it came long before it got to the fence."""
    if owner.generation == seat.generation:
        return seat.is_taken and bool(owner.seat) and owner.since > seat.since
    return owner.generation > seat.generation
