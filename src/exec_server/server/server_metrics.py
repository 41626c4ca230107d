"""The metrics of a server, for Prometheus. A server without them does none of this."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from exec_server import prometheus
from exec_server.prometheus import Durations, Labels, Metric
from exec_server.rpc.router import Route
from exec_server.server.server import ExecServer
from exec_server.transport.connection import Connection
from exec_server.transport.metered import Traffic
from exec_server.transport.refusal_log import RefusalKind
from exec_server.version import VERSION

_PREFIX = "exec_server_"


class ServerMetrics:
    """Counts the connections and requests of *core*, and looks at the rest when it is asked."""

    def __init__(self, core: ExecServer, refusals: Mapping[RefusalKind, int]) -> None:
        """*refusals* counts the refused connections; it is read at each scrape."""
        self._core = core
        self._refusals = refusals
        self.traffic = Traffic()
        self._accepted = 0
        self._errors = 0
        self._durations = Durations(
            "request_seconds", "Time from a request to its answer.", label="method"
        )
        core.routes = {name: self._timed(route) for name, route in core.routes.items()}
        core.watch_refusals = self._timed

    def counting(self, serve: Callable[[Connection], None]) -> Callable[[Connection], None]:
        """*serve*, which is counted."""

        def serve_counted(connection: Connection) -> None:
            self._accepted += 1
            serve(connection)

        return serve_counted

    def text(self) -> str:
        """The text of a scrape."""
        return prometheus.exposition(self.found(), self._durations, prefix=_PREFIX)

    def found(self) -> list[Metric]:
        """All metrics but the histograms."""
        parts: dict[Labels, float] = {
            (("reason", kind),): count for kind, count in self._refusals.items()
        }
        refused = Metric("refusals_total", "counter", "Connections that were refused.", parts=parts)
        audit = [] if self._core.audit is None else self._core.audit.metrics()
        return [*self._counts(), refused, *self._state(), *audit, *_process()]

    def _counts(self) -> list[Metric]:
        traffic = self.traffic
        accepted, failed = self._accepted, self._errors
        received, sent = traffic.received_bytes, traffic.sent_bytes
        return [
            Metric("info", "info", "The version.", parts={(("version", VERSION),): 1}),
            Metric("accepted_connections_total", "counter", "Connections so far.", accepted),
            Metric("received_bytes_total", "counter", "Bytes of messages from clients.", received),
            Metric("sent_bytes_total", "counter", "Bytes of messages to clients.", sent),
            Metric(
                "received_messages_total",
                "counter",
                "Messages from clients.",
                traffic.received_messages,
            ),
            Metric("sent_messages_total", "counter", "Messages to clients.", traffic.sent_messages),
            Metric("request_errors_total", "counter", "Requests that got an error.", failed),
        ]

    def _state(self) -> list[Metric]:
        core = self._core
        spawner = core.spawner
        sessions = list(core.sessions)
        attached = sum(session.is_attached for session in sessions)
        has_files = "files" in vars(core)
        return [
            Metric("connections", "gauge", "Connections that are open.", core.connection_count),
            Metric(
                "sessions",
                "gauge",
                "Sessions.",
                parts={
                    (("state", "attached"),): attached,
                    (("state", "detached"),): len(sessions) - attached,
                },
            ),
            Metric(
                "processes",
                "gauge",
                "Processes that run, helpers of sandboxed file requests included.",
                spawner.live_count + (0 if core.jobs is None else core.jobs.running),
            ),
            Metric(
                "known_processes",
                "gauge",
                "Processes that clients can ask about, ended ones included.",
                sum(len(session.processes) for session in sessions),
            ),
            Metric(
                "journal_bytes",
                "gauge",
                "Output of durable processes on the disk.",
                0 if core.jobs is None else core.jobs.journal_bytes,
            ),
            Metric(
                "keeper_up",
                "gauge",
                "1 if the keeper of processes runs.",
                int(spawner.keeper_pid is not None),
            ),
            Metric(
                "keeper_lost",
                "gauge",
                "1 if a keeper has died since the start.",
                int(spawner.has_lost_keeper),
            ),
            Metric(
                "file_helpers",
                "gauge",
                "Helpers of sandboxed file requests.",
                len(core.files.helpers) if has_files else 0,
            ),
        ]

    # Requests.

    def _timed(self, route: Route) -> Route:
        return Route(route.method, partial(self._handle, route))

    def _handle(self, route: Route, context: Any, params: Any) -> Any:
        begun = time.monotonic()
        try:
            result = route.handler(context, params)
        except BaseException:
            self._ended(route, begun, has_failed=True)
            raise
        if isinstance(result, Struct):
            self._ended(route, begun)
            return result
        # A future stays the same future, which handlers rely on.
        future = asyncio.ensure_future(result)
        future.add_done_callback(partial(self._finished, route, begun))
        return future

    def _finished(self, route: Route, begun: float, future: asyncio.Future[Any]) -> None:
        has_failed = future.cancelled() or future.exception() is not None
        self._ended(route, begun, has_failed=has_failed)

    def _ended(self, route: Route, begun: float, *, has_failed: bool = False) -> None:
        self._errors += has_failed
        self._durations.add(route.method.name, time.monotonic() - begun)


def _process() -> list[Metric]:
    """The memory and descriptors of this process, where the system tells them."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
        descriptors = len(os.listdir("/proc/self/fd"))
    except OSError:
        return []
    size = pages * os.sysconf("SC_PAGE_SIZE")
    return [
        Metric("resident_bytes", "gauge", "Memory that the server itself has in use.", size),
        Metric("open_descriptors", "gauge", "Open files of the server itself.", descriptors),
    ]
