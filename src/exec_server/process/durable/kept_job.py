"""One job in the durable keeper: its descriptors, its journal while no server is there, its status.

The keeper imports this file, so it imports the standard library and parts of keepers only.
"""

from __future__ import annotations

import json
import os
import time

from exec_server.process.durable import kept_input
from exec_server.process.journal import Journal
from exec_server.process.journaling.journal_format import EndOfStream
from exec_server.process.journaling.terminal_output import take_terminal
from exec_server.process.keeping.kept_descriptors import close_all, descriptors

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from exec_server.process.journaling.journal_format import Record
    from exec_server.process.keeping.child_stdio import Stdio

STARTED, STATUS = "started", "status"
# So much is moved at once, and so often per wake-up, before other jobs have their turn.
TAKE_BYTES = 1 << 16
TAKES = 16
# So many orders of clients are kept for the report of a job.
MAX_ORDERS = 8


class KeptJob:
    """One job: what a server needs of it, and how far it is."""

    __slots__ = (
        "ended",
        "input",
        "is_stored",
        "is_unwanted",
        "journal",
        "mark",
        "name",
        "orders",
        "outputs",
        "pid",
        "settings",
        "status",
        "why",
    )

    def __init__(self, settings: dict[str, Any], pid: int, mark: int) -> None:
        self.name: str = settings["name"]
        self.settings = settings
        self.pid = pid
        self.mark = mark
        # The read ends of stdout and stderr; or a terminal and both ends of the pipe behind it.
        self.outputs: list[int] = []
        self.input: kept_input.KeptInput | None = None
        self.status: int | None = None
        # The reason and the facts of its end; and who has asked for it, of a job with a report.
        self.why: dict[str, Any] = {}
        self.orders: list[dict[str, Any]] = []
        # True once the status is on the disk.
        self.is_stored = False
        self.is_unwanted = False
        # While this process moves the output: the journal, and the streams that have ended.
        self.journal: Journal | None = None
        self.ended: set[str] = set()

    @property
    def streams(self) -> tuple[str, ...]:
        return ("pty",) if len(self.outputs) == 3 else ("stdout", "stderr")

    def described(self) -> dict[str, Any]:
        if self.input is None:
            state = "none"
        else:
            state = "closing" if self.input.is_closing else "open"
        return {
            "name": self.name,
            "pid": self.pid,
            "mark": self.mark,
            "status": self.status,
            "input": state,
        }

    def hold(self, stdio: Stdio, forget: Callable[[int], object]) -> None:
        """Keep duplicates of our ends of *stdio*."""
        self.outputs = stdio.keep_outputs()
        if stdio.terminal is not None:
            pipe = os.pipe2(os.O_CLOEXEC)
            self.outputs += map(descriptors.kept, pipe)
            close_all(pipe)
        for fd in self.outputs:
            os.set_blocking(fd, False)
        if stdio.terminal is not None or len(stdio.ours) > 2:
            fd = descriptors.kept(stdio.ours[-1])
            self.input = kept_input.KeptInput(
                fd, is_terminal=stdio.terminal is not None, forget=forget
            )

    def share_input(self) -> kept_input.InputLog | None:
        """A log through which the server writes the input; None if that is impossible now."""
        assert self.input is not None
        try:
            fd = os.memfd_create("exec-server-input", os.MFD_CLOEXEC)
            try:
                kept = descriptors.kept(fd)
            finally:
                os.close(fd)
        except (AttributeError, OSError):
            return None
        try:
            log = self.input.share(kept)
        except OSError:
            log = None
        if log is None:
            os.close(kept)
        return log

    def take(self, stream: str, folder: str) -> None:
        """Move output into the journal. Sets `ended`; the journal says if it is stalled."""
        self._open_journal(folder)
        try:
            for _ in range(TAKES):
                if self._take_once(stream) is None:
                    return
        except EndOfStream:
            self.ended.add(stream)

    @property
    def has_too_much_output(self) -> bool:
        most = (self.settings.get("limits") or {}).get("outputBytes")
        if most is None or self.journal is None:
            return False
        return sum(map(self.journal.size, self.streams)) > int(most)

    def say(self, text: str, folder: str) -> None:
        """Write *text* behind the output of the job, which a server would do if there was one."""
        try:
            line = text.encode() + (b"\r\n" if self.streams == ("pty",) else b"\n")
            self._open_journal(folder).append(self.streams[-1], line)
        except OSError:
            # The disk refuses it. The exit status tells that the job was killed.
            pass

    def _open_journal(self, folder: str) -> Journal:
        if self.journal is None:
            bounds = {name: self.settings[name] for name in ("max_bytes", "max_records")}
            self.journal = Journal.open(
                os.path.join(folder, self.name), streams=self.streams, **bounds
            )
        return self.journal

    def _take_once(self, stream: str) -> Record | None:
        assert self.journal is not None
        if stream == "pty":
            terminal, reader, writer = self.outputs
            return take_terminal(self.journal, terminal, (reader, writer), TAKE_BYTES)
        fd = self.outputs[self.streams.index(stream)]
        return self.journal.take(stream, fd, TAKE_BYTES)

    def note_order(self, order: dict[str, Any]) -> None:
        self.orders.append(order)
        del self.orders[:-MAX_ORDERS]

    def store(self, folder: str) -> None:
        """Write the status to the job's folder below *folder*."""
        own = os.path.join(folder, self.name)
        ended_at = time.time_ns() // 1_000_000
        known = {"status": self.status, "pid": self.pid, "endedAt": ended_at}
        # Only what was asked for, or has happened, is there.
        known |= {name: value for name, value in self.why.items() if value is not None}
        data = json.dumps(known, ensure_ascii=False, separators=(",", ":")) + "\n"
        new = os.path.join(own, f"{STATUS}.new")
        fd = os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, data.encode("utf-8", "replace"))
        finally:
            os.close(fd)
        os.rename(new, os.path.join(own, STATUS))
        self.is_stored = True

    def stop_taking(self) -> None:
        self.ended.clear()
        if self.journal is not None:
            self.journal.close()
            self.journal = None

    def close(self) -> None:
        self.stop_taking()
        close_all(self.outputs)
        self.outputs = []
        if self.input is not None:
            self.input.close()
