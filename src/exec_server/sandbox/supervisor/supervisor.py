"""The supervisor: a process beside a sandboxed command that records what the sandbox refuses.

The keeper forks it for one command, with the listener of the filter that is around the command, and
one end of a socket whose other end the server has. Calls that the filter refuses fail here with
EPERM. All other calls go on to the kernel, whose walls decide; the supervisor only says in advance
what they will decide. If it dies, the kernel answers every notified call with ENOSYS, and the
keeper ends the command. This module is long because all decisions about calls are in it.

Messages (see record_channel.py) from the supervisor::

    ("record", id, kind, target, operation, rule, is_grantable, count, pid, exe, is_held)
    ("count", id, count)
    ("totals", unlisted, unseen)
    ("decided", id, is_allowed)    the held calls of this record go on
    ("synced", number)             everything before it is up to date

To the supervisor::

    ("sync", number)
    ("grant", id, scope)           scope: "once" for the held calls, else from now on
    ("refuse", id)                 the held calls fail, and no later one is held; without an id
                                   a signal may be on its way: all held calls fail when it is there,
                                   and later ones are held again
    ("interrupted",)               a signal was sent, and waits for its programs: all held calls
                                   fail now, and later ones are held again

The keeper loads this file by its path, so it imports the standard library only.
"""

from __future__ import annotations

import errno
import select
import time

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# So many calls are held at once; the others are refused.
_MAX_HELD = 64
# A signal is looked for so often, and for so long, if the keeper does not tell when it has sent it.
_SIGNAL_STEP, _SIGNAL_SECONDS = 0.002, 1.0
# A path has no more.
_SHOWN_BYTES = 4096


