"""Exports spans and metrics to a collector over OTLP and HTTP, in threads of the library.

This module is imported only if a collector is configured.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import (
    CallbackOptions,
    Histogram,
    Meter,
    NoOpMeterProvider,
    Observation,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import NoOpTracerProvider, Span, SpanKind, StatusCode, Tracer, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from exec_server.errors import ConfigurationError
from exec_server.hub.observe.otlp_log import Outages
from exec_server.hub.observe.telemetry_records import (
    REGISTRY,
    ExportedSignals,
    RequestInfo,
    TelemetrySource,
)
from exec_server.prometheus import DURATION_BOUNDS, Labels, Metric
from exec_server.version import VERSION

logger = logging.getLogger(__name__)

# How long a thread waits until the event loop has read the metrics.
_LOOK_SECONDS = 5.0
_W3C = TraceContextTextMapPropagator()


class Collector:
    """Exports the *wanted* signals of *source* until it is closed. Raises ConfigurationError."""

    def __init__(
        self,
        wanted: ExportedSignals,
        metrics: Callable[[], list[Metric]],
        source: TelemetrySource = REGISTRY,
    ) -> None:
        self._source = source
        self._outages = Outages()
        self._exporters: list[_SpanExporter | _MetricExporter] = []
        self._shutdowns: list[Callable[[float], None]] = []
        resource = _resource(source)
        try:
            tracer = self._tracer(resource) if wanted.traces else _NO_TRACER
            meter = self._meter(resource) if wanted.metrics else _NO_METER
        except ValueError as exc:
            self._give_up()
            raise ConfigurationError(f"a variable of OpenTelemetry is wrong: {exc}") from exc
        self._traces = tracer
        self._durations = meter.create_histogram(
            "http.server.request.duration",
            unit="s",
            description="Time to the answer; of a socket, to its upgrade.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS,
        )
        _observe(meter, metrics, source)

    def _tracer(self, resource: Resource) -> Tracer:
        exporter = _SpanExporter(self._outages)
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        self._exporters.append(exporter)
        self._shutdowns.append(lambda seconds: provider.shutdown())
        return provider.get_tracer(self._source.scope, VERSION)

    def _meter(self, resource: Resource) -> Meter:
        exporter = _MetricExporter(self._outages)
        reader = PeriodicExportingMetricReader(exporter)
        provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._exporters.append(exporter)
        self._shutdowns.append(lambda seconds: provider.shutdown(timeout_millis=seconds * 1000))
        return provider.get_meter(self._source.scope, VERSION)

    def span(self, asked: RequestInfo, headers: Mapping[str, str]) -> RequestSpan:
        """A span for a request, which continues the trace of the client."""
        http = {
            "http.request.method": asked.method,
            "url.scheme": asked.scheme,
            "http.route": asked.route,
        }
        http = {name: value for name, value in http.items() if value}
        ours = {
            "exec_server.environment_id": asked.environment_id,
            "exec_server.role": asked.role,
        }
        span = self._traces.start_span(
            asked.operation,
            context=_W3C.extract(_lowered(headers)),
            kind=SpanKind.SERVER,
            attributes={**http, **{name: value for name, value in ours.items() if value}},
        )
        return RequestSpan(span, self._durations, http)

    def _give_up(self) -> None:
        """Shut down before anything was sent."""
        for shutdown in self._shutdowns:
            shutdown(0.0)
        self._outages.close()

    async def close(self, seconds: float) -> None:
        """Send the rest within *seconds*, and give up what takes longer."""
        ends = [_in_thread(shutdown, seconds) for shutdown in self._shutdowns]
        _, late = await asyncio.wait(ends, timeout=seconds)
        if late:
            logger.warning("the collector did not take the last spans or metrics in time")
            # The threads need a while to end, and what they log meanwhile is of no use.
            self._outages.mute()
            asyncio.gather(*late).add_done_callback(lambda _: self._outages.close())
            for exporter in self._exporters:
                exporter.shutdown()
        else:
            self._outages.close()


class RequestSpan:
    """The span of one request, current inside of its block."""

    def __init__(self, span: Span, durations: Histogram, http: dict[str, Any]) -> None:
        self._span = span
        self._durations = durations
        self._http = http
        self._current = use_span(span, record_exception=False, set_status_on_exception=False)

    def __enter__(self) -> None:
        self._current.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._current.__exit__(kind, error, traceback)
        if error is not None and self._span.is_recording():
            # The request got no answer.
            self._span.set_attribute("error.type", type(error).__name__)
            self._span.set_status(StatusCode.ERROR)
        self._end()

    def answered(self, status: int, code: str, *, seconds: float, client: str) -> None:
        outcome: dict[str, Any] = {"http.response.status_code": status}
        if code:
            outcome["error.type"] = code
        self._durations.record(seconds, {**self._http, **outcome})
        self._span.set_attributes(outcome)
        if client:
            self._span.set_attribute("client.address", client)
        if status >= 500:
            # An error of the client is no error of this server.
            self._span.set_status(StatusCode.ERROR)
        self._end()

    def _end(self) -> None:
        if self._span.is_recording():
            self._span.end()


class _SpanExporter(OTLPSpanExporter):
    def __init__(self, outages: Outages) -> None:
        super().__init__()
        self._outages = outages

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        if result is SpanExportResult.SUCCESS:
            self._outages.over(OTLPSpanExporter.__module__)
        return result


class _MetricExporter(OTLPMetricExporter):
    def __init__(self, outages: Outages) -> None:
        super().__init__()
        self._outages = outages

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **options: Any
    ) -> MetricExportResult:
        result = super().export(metrics_data, timeout_millis, **options)
        if result is MetricExportResult.SUCCESS:
            self._outages.over(OTLPMetricExporter.__module__)
        return result


class _Look:
    """The metrics of one moment, read on the event loop and used in the exporter's thread."""

    def __init__(self, metrics: Callable[[], list[Metric]]) -> None:
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._left: dict[str, Mapping[Labels, float]] = {}

    def take(self, name: str) -> Mapping[Labels, float]:
        """The points of a metric. A second call for the same metric reads all metrics again."""
        if name not in self._left:
            self._left = {each.name: each.points for each in self._look()}
        return self._left.pop(name, {})

    def _look(self) -> list[Metric]:
        seen: Future[list[Metric]] = Future()

        def look() -> None:
            try:
                seen.set_result(self._metrics())
            except Exception as exc:
                seen.set_exception(exc)

        self._loop.call_soon_threadsafe(look)
        return seen.result(_LOOK_SECONDS)


