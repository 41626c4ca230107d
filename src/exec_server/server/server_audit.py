"""The audit log of a server: a line for each request that does something, before its answer.

A server without an audit log does none of this.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from exec_server.audit.audit_file import AuditLines
from exec_server.audit.event import WorkEvent
from exec_server.audit.masking import PLAIN, Masker
from exec_server.errors import AuditUnavailable, InternalError, RpcError
from exec_server.printable import printable, short_digest
from exec_server.process.child import Child
from exec_server.prometheus import Metric
from exec_server.protocol import lifecycle
from exec_server.rpc.router import Route
from exec_server.server.audited_requests import (
    UNAUDITED,
    Facts,
    end_facts,
    request_facts,
    result_facts,
    without_session_ids,
)
from exec_server.server.held_answers import HeldConnection, held
from exec_server.server.session import Session
from exec_server.transport.connection import Connection, LocalConnection
from exec_server.version import VERSION

if TYPE_CHECKING:
    from exec_server.server.context import Context

logger = logging.getLogger(__name__)

_REFUSED = "the server cannot write its audit log, and does no work without it"
# Errors that say that a principal may not do something. They are written for every method.
_RIGHTS_CODES = range(-32029, -32019)
_ERROR_CHARACTERS = 200

Routes = dict[str, Route]


class ServerAudit:
    """Writes what a server does to *lines*; `close` closes them."""

    def __init__(self, lines: AuditLines, *, clock: Callable[[], float] = time.time) -> None:
        self.lines = lines
        self.masker = PLAIN
        self._clock = clock
        # The audited table of each table of routes, which stays referenced.
        self._tables: dict[int, tuple[Routes, Routes]] = {}
        # The connections whose messages wait for the disk.
        self._holding: set[HeldConnection] = set()
        # When each connection began.
        self._opened: dict[Context, float] = {}
        lines.sync.on_synced = self._release

    def know_tokens(self, digests: tuple[bytes, ...]) -> None:
        """Mask the tokens with these SHA-256 digests from now on."""
        self.masker = Masker(digests)

    def routes(self, table: Routes) -> Routes:
        """The routes of *table*, audited."""
        known = self._tables.get(id(table))
        if known is None:
            known = table, {name: self._audited(route) for name, route in table.items()}
            self._tables[id(table)] = known
        return known[1]

    def connection(self, connection: Connection) -> Connection:
        """*connection*, whose answers wait for the disk if that is asked for."""
        if self.lines.options.fsync != "always":
            return connection
        return held(connection, self.lines.sync, self._holding)

    def metrics(self) -> list[Metric]:
        lines = self.lines
        failures = lines.failures + lines.sync.failures
        return [
            Metric("audit_last_line", "gauge", "Number of the last audit line.", lines.end.number),
            Metric("audit_failures_total", "counter", "Failed writes of audit lines.", failures),
            Metric("audit_lost_total", "counter", "Audit lines that were lost.", lines.lost_total),
            Metric(
                "audit_refused_total",
                "counter",
                "Requests that were refused because no audit line could be written.",
                lines.refused_total,
            ),
        ]

    # The server.

    def started(self, where: str) -> None:
        text = f"version {VERSION}, pid {os.getpid()}, {where}"
        self._write("server started", {"detail": text})
        logger.info("audit log %s begins with line %d", self.lines.path, self.lines.end.number)

    def stopped(self) -> None:
        self._write("server stopped", {"detail": f"pid {os.getpid()}"})
        end = self.lines.end
        logger.info("the last line of the audit log %s is %s", self.lines.path, end)

    def reloaded(self, *, is_whole: bool) -> None:
        self._write("server reloaded", {"detail": "" if is_whole else "a file is broken"})

    def refused(self, address: str, kind: str, reason: str) -> None:
        """A connection was refused before it was one."""
        detail = f"{kind}: {printable(self.masker.text(reason))}"
        self._write("connection refused", {"address": address, "detail": detail})

    def close(self) -> None:
        self.lines.close()

    # Connections and processes.

    def opened(self, context: Context) -> None:
        self._opened[context] = self._clock()
        self._note(context, "connection opened", {"detail": context.connection.transport_name})

    def closed(self, context: Context) -> None:
        begun = self._opened.pop(context, None)
        seconds = None if begun is None else round(max(0.0, self._clock() - begun), 3)
        self._note(context, "connection closed", {"seconds": seconds})

    def ended(self, session: Session, child: Child, why: str = "") -> None:
        """A process of *session* has ended."""
        facts = end_facts(child)
        if why:
            facts["detail"] = why
        facts |= {"principal": session.owner, "session": short_digest(session.id)}
        self._write("process ended", facts)

    def stream_ended(
        self, session: Session, address: str, bytes_in: int, bytes_out: int, why: str
    ) -> None:
        """A byte stream of *session* is over; *why* says why it was broken off."""
        detail = printable(f"{address}: {why}" if why else address)
        who = {"principal": session.owner, "session": short_digest(session.id)}
        counts = {"bytes_in": bytes_in, "bytes_out": bytes_out}
        self._write("stream ended", {**who, **counts, "detail": detail})

    def left(self, session: Session) -> None:
        """The server stops, and has ended the processes of *session* that still ran."""
        for child in session.processes.running_children():
            self.ended(session, child, "it was ended with the server")

    # Requests.

    def _audited(self, route: Route) -> Route:
        name = route.method.name
        handle = self._watch_rights if name in UNAUDITED else self._handle
        return Route(route.method, partial(handle, route))

    def _watch_rights(self, route: Route, context: Context, params: Any) -> Any:
        """Handle a request that is not audited, unless it is refused for lack of rights."""
        try:
            return route.handler(context, params)
        except RpcError as exc:
            if exc.code in _RIGHTS_CODES:
                self._ended(
                    route, context, request_facts(params, self.masker, context.who), error=exc
                )
            raise

    def _handle(self, route: Route, context: Context, params: Any) -> Any:
        if not self.lines.admits():
            raise AuditUnavailable(_REFUSED)
        facts = request_facts(params, self.masker, context.who)
        try:
            result = route.handler(context, params)
        except Exception as exc:
            self._ended(route, context, facts, error=exc)
            raise
        if isinstance(result, Struct):
            self._ended(route, context, facts, result=result)
            return result
        # A future stays the same future, which handlers rely on. This callback comes before that
        # of the Peer, which sends the answer.
        future = asyncio.ensure_future(result)
        future.add_done_callback(partial(self._finished, route, context, facts))
        return future

    def _finished(
        self, route: Route, context: Context, facts: Facts, future: asyncio.Future[Any]
    ) -> None:
        if future.cancelled():
            facts = {**facts, "detail": "the connection was lost before the answer"}
            self._ended(route, context, facts)
        elif (error := future.exception()) is not None:
            self._ended(route, context, facts, error=error)
        else:
            self._ended(route, context, facts, result=future.result())

    def _ended(
        self,
        route: Route,
        context: Context,
        facts: Facts,
        *,
        result: object = None,
        error: BaseException | None = None,
    ) -> None:
        if error is not None:
            known = error if isinstance(error, RpcError) else InternalError("internal error")
            message = self.masker.message(known.message)
            if route.method is lifecycle.INITIALIZE:
                message = without_session_ids(message)
            text = printable(message, limit=_ERROR_CHARACTERS)
            facts = {**facts, "code": known.code, "error": text}
        else:
            facts = {**facts, **result_facts(result)}
        self._note(context, route.method.name, facts)

    def _note(self, context: Context, name: str, facts: Facts) -> None:
        connection, session = context.connection, context.session
        who: Facts = {
            "principal": context.who.name,
            "address": connection.peer_name,
            "session": "" if session is None else short_digest(session.id),
        }
        if isinstance(connection, LocalConnection) and connection.owner is not None:
            who |= {"uid": connection.owner.uid, "pid": connection.owner.pid}
        self._write(name, {**who, **facts})
        if isinstance(connection, HeldConnection):
            connection.hold()

    def _write(self, name: str, facts: Mapping[str, Any]) -> None:
        self.lines.write_event(WorkEvent(at=self._clock(), name=name, **facts))

    def _release(self) -> None:
        for connection in tuple(self._holding):
            connection.release()
