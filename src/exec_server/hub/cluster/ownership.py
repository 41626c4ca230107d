"""Which socket serves an environment: one record per environment, changed by compare-and-set."""

from __future__ import annotations

import asyncio

import msgspec

from exec_server.hub.bus import Bus, BusUnavailable
from exec_server.hub.cluster.node_messages import OwnerRecord, encode, ownership_key
from exec_server.hub.cluster.registration import LiveRegistration
from exec_server.limits import Limits

_read_record = msgspec.msgpack.Decoder(OwnerRecord).decode


class Ownership:
    """The owner records, as one node uses them.

    The servers that keep them cannot answer while they elect a leader.
    """

    def __init__(self, bus: Bus, node: str, *, limits: Limits) -> None:
        self._bus = bus
        self._node = node
        self._limits = limits

    async def claim(self, registration: LiveRegistration) -> OwnerRecord | None:
        """Make *registration* the owner of its environment and return the previous record.

        If `registration.revision` is still 0 afterwards, a newer owner exists and is returned.
        Tries again until the registration is over, and then raises BusUnavailable.
        """
        value = encode(self._record(registration, registration.socket_id))
        key = ownership_key(registration.environment_id)
        while not registration.is_over:
            try:
                owner, revision = await self.owner_of(registration)
                if owner is not None and owner.socket_id == registration.socket_id:
                    # An earlier attempt had succeeded, and its answer was lost.
                    registration.revision = revision
                    return None
                if owner is not None and _is_newer(owner, registration):
                    return owner
                written = await self._bus.compare_and_set(key, value, after=revision)
            except BusUnavailable:
                await asyncio.sleep(self._limits.hub_channel_tick)
                continue
            if written is not None:
                registration.revision = written
                return owner
        raise BusUnavailable("the registration is over")

    async def release(self, registration: LiveRegistration) -> None:
        """Record that no socket serves the environment, unless another one does by now."""
        if not registration.revision:
            return
        value = encode(self._record(registration, ""))
        key = ownership_key(registration.environment_id)
        try:
            await self._bus.compare_and_set(key, value, after=registration.revision)
        except BusUnavailable:
            # The record stays, but requests to its socket find that it is gone.
            pass

    async def owner_of(self, registration: LiveRegistration) -> tuple[OwnerRecord | None, int]:
        """The record of the environment and its revision. Raises BusUnavailable."""
        stored = await self._bus.read_value(ownership_key(registration.environment_id))
        if stored is None:
            return None, 0
        # A value that is empty was not written by a node of this registry.
        return _read_record(stored.value) if stored.value else None, stored.revision

    def _record(self, registration: LiveRegistration, socket_id: str) -> OwnerRecord:
        return OwnerRecord(
            node=self._node,
            socket_id=socket_id,
            registration_id=registration.registration_id,
            generation=registration.generation,
            since=registration.since,
        )


def _is_newer(owner: OwnerRecord, registration: LiveRegistration) -> bool:
    """True if *owner* must stay.

    Within one generation the last claim wins, unless the claimant already served and had to wait
    so long for the bus that a newer socket came meanwhile.
    """
    if owner.generation == registration.generation:
        is_late = registration.is_serving and owner.since > registration.since
        return is_late and bool(owner.socket_id)
    return owner.generation > registration.generation
