"""Spans, for a program that collects them."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from exec_server import sync
from exec_server.client_urls import connect
from exec_server.errors import ConnectionClosed, InvalidRequest, RpcError
from tests.requirements import requirement
from tests.support.fake_server import Talk, fake_server
from tests.support.leaks import eventually
from tests.support.servers import start_server

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def spans(monkeypatch) -> Iterator[InMemorySpanExporter]:
    """What is collected."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    [span] = [span for span in spans.get_finished_spans() if span.name == name]
    return span


@requirement("trace/calls", "trace/processes")
async def test_a_command_is_a_span_around_its_calls(spans, client):
    await client.run(["/bin/sh", "-c", "exit 3", "secret"], env={"PASSWORD": "secret"})
    process, start = named(spans, "process sh"), named(spans, "process/start")
    assert process.attributes is not None and start.attributes is not None
    assert process.attributes["process.executable.name"] == "sh"
    assert process.attributes["process.exit.code"] == 3
    assert not process.attributes["process.interactive"]
    assert start.parent is not None and start.parent.span_id == process.context.span_id
    assert start.kind == SpanKind.CLIENT
    assert dict(start.attributes) == {
        "rpc.system": "jsonrpc",
        "rpc.method": "process/start",
        "exec_server.process.id": process.attributes["exec_server.process.id"],
    }
    assert "secret" not in "".join(span.to_json() for span in spans.get_finished_spans())


@requirement("trace/calls")
async def test_a_refusal_is_told_by_its_code_alone(spans, client):
    with pytest.raises(InvalidRequest):
        await client.read("secret-of-mine")
    span = named(spans, "process/read")
    assert span.status.status_code == StatusCode.ERROR and span.status.description is None
    assert span.attributes is not None and not span.events
    assert span.attributes["rpc.jsonrpc.error_code"] == -32600
    assert span.attributes["error.type"] == "InvalidRequest"


@requirement("trace/processes")
async def test_a_start_that_fails_ends_its_span(spans, client):
    with pytest.raises(RpcError) as caught:
        await client.start(["/no/such/program"])
    span = named(spans, "process program")
    assert span.attributes is not None
    assert span.attributes["error.type"] == type(caught.value).__name__
    assert "process.exit.code" not in span.attributes


@requirement("trace/processes")
async def test_a_process_that_is_lost_or_dropped_ends_its_span(spans, server):
    async with connect(server.url, reconnect=False) as client:
        kept = await client.start(["sleep", "60"])
        dropped = await client.start(["cat"], stdin=True)
        del dropped
        await eventually(lambda: gc.collect() >= 0 and "process cat" in str(names(spans)))
    with pytest.raises(ConnectionClosed):
        await kept.wait()
    lost = named(spans, "process sleep")
    assert lost.attributes is not None and lost.attributes["error.type"] == "ConnectionClosed"


def names(spans: InMemorySpanExporter) -> list[str]:
    return [span.name for span in spans.get_finished_spans()]


@requirement("trace/context")
async def test_a_request_carries_its_context(spans):
    heard = []

    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        heard.append(request := await talk.expect("process/list"))
        await talk.answer(request, {"processes": []})
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        await client.list_processes()
    context = named(spans, "process/list").context
    traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert heard[0]["trace"] == {"traceparent": traceparent}


@requirement("trace/context")
async def test_without_a_collector_there_is_no_context(monkeypatch):
    heard = []
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")

    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        heard.append(request := await talk.expect("process/list"))
        await talk.answer(request, {"processes": []})
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        await client.list_processes()
    assert "trace" not in heard[0]


@requirement("trace/context")
def test_the_span_of_a_thread_is_that_of_its_calls(spans):
    with start_server() as server, sync.connect(server.url) as box:
        with trace.get_tracer("test", None, trace.get_tracer_provider()).start_as_current_span(
            "me"
        ):
            box.list_processes()
    me, call = named(spans, "me"), named(spans, "process/list")
    assert call.parent is not None and call.parent.span_id == me.context.span_id


@requirement("trace/absent")
def test_who_collects_nothing_loads_nothing():
    program = (
        "import sys; from exec_server import sync\n"
        "with sync.local() as box: box.run(['true'])\n"
        "print(*sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert b"opentelemetry" not in found.stdout
