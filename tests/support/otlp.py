"""A collector of OpenTelemetry on the loopback, which decodes all exports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from tests.support.wire import PATIENCE


class Collected:
    """All exports so far."""

    def __init__(self) -> None:
        self.url = ""
        self.requests = 0
        self.bytes = b""
        self.resources: list[dict[str, Any]] = []
        self.spans: list[Any] = []
        # The newest points of each metric.
        self.points: dict[str, list[Any]] = {}
        self._more = asyncio.Condition()

    async def until(self, is_there: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE), self._more:
            await self._more.wait_for(is_there)

    def value(self, name: str, **labels: str) -> Any:
        """The value of the point with these attributes; None if there is none yet."""
        points = self.points.get(name, [])
        found = [p.as_int or p.as_double for p in points if attributes(p.attributes) == labels]
        return found[0] if found else None

    def span(self, name: str) -> Any:
        (span,) = (each for each in self.spans if each.name == name)
        return span

    async def take(self, request: web.Request) -> None:
        body = await request.read()
        self.bytes += body
        self.requests += 1
        if request.path.endswith("/v1/traces"):
            for traces in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(attributes(traces.resource.attributes))
                self.spans += [span for scope in traces.scope_spans for span in scope.spans]
        else:
            for metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.resources.append(attributes(metrics.resource.attributes))
                for metric in (each for scope in metrics.scope_metrics for each in scope.metrics):
                    kind = metric.WhichOneof("data")
                    assert kind is not None
                    self.points[metric.name] = list(getattr(metric, kind).data_points)
        async with self._more:
            self._more.notify_all()


def attributes(pairs: Any) -> dict[str, Any]:
    def value(pair: KeyValue) -> Any:
        kind = pair.value.WhichOneof("value")
        return getattr(pair.value, kind) if kind else None

    return {pair.key: value(pair) for pair in pairs}


@asynccontextmanager
async def collecting(
    answer: Callable[[], Any] = lambda: web.Response(content_type="application/x-protobuf"),
) -> AsyncIterator[Collected]:
    """Answer every export with the result of *answer*."""
    collected = Collected()

    async def handle(request: web.Request) -> web.StreamResponse:
        await collected.take(request)
        given = answer()
        response: web.StreamResponse = await given if asyncio.iscoroutine(given) else given
        return response

    application = web.Application()
    application.router.add_post("/{tail:.*}", handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    collected.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collected
    finally:
        await runner.cleanup()
