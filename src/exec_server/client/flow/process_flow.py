"""ProcessFlow: what the output of one process means for the server and for the connection."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

from exec_server.client.flow.acknowledgements import Acknowledgements
from exec_server.client.flow.pacing import ReadPacing
from exec_server.client.flow.reminders import Reminders
from exec_server.limits import Limits
from exec_server.state.window import Credit


class ProcessFlow:
    """Acknowledges output if the process has a window, and slows the connection down if not.

    The output buffer reports every change to it. With `credit` the process has a window.
    """

    def __init__(
        self,
        process_id: str,
        *,
        pacing: ReadPacing,
        reminders: Reminders,
        acknowledgements: Acknowledgements,
        limits: Limits,
        credit: Credit | None,
    ) -> None:
        self.is_behind = False
        # The server makes a process that has a window wait for acknowledgements.
        self.has_window = credit is not None
        self._process_id = process_id
        self._pacing = pacing
        self._reminders = reminders
        self._acknowledgements = acknowledgements
        self._behind_bytes = limits.untaken_bytes
        self._credit = credit
        # The state of the buffer, as it was last reported.
        self._first: int | None = None
        self._untaken_bytes = 0
        self._is_free = False
        # The number of tasks that wait for the exit of the process.
        self._awaiting = 0
        # True if everything counts as taken, because no task reads and another one must go on.
        self._has_given_way = False
        self._was_taken = False

    # The reports of the output buffer.

    def receive(
        self, seq: int, data: bytes, first: int | None, untaken_bytes: int, *, is_free: bool
    ) -> None:
        """A chunk was received; the other arguments are those of `changed`."""
        if self._credit is not None:
            self._credit.receive(seq, data)
        self._first, self._untaken_bytes, self._is_free = first, untaken_bytes, is_free
        self._update()

    def skip(self, seq: int, data: bytes) -> None:
        """A chunk was received that no reader wants."""
        if self._credit is not None:
            self._credit.receive(seq, data)
            self.acknowledge()

    def changed(self, first: int | None, untaken_bytes: int, *, is_free: bool) -> None:
        """The state of the buffer has changed.

        *first* is the number of the oldest chunk that is not taken. If the buffer *is_free*, the
        process need not wait for it: a reader waits, perhaps for the other stream, or the output
        has ended.
        """
        self._first, self._untaken_bytes, self._is_free = first, untaken_bytes, is_free
        self._update()

    def took(self, first: int | None, untaken_bytes: int, *, is_free: bool) -> None:
        """A reader has taken a chunk; the arguments are those of `changed`.

        The report may be left out while the process neither has a window nor is behind.
        """
        self._first, self._untaken_bytes, self._is_free = first, untaken_bytes, is_free
        self._was_taken, self._has_given_way = True, False
        self._update(is_progress=True)

    def watching(self) -> AbstractContextManager[None]:
        """The block waits for an event of the process."""
        return self._pacing.watching()

    @contextlib.contextmanager
    def awaiting_exit(self) -> Iterator[None]:
        """The block waits for the exit of the process."""
        self._awaiting += 1
        try:
            with self._pacing.watching():
                yield
        finally:
            self._awaiting -= 1

    # The window.

    def grant(self, window: int | None) -> None:
        """The server says which window the process has; None if it has none."""
        if self._credit is None:
            return
        if window is None:
            self._reminders.release(self)
            self._credit, self.has_window, self.is_behind = None, False, False
        else:
            self._credit.window = window
        self._update()

    def acknowledge(self, *, at_once: bool = False) -> None:
        """Acknowledge what was taken, if that is due or wanted *at_once*."""
        credit = self._credit
        if credit is None:
            return
        seq = self._settled_seq(credit)
        is_due = credit.take(seq) or at_once
        if is_due and self._acknowledgements.acknowledge(self._process_id, seq):
            credit.acknowledge(seq)

    @property
    def taken_seq(self) -> int | None:
        """The number up to which the output was taken; None without a window."""
        credit = self._credit
        return None if credit is None else max(credit.acknowledged, self._settled_seq(credit))

    def _settled_seq(self, credit: Credit) -> int:
        """The number up to which the process need not wait for a reader."""
        if self._first is None or self._is_free or self._has_given_way:
            return credit.received
        return self._first - 1

    def give_way(self, *, is_watched: bool) -> None:
        """Nothing was taken for long. A reader of this process may be slow; it is not hurried."""
        if self._awaiting or (is_watched and not self._was_taken):
            self._has_given_way = True
            self._update()

    def _update(self, *, is_progress: bool = False) -> None:
        credit = self._credit
        was_behind = self.is_behind
        if credit is not None:
            self.acknowledge()
            self.is_behind = credit.is_withheld
            if self.is_behind and (is_progress or not was_behind):
                self._reminders.hold(self)
            elif was_behind and not self.is_behind:
                self._reminders.release(self)
            return
        bound = self._behind_bytes // 2 if was_behind else self._behind_bytes
        self.is_behind = not self._is_free and self._untaken_bytes > bound
        if self.is_behind and (is_progress or not was_behind):
            self._pacing.fall_behind(self)
        elif was_behind and not self.is_behind:
            self._pacing.catch_up(self)
