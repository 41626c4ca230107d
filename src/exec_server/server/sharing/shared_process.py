"""A shared process: who takes part, who drives, and what each of them hears."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from exec_server.errors import ControlLost, ControlRefused, InvalidRequest
from exec_server.process.child import Child
from exec_server.protocol import sharing
from exec_server.server.sharing.driver_sizes import DriverSizes
from exec_server.server.sharing.participant import Seat, now_ms
from exec_server.state.lease import Lease

logger = logging.getLogger(__name__)

# Input after a pause of this length is told to the others.
_PAUSE_MS = 5_000

# Those who are there are told to each of them, so the work grows with the square of their number.
# After so many seconds for each, it is told again: a client that comes and goes, or changes its
# name again and again, holds up no one.
_SECONDS_A_SEAT = 0.001

Reason = Literal["taken", "accepted", "givenBack", "left", "offered"]


class SharedProcess:
    """Holds the lease on the input of *child*, whose session sits on *owner*.

    It is the `InputGuard` of the process: the session that has started it is asked for nothing
    more than before while it drives.
    """

    def __init__(self, child: Child, owner: Seat, *, epoch: int = 1) -> None:
        self.child = child
        self.owner = owner
        self.seats: dict[str, Seat] = {owner.id: owner}
        self._lease = Lease(owner.id, epoch=epoch)
        self._sizes = DriverSizes(self._resize)
        # When the presence was told, the timer that tells it again, and whom that leaves out.
        self._told_at = float("-inf")
        self._telling: asyncio.TimerHandle | None = None
        self._left_out: Seat | None = None
        # The version of the screen, if there is a model of it.
        self.screen_version: Callable[[], int | None] = lambda: None
        # Called when the driver has changed.
        self.on_changed: Callable[[], None] = lambda: None

    @property
    def epoch(self) -> int:
        return self._lease.epoch

    @property
    def driver(self) -> Seat:
        return self.seats[self._lease.holder]

    @property
    def viewers(self) -> int:
        """How many look on besides the session that has started the process."""
        return len(self.seats) - 1

    @property
    def other_driver(self) -> str | None:
        """The name of the driver, unless it is the session that has started the process."""
        return None if self.driver is self.owner else self.driver.shown_name

    def state_for(self, seat: Seat, participants: Any = None) -> sharing.ControlState:
        """What *seat* is told; *participants* are those of `_encoded_participants`."""
        return sharing.ControlState(
            epoch=self._lease.epoch,
            you=seat.id,
            participants=self._participants() if participants is None else participants,
            seq=self.child.log.next_seq - 1,
            version=self.screen_version(),
            offered=self._lease.offered,
        )

    def _participants(self) -> list[sharing.Participant]:
        holder = self._lease.holder
        return [each.described(drives=each.id == holder) for each in self.seats.values()]

    def _encoded_participants(self) -> msgspec.Raw:
        """The same for all who are told: it is made once."""
        return msgspec.Raw(msgspec.json.encode(self._participants()))

    # Coming and going.

    def join(self, seat: Seat) -> None:
        self.seats[seat.id] = seat
        self.tell_presence(but=seat)

    def leave(self, seat: Seat) -> None:
        """*seat* is gone for good; if it drove, its predecessor does."""
        if seat.id not in self.seats:
            return
        has_driven = self._lease.leave(seat.id)
        del self.seats[seat.id]
        if has_driven:
            self._changed(seat, "left")
        else:
            self.tell_presence()

    def seat_absent(self, seat: Seat) -> None:
        """*seat* has driven before this server began, and may come back."""
        epoch = self._lease.epoch
        self.seats[seat.id] = seat
        self._lease.take(seat.id, is_person=True, holder_is_person=False)
        self._lease.epoch = epoch

    def tell_presence(self, but: Seat | None = None) -> None:
        """Tell all except *but* who is there: now, or together with what changes soon."""
        loop = asyncio.get_running_loop()
        if self._telling is not None:
            if but is not self._left_out:
                self._left_out = None
            return
        self._left_out = but
        due = self._told_at + _SECONDS_A_SEAT * len(self.seats)
        if loop.time() >= due:
            self._tell_presence()
        else:
            self._telling = loop.call_at(due, self._tell_presence)

    def _tell_presence(self) -> None:
        self._telling, self._told_at = None, asyncio.get_running_loop().time()
        participants = self._encoded_participants()
        for seat in tuple(self.seats.values()):
            if seat is not self._left_out:
                seat.tell_presence(self.state_for(seat, participants))

    # Control.

    def control(self, seat: Seat, params: sharing.ControlParams) -> sharing.ControlState:
        """Do what *seat* asks for. Raises ControlRefused or ControlLost."""
        self._describe(seat, params)
        if params.action != "state":
            if params.epoch is not None and params.epoch != self._lease.epoch:
                raise ControlRefused(f"the driver has changed: the epoch is {self._lease.epoch}")
            {"take": self._take, "offer": self._offer, "giveBack": self._give_back}[params.action](
                seat, params.to
            )
        if seat is self.driver:
            # The answer tells it.
            seat.has_to_notice = False
        return self.state_for(seat)

    def _describe(self, seat: Seat, params: sharing.ControlParams) -> None:
        kind, name = params.kind or seat.kind, seat.name if params.name is None else params.name
        if (kind, name) == (seat.kind, seat.name):
            return
        if seat.kind == "person" and kind == "agent" and seat is not self.driver:
            raise ControlRefused("a person who does not drive cannot become an agent")
        seat.kind, seat.name = kind, name
        self.tell_presence(but=seat)

    def _take(self, seat: Seat, _: str | None) -> None:
        before = self.driver
        outcome = self._lease.take(
            seat.id,
            is_person=seat.kind == "person",
            holder_is_person=before.kind == "person",
        )
        if outcome == "person drives":
            raise ControlRefused(
                f"`{before.shown_name}`, a person, drives this process; an agent may take the "
                "input only if it is offered"
            )
        if outcome != "held":
            self._changed(before, "accepted" if outcome == "accepted" else "taken")

    def _offer(self, seat: Seat, to: str | None) -> None:
        self._require_driver(seat)
        if to is not None and to not in self.seats:
            raise InvalidRequest(f"there is no participant `{to}`")
        self._lease.offer(to or "")
        participants = self._encoded_participants()
        for each in tuple(self.seats.values()):
            if each is not seat and to in (None, each.id):
                self._tell_change(each, "offered", seat, participants)
        self.tell_presence(but=seat)

    def _give_back(self, seat: Seat, _: str | None) -> None:
        self._require_driver(seat)
        if self._lease.give_back():
            self._changed(seat, "givenBack")

    def _require_driver(self, seat: Seat) -> None:
        if seat is not self.driver:
            raise self._lost(seat)

    def _changed(self, before: Seat, reason: Reason) -> None:
        """The driver is another one."""
        before.has_to_notice = reason in ("taken", "accepted")
        driver = self.driver
        lost = self._lost(before)
        self.child.refuse_waiting_input(lost)
        logger.info(
            "process %.64r is driven by %.64r (%s) now, epoch %d: %s",
            self.child.process_id,
            driver.shown_name,
            driver.kind,
            self._lease.epoch,
            reason,
        )
        for tap in self.child.taps:
            tap.driven(driver.shown_name, driver.kind)
        self.on_changed()
        if driver.size is not None:
            self._sizes.put_now(driver.size)
        participants = self._encoded_participants()
        for seat in tuple(self.seats.values()):
            self._tell_change(seat, reason, before, participants)

    def _tell_change(
        self, seat: Seat, reason: Reason, before: Seat, participants: msgspec.Raw
    ) -> None:
        seat.tell_change(
            sharing.ControlChangedEvent(
                process_id=seat.label,
                reason=reason,
                driver=self.driver.described(drives=True),
                control=self.state_for(seat, participants),
                previous=before.id,
            )
        )

    def _lost(self, seat: Seat) -> ControlLost:
        driver = self.driver
        if seat is driver:
            text = "another participant has driven this process meanwhile: read its screen again"
        else:
            text = f"`{driver.shown_name}` ({driver.kind}) drives process {self.child.process_id}"
        error = ControlLost(text)
        error.by, error.driver_kind, error.epoch = driver.shown_name, driver.kind, self.epoch
        error.seq, error.version = self.child.log.next_seq - 1, self.screen_version()
        error.is_back = seat is driver
        return error

    # Input and sizes.

    def check_input(self, seat: Seat) -> None:
        """*seat* is about to type. Raises ControlLost unless it drives and knows it."""
        if seat is not self.driver or seat.has_to_notice:
            error = self._lost(seat)
            seat.has_to_notice = False
            raise error
        before, seat.idle_since = seat.idle_since, now_ms()
        if seat.idle_since - before >= _PAUSE_MS and len(self.seats) > 1:
            asyncio.get_running_loop().call_soon(self.tell_presence)

    def check_owner_input(self) -> None:
        self.check_input(self.owner)

    def check_owner_size(self, rows: int, cols: int) -> None:
        """The session that has started the process gives the terminal a size."""
        self.owner.size = rows, cols
        self._require_driver(self.owner)

    def resize(self, seat: Seat, rows: int, cols: int) -> None:
        """A watcher gives the terminal a size; its size is remembered for when it drives."""
        seat.size = rows, cols
        self._require_driver(seat)
        if self.owner.size is None:
            self.owner.size = self.child.current_size()
        self._sizes.put((rows, cols))

    def _resize(self, rows: int, cols: int) -> None:
        if self.child.state == "running" and self.child.current_size() != (rows, cols):
            self.child.resize(rows, cols)

    def close(self) -> None:
        """The process is over."""
        self._sizes.close()
        if self._telling is not None:
            self._telling.cancel()
            self._tell_presence()