def _observe(meter: Meter, metrics: Callable[[], list[Metric]], source: TelemetrySource) -> None:
    look = _Look(metrics)
    for metric in metrics():
        # The labels of an `info` are part of the resource.
        if metric.kind != "info":
            _instrument(meter, metric, look, source)


def _instrument(meter: Meter, metric: Metric, look: _Look, source: TelemetrySource) -> None:
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(value, dict(labels)) for labels, value in look.take(metric.name).items()
        ]

    is_counter = metric.kind == "counter"
    create = meter.create_observable_counter if is_counter else meter.create_observable_gauge
    # The collector adds `_total` again for Prometheus.
    name = f"{source.scope}.{metric.name.removesuffix('_total')}"
    create(name, callbacks=[observe], description=metric.help)


def _resource(source: TelemetrySource) -> Resource:
    ours = {
        "service.name": source.service,
        "service.version": VERSION,
        "service.instance.id": str(uuid.uuid4()),
    }
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}


def _in_thread(work: Callable[[float], None], seconds: float) -> asyncio.Future[None]:
    """Run *work* in a daemon thread, for whose end the process does not wait."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not done.done():
            done.set_result(None)

    def run() -> None:
        try:
            work(seconds)
        except Exception:
            logger.warning("the collector could not be left in order", exc_info=True)
        # If the loop is closed, no task waits for this.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=run, name="leave the collector", daemon=True).start()
    return done


_NO_TRACER = NoOpTracerProvider().get_tracer(REGISTRY.scope)
_NO_METER = NoOpMeterProvider().get_meter(REGISTRY.scope)
