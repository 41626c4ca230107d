"""FlowControl: the flow control of one client, and the only part of it that others talk to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import AbstractContextManager
from weakref import WeakValueDictionary

from exec_server.client.flow.acknowledgements import AckChannel, Acknowledgements
from exec_server.client.flow.pacing import ReadPacing
from exec_server.client.flow.process_flow import ProcessFlow
from exec_server.client.flow.reminders import Reminders
from exec_server.limits import Limits
from exec_server.state.window import Credit
from exec_server.transport.connection import Connection


class FlowControl:
    """See the drawing in `exec_server.client.flow`."""

    def __init__(self, channel: AckChannel, *, limits: Limits) -> None:
        self._limits = limits
        self._pacing = ReadPacing(patience=limits.reader_patience)
        self._reminders = Reminders(
            patience=limits.reader_patience, is_watched=self._pacing.was_watched
        )
        self._acknowledgements = Acknowledgements(channel)
        # The references are weak: a process whose handle was dropped is not tracked.
        self._processes: WeakValueDictionary[str, ProcessFlow] = WeakValueDictionary()
        # Processes with a window whose handles were dropped, perhaps by another thread. That may
        # still hold the flow when the loop hears of it.
        self.dropped: deque[tuple[str, ProcessFlow]] = deque()

    # The connection.

    def use(self, connection: Connection | None) -> None:
        """Control the reading of *connection* from now on."""
        self._pacing.use(connection)

    def calling(self) -> AbstractContextManager[None]:
        """The block waits for the answer to a call."""
        return self._pacing.calling()

    def watching(self) -> AbstractContextManager[None]:
        """The block waits for output or for another event of a process."""
        return self._pacing.watching()

    def fall_behind(self, consumer: object) -> None:
        """*consumer* holds too much that is not taken; repeat it whenever it has taken some."""
        self._pacing.fall_behind(consumer)

    def catch_up(self, consumer: object) -> None:
        """*consumer* no longer holds too much."""
        self._pacing.catch_up(consumer)

    @property
    def is_calling(self) -> bool:
        """True while a task waits for the answer to a call."""
        return self._pacing.is_calling

    @property
    def is_reading(self) -> bool:
        """False while the connection is not read because a consumer is behind."""
        return self._pacing.is_reading

    def connected(self) -> None:
        """There is a new connection: repeat what could not be acknowledged before."""
        self._acknowledgements.connected()
        for each in tuple(self._processes.values()):
            each.acknowledge()

    def session_lost(self) -> None:
        """There will be no connection to this session again."""
        self._processes.clear()
        self._acknowledgements.session_lost()

    # Processes.

    def open(self, process_id: str, *, window: int | None = None, after: int = 0) -> ProcessFlow:
        """Track a process. *window* is asked for, and nothing up to number *after* is wanted."""
        flow = ProcessFlow(
            process_id,
            pacing=self._pacing,
            reminders=self._reminders,
            acknowledgements=self._acknowledgements,
            limits=self._limits,
            credit=None if window is None else Credit(window, after=after),
        )
        self._processes[process_id] = flow
        return flow

    def drop(self, process_id: str) -> None:
        """Stop tracking a process; its window stays as it is."""
        self._processes.pop(process_id, None)

    def settle(self, process_id: str, seq: int | None) -> None:
        """Acknowledge for the last time up to *seq*; None gives up the window."""
        self._acknowledgements.settle(process_id, seq)

    def forget_dropped(self) -> None:
        """Give up the windows of dropped handles, unless their processes have new ones."""
        while self.dropped:
            process_id, flow = self.dropped.popleft()
            if self._processes.get(process_id, flow) is flow:
                self.drop(process_id)
                self.settle(process_id, None)

    def taken(self) -> dict[str, int]:
        """The processes with windows, and the number up to which the output of each was taken."""
        taken = self._acknowledgements.unclaimed()
        for process_id, flow in self._processes.items():
            if (seq := flow.taken_seq) is not None:
                taken[process_id] = seq
        return taken

    def release_all(self) -> bool:
        """Give up all windows, because no client will be connected for long; False without any."""
        has_dropped = bool(self.dropped)
        self.forget_dropped()
        taken = self.taken()
        for process_id in taken:
            self.settle(process_id, None)
        return has_dropped or bool(taken)

    # Windows of an earlier client of the same session.

    def expect(self, cursors: Iterable[tuple[str, int]], *, grace: float) -> None:
        """Keep the windows of processes to which a caller may attach within *grace* seconds."""
        self._acknowledgements.expect(cursors, grace=grace)

    def claim(self, process_id: str) -> None:
        """A caller has attached to a process: from now on its ProcessFlow keeps the window."""
        self._acknowledgements.claim(process_id)
