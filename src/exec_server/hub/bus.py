"""Who is where: the executors that are reachable now, and what every node has to hear of.

One node keeps it in memory. Several share it; nothing else in the hub knows how many there are.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from exec_server.hub.links import Link
from exec_server.hub.routing import Exchange


class Seat(msgspec.Struct, eq=False, frozen=True, kw_only=True):
    """An executor's socket."""

    environment_id: str
    registration_id: str
    link: Link
    exchange: Exchange
    address: str
    since: float


class Bus(Protocol):
    def take_seat(self, seat: Seat) -> Seat | None:
        """Be the executor of an environment; the one before is returned, and has to go."""

    def leave_seat(self, seat: Seat) -> None:
        """Nothing happens when somebody else has it by now."""

    def find(self, environment_id: str) -> Seat | None: ...

    def seats(self) -> list[Seat]: ...


class MemoryBus:
    """The bus of one node."""

    def __init__(self) -> None:
        self._seats: dict[str, Seat] = {}

    def take_seat(self, seat: Seat) -> Seat | None:
        before = self._seats.get(seat.environment_id)
        self._seats[seat.environment_id] = seat
        return before

    def leave_seat(self, seat: Seat) -> None:
        if self._seats.get(seat.environment_id) is seat:
            del self._seats[seat.environment_id]

    def find(self, environment_id: str) -> Seat | None:
        return self._seats.get(environment_id)

    def seats(self) -> list[Seat]:
        return list(self._seats.values())
