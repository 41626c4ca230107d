"""What a sandbox refused to one process: the server's end of the supervisor's socket."""

from __future__ import annotations

import asyncio
import marshal
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from exec_server.errors import InvalidRequest
from exec_server.printable import printable
from exec_server.process.host_denials import HostDenials
from exec_server.protocol import denials
from exec_server.protocol.denials import Denial, DenialKind, GrantScope
from exec_server.sandbox.supervisor.attempts import DOABLE
from exec_server.sandbox.supervisor.judge import NO_NETWORK, UNIX_SOCKETS
from exec_server.sandbox.supervisor.orders import Watching, obstacle
from exec_server.sandbox.supervisor.record_file import read_records, read_total

_PACKET_BYTES = 1 << 16
# A longer target is cut, and cannot be granted by its name.
_SHOWN_CHARACTERS = 1024
_SUPERVISED: tuple[DenialKind, ...] = ("write", "read", "socket", "syscall")
# A supervisor answers at once, unless the machine is very busy.
_SYNC_SECONDS = 10.0

_encode = msgspec.json.Encoder().encode


class DenialWatch:
    """The records of one process. *push* sends an event to the client that has asked for them."""

    def __init__(
        self,
        process_id: str,
        *,
        hold: float,
        push: Callable[[bytes], None],
        why_not: str | None = None,
        file: Path | None = None,
        offers_network: bool = False,
    ) -> None:
        """*why_not* says why there is no supervisor; only hosts are recorded then.

        With *offers_network* a start with a network would allow what only that can allow.
        The supervisor writes its records also to the new *file*, if there is one.
        """
        self._file = file
        self._offers_network = offers_network
        # True if the file alone tells what was refused.
        self._is_restored = False
        self._process_id = process_id
        self._push = push
        self._hold = hold
        # Why nothing is recorded, except for hosts.
        self.unavailable = why_not or obstacle()
        self._records: dict[str, Denial] = {}
        # The paths of the records that can be granted, by the grant.
        self._grants: dict[str, tuple[str, bytes]] = {}
        self._held: dict[str, int] = {}
        self._hosts = HostDenials(hold=hold, tell=self._tell_client)
        self._unlisted = self._unseen = 0
        # Events wait until the answer to the start has left.
        self._waiting: list[bytes] | None = []
        self._syncs: dict[int, asyncio.Future[None]] = {}
        self._last_sync = 0
        self._sock: socket.socket | None = None
        self._theirs: socket.socket | None = None
        self._loop = asyncio.get_running_loop()

    @classmethod
    def restored(cls, process_id: str, file: Path, *, push: Callable[[bytes], None]) -> DenialWatch:
        """What was refused, and is refused, to a process that an earlier server has started."""
        watch = cls(process_id, hold=0.0, push=push, file=file)
        watch.unavailable = None
        watch._is_restored = True
        watch._waiting = None
        return watch

    def watching(self, granted: tuple[tuple[bytes, str], ...]) -> Watching | None:
        """What the start of a supervised process needs; `started` is called after it."""
        if self.unavailable is not None:
            return None
        stored = None
        try:
            if self._file is not None:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                stored = os.open(self._file, flags, 0o600)
        except OSError as exc:
            self.unavailable = f"the records cannot be stored: {exc.strerror}"
            return None
        self._sock, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.setblocking(False)
        self._loop.add_reader(self._sock, self._on_readable)
        if stored is not None:
            socket.send_fds(self._sock, [marshal.dumps(("store",))], [stored])
            os.close(stored)
        return Watching(self._theirs.fileno(), self._hold, granted, stores=self._file is not None)

    def started(self, why_not: str | None) -> None:
        """The start is over. *why_not* says why there is no supervisor, if there is none."""
        self.unavailable = self.unavailable or why_not
        if self._theirs is not None:
            self._theirs.close()
            self._theirs = None

    def begin(self) -> None:
        """The answer to the start has left: push events."""
        waiting, self._waiting = self._waiting or [], None
        for event in waiting:
            self._push(event)

    @property
    def kinds(self) -> list[DenialKind]:
        """What is recorded."""
        return ["host"] if self.unavailable is not None else [*_SUPERVISED, "host"]

    def close(self) -> None:
        """The process is forgotten."""
        self._hosts.close()
        self.started(None)
        self._end()

    # Requests.

    async def report(self) -> denials.DenialsResult:
        """Everything so far, with true counts."""
        if self._is_restored:
            self._read_file()
        await self._sync()
        found = [*self._records.values(), *self._hosts.denials]
        unlisted = self._unlisted + self._hosts.unlisted
        total = sum(denial.count for denial in found) + unlisted
        return denials.DenialsResult(found, total, unlisted, self._unseen, self.unavailable)

    @property
    def total(self) -> int:
        """How often something was refused, as far as it is known now."""
        if self._is_restored:
            return self._stored_total()
        listed = [*self._records.values(), *self._hosts.denials]
        unlisted = self._unlisted + self._hosts.unlisted
        return sum(denial.count for denial in listed) + unlisted

    def _stored_total(self) -> int:
        # Lists of processes ask for it, so that the records, which may be long, are not read.
        assert self._file is not None
        try:
            return read_total(self._file)
        except OSError:
            return 0

    def _read_file(self) -> None:
        assert self._file is not None
        try:
            records, self._unlisted, self._unseen = read_records(self._file)
        except OSError as exc:
            self.unavailable = f"the records cannot be read: {exc.strerror}"
            return
        for denial_id, kind, target, operation, rule, _, count, pid, exe in records:
            self._records[denial_id] = Denial(
                denial_id,
                kind,  # type: ignore[arg-type]
                printable(target, limit=_SHOWN_CHARACTERS),
                operation,
                rule,
                count=count,
                pid=pid or None,
                exe=printable(exe, limit=_SHOWN_CHARACTERS) if exe else None,
            )

    def grant(self, grant: str, scope: GrantScope) -> tuple[denials.GrantResult, str, bytes]:
        """Give what *grant* stands for; its kind and its target are returned, too."""
        if self._is_restored:
            text = (
                "an earlier server has started this process, so that nothing can be granted to it"
            )
            raise InvalidRequest(text)
        if (given := self._hosts.grant(grant, scope)) is not None:
            return given
        if grant not in self._grants:
            raise InvalidRequest(f"no record of this process can be granted as `{grant:.200}`")
        denial_id, path = self._grants[grant]
        if grant == denials.NETWORK_GRANT and scope != "never":
            if scope != "session":
                text = (
                    "a process gets a network when it starts: use `restart`, or the scope `session`"
                )
                raise InvalidRequest(text)
            return denials.GrantResult(0, False), "network", path
        record = self._records[denial_id]
        held = self._held.get(denial_id, 0)
        if scope == "once" and not held:
            text = f"no call waits for `{grant:.200}`; grant it to the process or session"
            raise InvalidRequest(text)
        is_live = self._sock is not None
        if scope == "process" and not is_live:
            raise InvalidRequest("the process has ended")
        self._tell(("refuse", denial_id) if scope == "never" else ("grant", denial_id, scope))
        # The supervisor does these operations outside of the sandbox for the program inside.
        is_doable = record.operation in DOABLE
        in_place = is_live and is_doable and scope in ("process", "session")
        return denials.GrantResult(held, in_place), record.kind, path

    def interrupt(self, after_signals: Callable[[Callable[[], None]], bool]) -> None:
        """A signal was sent to the process. A held call would not be interrupted, so it fails.

        It fails when the signal waits for the program, and not before: a program that went on first
        could lose it.
        """
        # A call may be held of which this server does not know yet.
        is_asking = bool(self._hold) and self._sock is not None
        if is_asking and not after_signals(lambda: self._tell(("interrupted",))):
            self._tell(("refuse", ""))
        self._hosts.refuse_held()

    def refused_host(self, protocol: str, host: str, port: int, reason: str) -> None:
        """The proxy of the process has refused a connection."""
        self._hosts.refused(protocol, host, port, reason)

    def ask_host(self, protocol: str, host: str, port: int) -> asyncio.Future[bool] | None:
        """Whether a host that no rule names is granted; None if it is not, and will not be."""
        return self._hosts.ask(protocol, host, port)

    async def _sync(self) -> None:
        """Wait until everything that was refused before now is known."""
        if self._sock is None:
            return
        self._last_sync += 1
        number = self._last_sync
        future = self._syncs[number] = self._loop.create_future()
        self._tell(("sync", number))
        try:
            async with asyncio.timeout(_SYNC_SECONDS):
                await future
        except TimeoutError:
            pass
        finally:
            self._syncs.pop(number, None)

    # The socket.

    def _tell(self, message: tuple[Any, ...]) -> None:
        if self._sock is not None:
            try:
                self._sock.send(marshal.dumps(message))
            except OSError:
                # The supervisor has ended, which the next read tells.
                pass

    def _on_readable(self) -> None:
        while self._sock is not None:
            try:
                data = self._sock.recv(_PACKET_BYTES)
            except BlockingIOError:
                return
            except ConnectionResetError:
                # It has ended without reading our last message. What it has sent before is there.
                continue
            except OSError:
                data = b""
            if not data:
                self._end()
                return
            self._handle(marshal.loads(data))

    def _handle(self, message: tuple[Any, ...]) -> None:
        kind, *fields = message
        if kind == "record":
            self._on_record(*fields)
        elif kind == "count":
            self._records[fields[0]].count = fields[1]
        elif kind == "totals":
            self._unlisted, self._unseen = fields
        elif kind == "decided":
            self._held.pop(fields[0], None)
            self._records[fields[0]].held = False
        elif kind == "synced" and (future := self._syncs.get(fields[0])) is not None:
            if not future.done():
                future.set_result(None)

    def _on_record(
        self,
        denial_id: str,
        kind: DenialKind,
        target: bytes,
        operation: str,
        rule: str,
        is_grantable: bool,
        count: int,
        pid: int,
        exe: bytes,
        is_held: bool,
    ) -> None:
        shown = printable(target, limit=_SHOWN_CHARACTERS)
        grant = None
        # What cannot be shown as it is cannot be granted by a person who reads it.
        if is_grantable and os.fsencode(shown) == target:
            grant = f"{kind}={shown}"
            self._grants[grant] = (denial_id, target)
        elif self._offers_network and rule in (NO_NETWORK, UNIX_SOCKETS):
            grant = denials.NETWORK_GRANT
            self._grants[grant] = (denial_id, b"on")
        denial = Denial(
            denial_id,
            kind,
            shown,
            operation,
            rule,
            count=count,
            pid=pid or None,
            exe=printable(exe, limit=_SHOWN_CHARACTERS) if exe else None,
            grant=grant,
            held=is_held and grant is not None,
        )
        self._records[denial_id] = denial
        if is_held:
            self._held[denial_id] = self._held.get(denial_id, 0) + 1
            if grant is None:
                self._tell(("refuse", denial_id))
        self._tell_client(denial)

    def _tell_client(self, denial: Denial) -> None:
        event = _encode(
            {
                "method": denials.DENIED.name,
                "params": denials.DeniedEvent(self._process_id, denial),
            }
        )
        if self._waiting is None:
            self._push(event)
        else:
            self._waiting.append(event)

    def _end(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.remove_reader(sock)
            sock.close()
        self._held.clear()
        for denial in self._records.values():
            denial.held = False
        for future in self._syncs.values():
            if not future.done():
                future.set_result(None)