class Supervisor:
    """Answers the calls of one command, and tells the server what was refused.

    *parts* has the other files of this folder by their names. The first byte of *flag* is 1 once
    the command itself may run; calls before that are those of bubblewrap.
    """

    def __init__(
        self,
        orders: dict[str, Any],
        *,
        listener: int,
        channel: int,
        flag: Any,
        parts: dict[str, Any],
    ) -> None:
        self._judge, self._attempts = parts["judge"], parts["attempts"]
        self._listener = parts["notifications"].CallListener(listener)
        self._worker = parts["granted_work"].Worker(self._listener, self._attempts.status_of)
        self._names: dict[int, str] = orders["calls"]
        self._refused = frozenset(orders["refused"])
        self._architecture: int = orders["architecture"]
        self._hold: float = orders["hold"]
        # True if nothing is refused; then changes below one directory are one record.
        self._learns: bool = orders["learns"]
        self._learned: list[bytes] = []
        self._protected = frozenset(orders["exceptions"]["protected"])
        self._places = self._judge.Places(orders["places"], **orders["exceptions"])
        for path, access in orders["granted"]:
            self._places.grant(path, access)
        self._ledger = self._judge.Ledger("d")
        self._flag = flag
        self._unseen = 0
        self._channel = parts["record_channel"].RecordChannel(channel)
        # The records of a command that outlives the server.
        self._file: Any = None
        if orders.get("stores") and (stored := self._channel.receive_file()) is not None:
            self._file = parts["record_file"].RecordFile(stored)
        # The calls that wait for a decision, by the id of their record: each with its attempts and
        # its deadline. The records about which nothing is asked any more.
        self._held: dict[str, list[tuple[Any, Any, float]]] = {}
        self._settled: set[str] = set()
        # Until when a signal to programs with held calls is expected; and whether it was sent.
        self._interrupted_until: float | None = None
        self._is_signal_there = False
        self._shortcuts = parts["shortcuts"].Shortcuts(orders, self._places, self._attempts)

    def run(self) -> None:
        """Serve until the last program behind the filter has ended."""
        poll = select.poll()
        # What is registered first is told first: a grant is heard before the calls after it.
        poll.register(self._channel.fd, select.POLLIN)
        poll.register(self._listener.fd, select.POLLIN)
        while True:
            for fd, events in self._ready(poll):
                if fd == self._listener.fd:
                    if not events & select.POLLIN:
                        self._channel.finish(self._told())
                        return
                    self._receive()
                elif not self._obey():
                    # The server is gone. The keeper ends the command, unless it is durable.
                    poll.unregister(fd)
                    self._hold = 0.0
                    self._release_all()
            if self._held:
                self._expire()
                self._release_interrupted()
            if self._channel.due is not None:
                self._channel.tell_when_due(self._told)

    def _ready(self, poll: Any) -> list[tuple[int, int]]:
        """What *poll* tells next. Calls that need no look are answered meanwhile."""
        wait = self._wait()
        if wait is not None:
            ready: list[tuple[int, int]] = poll.poll(wait)
            return ready
        is_free = self._shortcuts.has if self._flag[0] else self._is_building
        call, ready = self._listener.answer_while(poll.poll, is_free)
        if call is not None:
            self._answer(call)
        return ready

    def _is_building(self, call: Any) -> bool:
        """True for calls of bubblewrap, while it builds the sandbox."""
        return not self._flag[0]

    def _wait(self) -> float | None:
        """How long to wait for the next call, in milliseconds."""
        if not self._held and self._channel.due is None:
            return None
        times = [deadline for calls in self._held.values() for _, _, deadline in calls]
        if self._channel.due is not None:
            times.append(self._channel.due)
        if self._interrupted_until is not None:
            times.append(time.monotonic() + _SIGNAL_STEP)
        return max(0.0, min(times) - time.monotonic()) * 1000 + 1 if times else None

    # Calls.

    def _receive(self) -> None:
        call = self._listener.receive()
        if call is None:
            return
        if self._is_building(call) or self._shortcuts.has(call):
            self._listener.let_kernel_decide(call)
        else:
            self._answer(call)

    def _answer(self, call: Any) -> None:
        """Answer a call that has no shortcut."""
        name = self._names.get(call.number)
        if call.architecture != self._architecture or name is None:
            self._refuse(call, self._attempts.foreign_call(call))
        elif name in self._refused:
            self._refuse(call, self._attempts.refused_call(name, call))
        elif name == "chroot":
            # From now on one text may mean several paths.
            self._shortcuts.end()
            self._listener.let_kernel_decide(call)
        else:
            self._look(name, call)

    def _refuse(self, call: Any, what: tuple[str, str, bytes]) -> None:
        kind, operation, target = what
        rule = self._judge.SYSTEM_CALL
        if kind == "socket":
            is_unix = self._attempts.is_unix(target)
            rule = self._judge.UNIX_SOCKETS if is_unix else self._judge.NO_NETWORK
        attempt = self._attempts.connect_attempt(operation, target, call)
        if attempt is not None and not self._learns and self._places.is_connectable(target):
            self._worker.do(call, [attempt])
            return
        if not self._attempts.is_missing_socket(target):
            asks = attempt is not None and not self._learns
            record = self._record(call, kind, operation, target, rule, asks=asks)
            if asks and self._is_held(record, call, [attempt]):
                return
        if self._learns:
            self._listener.let_kernel_decide(call)
        else:
            self._listener.refuse(call, errno.EPERM)

    def _do(self, call: Any, attempts: list[Any]) -> None:
        """Do what *call* asks for, which was granted."""
        self._worker.do(call, attempts)
        if attempts[0].operation != "open":
            self._shortcuts.forget()

    def _is_held(self, record: Any, call: Any, attempts: list[Any]) -> bool:
        """True if *call* waits for a decision about *record* from now on."""
        if record is None or record.denial_id not in self._held:
            return False
        self._held[record.denial_id].append((call, attempts, time.monotonic() + self._hold))
        return True

    def _look(self, name: str, call: Any) -> None:
        """Record what *call* tries if the sandbox refuses it, and let the kernel refuse it."""
        try:
            attempts = self._attempts.path_attempts(name, call)
        except self._attempts.Unseen:
            self._unseen += 1
            self._channel.touch()
            self._store_totals()
            attempts = []
        refused = [(attempt, rule) for attempt in attempts if (rule := self._rule(attempt))]
        if refused and not all(attempt.is_permitted() for attempt in attempts):
            # It fails without any sandbox.
            refused = []
        if not refused or not self._is_answered(name, call, attempts, refused):
            self._listener.let_kernel_decide(call)

    def _rule(self, attempt: Any) -> str | None:
        rule: str | None = self._places.refusal(
            attempt.path, writes=attempt.writes, renames=attempt.renames
        )
        return rule

    def _is_answered(
        self, name: str, call: Any, attempts: list[Any], refused: list[tuple[Any, str]]
    ) -> bool:
        """Handle what the sandbox refuses; False if the kernel has to say so itself.

        True means that *call* has its answer, or is held.
        """
        if self._learns:
            for attempt, rule in refused:
                self._learn(call, attempt, rule)
            return False
        try:
            self._attempts.add_details(name, call, attempts)
        except self._attempts.Unseen:
            attempts[0].is_special = True
        closed = [each for each in refused if not self._is_granted(*each)]
        if not closed:
            self._do(call, attempts)
            return True
        attempt, rule = closed[0]
        is_open = attempt.flags is not None
        is_fifo = is_open and attempt.writes and self._attempts.is_fifo(attempt.path)
        if is_fifo:
            rule = self._judge.HOST_FIFO
        kind = "write" if attempt.writes else "read"
        asks = attempt.is_doable and len(closed) == 1 and self._is_source_open(attempt)
        record = self._record(call, kind, attempt.operation, attempt.path, rule, asks=asks)
        if asks and self._is_held(record, call, attempts):
            return True
        if is_fifo:
            # A read-only mount does not keep a program from writing to a FIFO.
            self._listener.refuse(call, errno.EACCES)
        return bool(is_fifo)

    def _learn(self, call: Any, attempt: Any, rule: str) -> None:
        """Record what would be refused, by the directory that has to be writable."""
        if not attempt.writes:
            self._record(call, "read", attempt.operation, attempt.path, rule)
            return
        folder = self._judge.to_be_opened(attempt.path, self._protected)
        above = (known for known in self._learned if self._judge.is_within(folder, known))
        # A protected name may need more than the directory above it.
        is_protected = folder.rpartition(b"/")[2] in self._protected
        known = folder if is_protected else next(above, None)
        if known is None:
            self._learned.append(folder)
            known = folder
        # The names of records end with the name that is changed.
        self._record(call, "write", "write", known + b"/*", rule)

    def _is_granted(self, attempt: Any, rule: str) -> bool:
        path, writes = attempt.path, attempt.writes
        if not attempt.is_doable or not self._places.is_granted(path, writes=writes):
            return False
        # A protected name may be below what was granted.
        return self._places.can_be_granted(path, rule) and self._is_source_open(attempt)

    def _is_source_open(self, attempt: Any) -> bool:
        """True unless a file that the command may not change gets a second name, to change it."""
        source = attempt.source
        if source is None:
            return True
        rule = self._places.refusal(source, writes=True)
        if rule is None:
            return True
        is_granted = self._places.is_granted(source, writes=True)
        return bool(is_granted and self._places.can_be_granted(source, rule))

    def _record(
        self,
        call: Any,
        kind: str,
        operation: str,
        target: bytes,
        rule: str,
        *,
        asks: bool = False,
    ) -> Any:
        """Count a refusal; with *asks* its call is held if that is wanted and possible."""
        record = self._ledger.add(kind, operation, target[:_SHOWN_BYTES], rule)
        if record is None:
            self._channel.touch()
            self._store_totals()
            return None
        if record.count == 1:
            record.pid, _ = self._attempts.status_of(call.pid)
            record.exe = self._attempts.program_of(call.pid)[:_SHOWN_BYTES]
            # Only the kinds with paths, and unix sockets, have rules that can be granted.
            record.is_grantable = self._places.can_be_granted(target, rule)
        if self._file is not None:
            self._store(record)
        is_held = asks and self._can_hold(record)
        if is_held:
            self._held.setdefault(record.denial_id, [])
        if is_held or record.count == 1:
            self._channel.put(("record", *record.facts, is_held))
        else:
            self._channel.recount(record.denial_id, record.count)
        return record

    def _store(self, record: Any) -> None:
        number = int(record.denial_id[1:])
        if record.count == 1:
            self._file.add(number, record.facts)
        else:
            self._file.count(number, record.count)

    def _store_totals(self) -> None:
        if self._file is not None:
            self._file.totals(self._ledger.unlisted, self._unseen)

    def _can_hold(self, record: Any) -> bool:
        if not self._hold or not record.is_grantable or record.denial_id in self._settled:
            return False
        return sum(map(len, self._held.values())) < _MAX_HELD

    # Decisions.

    def _obey(self) -> bool:
        """Do what the server says; False if it is gone."""
        message = self._channel.receive()
        if message is None:
            return False
        if message[0] == "sync":
            self._channel.tell(self._told())
            self._channel.put(("synced", message[1]))
        elif message[0] == "grant":
            self._grant(message[1], message[2])
        elif message[0] == "refuse" and message[1]:
            self._settled.add(message[1])
            self._release(message[1], is_allowed=False)
        elif message[0] == "refuse":
            self._interrupted_until = time.monotonic() + _SIGNAL_SECONDS
        elif message[0] == "interrupted":
            self._release_all()
            # A call that was made before may be heard of only now.
            self._interrupted_until = time.monotonic() + _SIGNAL_SECONDS
            self._is_signal_there = True
        return True

    def _release_all(self) -> None:
        for denial_id in tuple(self._held):
            self._release(denial_id, is_allowed=False)

    def _release_interrupted(self) -> None:
        """Refuse the held calls of processes that a signal waits for.

        A call that returned before the signal comes would let its program go on: a shell would
        start its next command, and some shells lose a signal at that moment.
        """
        if self._interrupted_until is None:
            return
        is_over = time.monotonic() >= self._interrupted_until
        is_given_up = is_over and not self._is_signal_there
        for denial_id, calls in tuple(self._held.items()):
            if is_given_up or any(self._attempts.has_signal(call.pid) for call, _, _ in calls):
                self._release(denial_id, is_allowed=False)
        if is_over or (not self._held and not self._is_signal_there):
            self._interrupted_until, self._is_signal_there = None, False

    def _grant(self, denial_id: str, scope: str) -> None:
        record = next((r for r in self._ledger.records.values() if r.denial_id == denial_id), None)
        if record is None or not record.is_grantable:
            return
        if scope != "once":
            kind, _, path = record.key
            self._places.grant(path, kind)
            self._settled.add(denial_id)
        self._release(denial_id, is_allowed=True)

    def _expire(self) -> None:
        now = time.monotonic()
        for denial_id, calls in tuple(self._held.items()):
            if any(deadline <= now for _, _, deadline in calls):
                self._release(denial_id, is_allowed=False)

    def _release(self, denial_id: str, *, is_allowed: bool) -> None:
        """Let all calls that wait for this record go on."""
        # The server knows it before the program can tell anything about it.
        self._channel.put(("decided", denial_id, is_allowed))
        for call, attempts, _ in self._held.pop(denial_id, ()):
            if is_allowed and self._listener.is_waiting(call):
                self._do(call, attempts)
            elif attempts[0].operation == "connect":
                # Only this filter refuses it.
                self._listener.refuse(call, errno.EPERM)
            else:
                # The kernel says itself how it refuses this.
                self._listener.let_kernel_decide(call)

    def _told(self) -> tuple[Any, ...]:
        return ("totals", self._ledger.unlisted, self._unseen)
