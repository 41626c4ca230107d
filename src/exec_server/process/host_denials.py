"""The hosts that the managed network refused to one process: records, and grants of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from exec_server.errors import InvalidRequest
from exec_server.printable import printable
from exec_server.protocol.denials import Denial, GrantResult, GrantScope
from exec_server.sandbox.supervisor.judge import Ledger

# A longer target is cut, and cannot be granted by its name.
_SHOWN_CHARACTERS = 1024
_RULE = "host not allowed"
# The reason of a refusal that no rule of the request demands. Hosts and addresses that a rule
# refuses, and those of this machine and its networks, stay refused.
_UNLISTED = "not_allowed"
# So many connections wait at once; the others are refused.
_MAX_HELD = 64


def host_target(host: str, port: int) -> bytes:
    """The target of a record about *host*."""
    return f"{host}:{port}".encode("utf-8", "surrogatepass")


class HostDenials:
    """The refused hosts of one process; *tell* sends a record to the client.

    A connection to a host that no rule names waits *hold* seconds for a grant.
    """

    def __init__(self, *, hold: float, tell: Callable[[Denial], None]) -> None:
        self._hold = hold
        self._tell = tell
        self._ledger = Ledger("h")
        self._held: dict[str, list[asyncio.Future[bool]]] = {}
        # What is granted to the process, and the records about which nothing is asked any more.
        self._granted: set[bytes] = set()
        self._settled: set[str] = set()
        # What was asked about, and is therefore counted; its refusal is not counted again.
        self._asked: set[tuple[str, bytes]] = set()
        self._is_closed = False

    @property
    def denials(self) -> list[Denial]:
        return [self._denial(record) for record in self._ledger.records.values()]

    @property
    def unlisted(self) -> int:
        return self._ledger.unlisted

    def ask(self, protocol: str, host: str, port: int) -> asyncio.Future[bool] | None:
        """Whether a host that no rule names is granted; None if it is not, and will not be."""
        target = host_target(host, port)
        loop = asyncio.get_running_loop()
        if target in self._granted:
            granted: asyncio.Future[bool] = loop.create_future()
            granted.set_result(True)
            return granted
        self._asked.add((protocol, target))
        record = self._ledger.add("host", protocol, target, f"{_RULE} ({_UNLISTED})")
        if record is None:
            self._asked.discard((protocol, target))
            self._ledger.unlisted -= 1
            return None
        record.is_grantable = True
        question = loop.create_future() if self._can_hold(record) else None
        if question is not None:
            self._held.setdefault(record.denial_id, []).append(question)
            loop.call_later(self._hold, _decide, question, False)
            question.add_done_callback(lambda _: self._forget(record.denial_id, question))
        if question is not None or record.count == 1:
            self._tell(self._denial(record))
        return question

    def refused(self, protocol: str, host: str, port: int, reason: str) -> None:
        """A connection was refused for *reason*."""
        target = host_target(host, port)
        if reason == _UNLISTED and (protocol, target) in self._asked:
            return
        record = self._ledger.add("host", protocol, target, f"{_RULE} ({reason})")
        if record is not None and record.count == 1:
            self._tell(self._denial(record))

    def grant(self, grant: str, scope: GrantScope) -> tuple[GrantResult, str, bytes] | None:
        """Give what *grant* stands for; None if it is the grant of no host."""
        records = self._ledger.records.values()
        found = next((each for each in records if self._denial(each).grant == grant), None)
        if found is None:
            return None
        held = self._held.get(found.denial_id, [])
        if scope == "once" and not held:
            text = f"no connection waits for `{grant:.200}`; grant it to the process or session"
            raise InvalidRequest(text)
        if scope == "process" and self._is_closed:
            raise InvalidRequest("the process has ended")
        if scope != "once":
            self._settled.add(found.denial_id)
        if scope in ("process", "session"):
            self._granted.add(found.key[2])
        released = len(held)
        self._release(found.denial_id, is_allowed=scope != "never")
        in_place = not self._is_closed and scope in ("process", "session")
        return GrantResult(released, in_place), "host", found.key[2]

    def refuse_held(self) -> None:
        """Refuse all connections that wait."""
        for denial_id in tuple(self._held):
            self._release(denial_id, is_allowed=False)

    def close(self) -> None:
        """The process has ended."""
        self._is_closed = True
        self.refuse_held()

    def _can_hold(self, record: Any) -> bool:
        if not self._hold or self._is_closed or record.denial_id in self._settled:
            return False
        is_shown = self._denial(record).grant is not None
        return is_shown and sum(map(len, self._held.values())) < _MAX_HELD

    def _release(self, denial_id: str, *, is_allowed: bool) -> None:
        for question in self._held.pop(denial_id, ()):
            _decide(question, is_allowed)

    def _forget(self, denial_id: str, question: asyncio.Future[bool]) -> None:
        held = self._held.get(denial_id, [])
        if question in held:
            held.remove(question)
        if not held:
            self._held.pop(denial_id, None)

    def _denial(self, record: Any) -> Denial:
        kind, operation, target = record.key
        shown = printable(target, limit=_SHOWN_CHARACTERS)
        is_whole = shown.encode("utf-8", "surrogatepass") == target
        return Denial(
            record.denial_id,
            kind,
            shown,
            operation,
            record.rule,
            count=record.count,
            grant=f"host={shown}" if record.is_grantable and is_whole else None,
            held=record.denial_id in self._held,
        )


def _decide(question: asyncio.Future[bool], is_allowed: bool) -> None:
    if not question.done():
        question.set_result(is_allowed)
