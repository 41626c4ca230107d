"""The trace headers that the registry and the rendezvous get."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from tests.remote.conftest import connect, executor
from tests.requirements import requirement


def span(number: int) -> NonRecordingSpan:
    return NonRecordingSpan(
        SpanContext(number, number, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    )


def parent(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


@requirement("remote/trace:headers")
async def test_requests_and_upgrades_belong_to_the_current_span(relay):
    with trace.use_span(span(1)):
        async with executor(relay):
            with trace.use_span(span(2)):
                async with connect(relay):
                    pass
    told = {asked.operation: asked.headers.get("traceparent") for asked in relay.asked}
    assert told["register"] == told["validate"] == parent(1)
    assert told["connect"] == parent(2)
    upgrades = [headers["traceparent"] for _, headers in relay.upgrades]
    assert upgrades == [parent(1), parent(2)]


@requirement("remote/trace:headers")
async def test_without_a_span_there_is_no_trace(online):
    async with connect(online):
        pass
    for headers in (*(asked.headers for asked in online.asked), *(h for _, h in online.upgrades)):
        assert "traceparent" not in headers
