"""Telemetry of a registry: counts requests, and exports spans and metrics to a collector.

OpenTelemetry's own environment variables configure the collector. Without them its library is not
imported. A span tells the operation and its result. It has no tokens, signatures or pairing codes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web

from exec_server.errors import ConfigurationError
from exec_server.hub.observe.metrics import Requests
from exec_server.hub.observe.telemetry_records import (
    REGISTRY,
    SERVER,
    ExportedSignals,
    RequestInfo,
    TelemetrySource,
)
from exec_server.hub.store import Store
from exec_server.hub.store.names import is_name
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.prometheus import Metric
from exec_server.protocol.registry import ROLE

if TYPE_CHECKING:
    from exec_server.hub.observe.otlp import Collector, RequestSpan

_ENDPOINT = "OTEL_EXPORTER_OTLP_{}ENDPOINT"
_PROTOCOL = "OTEL_EXPORTER_OTLP_{}PROTOCOL"
_ROLES = {"environment": "executor", "harness": "harness"}
_METHODS = frozenset("CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT TRACE".split())


class RegistryTelemetry:
    """Observes the requests and the store of one registry."""

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.requests = Requests()
        self.collector: Collector | None = None
        self._limits = limits
        self._store_failures = 0

    def metrics(self) -> list[Metric]:
        failures = self._store_failures
        return [
            *self.requests.metrics(),
            Metric("store_failures_total", "counter", "Calls of the store that failed.", failures),
        ]

    def store(self, store: Store) -> Store:
        """A wrapper of the store that counts calls that fail."""
        return cast(Store, _WatchedStore(store, self._store_failed))

    def _store_failed(self) -> None:
        self._store_failures += 1

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Observe a request. It must directly surround the middleware that answers errors."""
        asked = self._asked(request)
        span = None if self.collector is None else self.collector.span(asked, request.headers)
        seen = _Seen(self.requests, asked, span)
        before = _seen.set(seen)
        try:
            with contextlib.nullcontext() if span is None else span:
                response = await handler(request)
                seen.answered(response.status)
        finally:
            _seen.reset(before)
        return response

    def _asked(self, request: web.Request) -> RequestInfo:
        match = request.match_info
        is_known = match.http_exception is None
        operation = match.handler.__name__.removeprefix("_") if is_known else "unknown"
        resource = match.route.resource
        name = match.get("id", "")
        role = request.query.get(ROLE, "") if operation == "rendezvous" else ""
        return RequestInfo(
            operation=operation,
            method=request.method if request.method in _METHODS else "_OTHER",
            scheme=request.scheme,
            route="" if resource is None else resource.canonical,
            role=_ROLES.get(role, ""),
            # The path of a request may contain any text.
            environment_id=name if is_name(name, limits=self._limits) else "",
        )


class _Seen:
    """One request until it is answered."""

    def __init__(self, requests: Requests, asked: RequestInfo, span: RequestSpan | None) -> None:
        self._requests = requests
        self._asked = asked
        self._span = span
        self._began = time.monotonic()
        self._is_answered = False
        self.client = ""
        self.code = ""

    def answered(self, status: int) -> None:
        """Count the answer. Only the first call has an effect."""
        if self._is_answered:
            return
        self._is_answered = True
        seconds = time.monotonic() - self._began
        asked, code = self._asked, self.code
        self._requests.answered(
            asked.operation, status, seconds=seconds, role=asked.role, reason=code
        )
        if self._span is not None:
            self._span.answered(status, code, seconds=seconds, client=self.client)


# The request of the current task.
_seen: ContextVar[_Seen | None] = ContextVar("_seen", default=None)


def comes_from(address: str) -> None:
    """Set the client address of the current request."""
    if (seen := _seen.get()) is not None:
        seen.client = address


def refused(code: str) -> None:
    """Set the error code of the current request."""
    if (seen := _seen.get()) is not None:
        seen.code = code


def upgraded() -> None:
    """Count the current request as answered: its connection has become a WebSocket."""
    if (seen := _seen.get()) is not None:
        seen.answered(101)


class _WatchedStore:
    """Has all methods of the store."""

    def __init__(self, store: Store, failed: Callable[[], None]) -> None:
        self._store = store
        self._failed = failed

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not iscoroutinefunction(method):
            return method

        @wraps(method)
        async def watched(*args: Any, **options: Any) -> Any:
            try:
                return await method(*args, **options)
            except Exception:
                self._failed()
                raise

        setattr(self, name, watched)
        return watched


# The export to a collector.


def wanted_signals(environ: Mapping[str, str]) -> ExportedSignals:
    """The signals that the variables ask for. Raises ConfigurationError if we cannot export so."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ExportedSignals(traces=False, metrics=False)
    return ExportedSignals(
        traces=_is_wanted("TRACES", environ), metrics=_is_wanted("METRICS", environ)
    )


def _is_wanted(signal: str, environ: Mapping[str, str]) -> bool:
    name, endpoint = _setting(_ENDPOINT, signal, environ)
    exporter = environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() or "otlp"
    if not endpoint or exporter == "none":
        return False
    if exporter != "otlp":
        raise ConfigurationError(f"OTEL_{signal}_EXPORTER has to be `otlp` or `none`")
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigurationError(f"{name} begins with http:// or https://")
    name, protocol = _setting(_PROTOCOL, signal, environ)
    if protocol not in ("", "http/protobuf"):
        raise ConfigurationError(f"{name} has to be `http/protobuf`")
    return True


def _setting(template: str, signal: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The name and value of a variable: the one of this signal, or else the one of all signals."""
    name = template.format(f"{signal}_")
    if not environ.get(name, "").strip():
        name = template.format("")
    return name, environ.get(name, "").strip()


@contextlib.asynccontextmanager
async def exporting(
    watch: RegistryTelemetry, metrics: Callable[[], list[Metric]], *, limits: Limits
) -> AsyncIterator[None]:
    """Export to a collector if one is configured. Raises ConfigurationError.

    Requests never wait for the collector. Only the end of the block does, for a moment.
    """
    signals = wanted_signals(os.environ)
    if not signals.traces and not signals.metrics:
        yield
        return
    collector = watch.collector = _collector(signals, metrics, REGISTRY)
    try:
        yield
    finally:
        watch.collector = None
        await collector.close(limits.close_timeout * 3)


@contextlib.asynccontextmanager
async def exporting_server_metrics(
    metrics: Callable[[], list[Metric]], *, limits: Limits
) -> AsyncIterator[None]:
    """Export the metrics of a plain server if a collector is configured."""
    if not wanted_signals(os.environ).metrics:
        yield
        return
    collector = _collector(ExportedSignals(traces=False, metrics=True), metrics, SERVER)
    try:
        yield
    finally:
        await collector.close(limits.close_timeout * 3)


def _collector(
    signals: ExportedSignals, metrics: Callable[[], list[Metric]], source: TelemetrySource
) -> Collector:
    try:
        from exec_server.hub.observe.otlp import Collector
    except ImportError as exc:
        raise ConfigurationError(
            "OTEL_EXPORTER_OTLP_ENDPOINT needs more packages: pip install 'exec-server[telemetry]'"
        ) from exc
    return Collector(signals, metrics, source)
