"""The spans and metrics that a collector gets, and a collector that is missing."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
import threading
from base64 import b64encode
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import parse_qs, urlsplit

import aiohttp
import msgspec
import pytest
from aiohttp import web

from exec_server.cli.log_setup import JsonFormatter
from exec_server.errors import ConfigurationError
from exec_server.hub.observe.otlp_log import Outages
from exec_server.hub.observe.telemetry import wanted_signals
from exec_server.hub.observe.telemetry_records import ExportedSignals
from exec_server.hub.registry_service import HubOptions, serve_hub
from exec_server.limits import DEFAULT_LIMITS
from exec_server.version import VERSION
from tests.hub.conftest import Visitor, bring_online
from tests.requirements import requirement
from tests.support.otlp import attributes, collecting

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
OURS = "exec_server.registry."
FRAME = b"\x08\x01\x12\x01s\x3a\x00"
ERROR = 2
IN_A_HURRY = msgspec.structs.replace(DEFAULT_LIMITS, close_timeout=0.2)


@pytest.fixture(autouse=True)
def only_what_the_test_sets(monkeypatch, no_leaks):
    for name in os.environ:
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    # After a collector was given up, the library stays silent until its threads have ended.
    library = logging.getLogger("opentelemetry")
    monkeypatch.setattr(library, "propagate", True)
    monkeypatch.setattr(library, "handlers", [])
    # Spans leave at once; metrics when the registry stops.
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")


@asynccontextmanager
async def registry(tmp_path, *, limits=DEFAULT_LIMITS):
    async with (
        serve_hub(HubOptions(state=str(tmp_path / "state")), limits=limits) as hub,
        aiohttp.ClientSession() as session,
    ):
        visitor = Visitor(hub, session)
        yield visitor
        visitor.drop_all()


@requirement("hub/telemetry:spans", "hub/telemetry:metrics")
async def test_a_collector_sees_the_requests_and_the_figures(tmp_path, monkeypatch):
    async with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
        async with registry(tmp_path) as visitor:
            pair = await bring_online(visitor)
            harness = await pair.open_harness()
            await harness.send_bytes(FRAME)
            await pair.executor.receive()
            # Both sockets are open, and their spans are there.
            await collector.until(lambda: len(collector.spans) == 4)
            await collector.until(lambda: collector.value(f"{OURS}bytes") == len(FRAME))
            assert collector.value(f"{OURS}executors") == 1
        register = collector.span("register")
        assert attributes(register.attributes) == {
            "http.request.method": "POST",
            "url.scheme": "http",
            "http.route": "/cloud/environment/{id}/register",
            "http.response.status_code": 200,
            "exec_server.environment_id": "build",
            "client.address": "127.0.0.1",
        }
        assert register.kind == register.SPAN_KIND_SERVER
        assert collector.span("connect").status.code != ERROR
        sockets = [attributes(s.attributes) for s in collector.spans if s.name == "rendezvous"]
        assert {each["exec_server.role"] for each in sockets} == {"executor", "harness"}
        assert {each["http.response.status_code"] for each in sockets} == {101}
        assert collector.value(f"{OURS}requests", operation="connect", status="2xx") == 1
        counts = [point.count for point in collector.points["http.server.request.duration"]]
        assert sorted(counts) == [1, 1, 2]
        for resource in collector.resources:
            assert resource["service.name"] == "exec-server-registry"
            assert resource["service.version"] == VERSION
        assert len({resource["service.instance.id"] for resource in collector.resources}) == 1


@requirement("hub/telemetry:trace")
async def test_a_trace_of_the_caller_goes_on(tmp_path, monkeypatch):
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    async with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        async with registry(tmp_path) as visitor:
            headers = {"traceparent": f"00-{trace}-{parent}-01"}
            await visitor.ask("GET", "/healthz", headers=headers)
            await visitor.ask("GET", "/readyz", headers={"traceparent": "nonsense"})
        span, other = collector.span("healthz"), collector.span("readyz")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (trace, parent)
    assert other.trace_id.hex() != trace and not other.parent_span_id


@requirement("hub/telemetry:refused")
async def test_refusals_are_marked_and_failures_are_errors(tmp_path, monkeypatch):
    async def fails(**options):
        raise RuntimeError("the disk is full")

    async with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        async with registry(tmp_path) as visitor:
            await visitor.ask("DELETE", "/nowhere")
            await visitor.connect("build", "exs_wrong")
            await visitor.refusal(f"{visitor.hub.url}/rendezvous/build?role=harness&v=2")
            _, secret = await visitor.token("observe")
            monkeypatch.setattr(visitor.hub.store, "events", fails)
            assert (await visitor.ask("GET", "/api/events", secret)).status == 500
            metrics = (await visitor.ask("GET", "/metrics", secret)).body.splitlines()
    outcomes = {
        span.name: (attributes(span.attributes)["error.type"], span.status.code == ERROR)
        for span in collector.spans
        if span.name != "metrics"
    }
    assert outcomes == {
        "unknown": ("not_found", False),
        "connect": ("invalid_token", False),
        "rendezvous": ("missing_version", False),
        "events": ("internal_error", True),
    }
    assert "http.route" not in attributes(collector.span("unknown").attributes)
    refused = 'exec_server_registry_refusals_total{operation="%s",role="%s",reason="%s"} 1'
    assert refused % ("rendezvous", "harness", "missing_version") in metrics
    assert refused % ("connect", "", "invalid_token") in metrics
    assert "exec_server_registry_store_failures_total 1" in metrics


@requirement("hub/telemetry:secrets")
async def test_no_secret_is_exported(tmp_path, monkeypatch):
    def signature(url):
        return parse_qs(urlsplit(url).query)["sig"][0]

    async with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        async with registry(tmp_path) as visitor:
            pair = await bring_online(visitor)
            bundle = (await visitor.connect("build", pair.harness)).body
            await visitor.open(bundle["url"])
            await visitor.refusal(bundle["url"])
            await visitor.validate("build", pair.enrolment, bundle)
            offer = await visitor.ask("POST", "/api/pairings/build", pair.enrolment)
            paired = await visitor.ask("POST", "/api/pair", body={"code": offer.body["code"]})
            await visitor.ask("GET", "/api/pairings/build", offer.body["ticket"])
            await visitor.ask("GET", "/api/environments", f"{pair.harness}x")
            basic = {"Authorization": "Basic " + b64encode(b"me:pass-word").decode()}
            await visitor.ask("GET", f"/?token={pair.harness}", headers=basic)
    secrets = [
        pair.enrolment,
        pair.harness,
        signature(pair.registration["url"]),
        signature(bundle["url"]),
        bundle["harness_key_authorization"],
        offer.body["code"],
        offer.body["ticket"],
        paired.body["token"],
        basic["Authorization"].removeprefix("Basic "),
    ]
    assert len(collector.spans) == 11
    for secret in secrets:
        assert secret.encode() not in collector.bytes


@requirement("hub/telemetry:harmless")
async def test_a_collector_that_is_away_harms_nothing(tmp_path, monkeypatch):
    async with collecting() as collector:
        url = collector.url
    monkeypatch.setenv(ENDPOINT, url)
    # The collector's own library would try for an hour.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")
    async with registry(tmp_path, limits=IN_A_HURRY) as visitor:
        pair = await bring_online(visitor)
        assert (await visitor.connect("build", pair.harness)).status == 200


@requirement("hub/telemetry:harmless")
async def test_a_collector_that_never_answers_is_left_in_time(tmp_path, monkeypatch, caplog):
    answer = asyncio.Event()

    async def too_late():
        await answer.wait()
        return web.Response()

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")
    async with collecting(too_late) as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        async with registry(tmp_path, limits=IN_A_HURRY) as visitor:
            await visitor.ask("GET", "/healthz")
            await collector.until(lambda: collector.spans)
            assert (await visitor.ask("GET", "/readyz")).status == 200
        # The registry has stopped, although the collector answers only now.
        answer.set()
    assert "did not take the last" in caplog.text


def has_come(collector, count):
    return collector.requests == count


@requirement("hub/telemetry:quiet")
async def test_an_outage_is_told_once(tmp_path, monkeypatch, caplog):
    statuses = iter([400] * 3)
    async with collecting(lambda: web.Response(status=next(statuses, 200), body=b"\xff")) as c:
        monkeypatch.setenv(ENDPOINT, c.url)
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        caplog.set_level(logging.INFO)
        async with registry(tmp_path) as visitor:
            for count in range(1, 5):
                await visitor.ask("GET", "/healthz")
                await c.until(partial(has_come, c, count))
    said = [record for record in caplog.records if "telemetry: " in record.message]
    assert [record.levelno for record in said] == [logging.WARNING, logging.INFO]
    assert all(record.name.startswith("exec_server.") for record in said)
    assert not c.points


@requirement("hub/telemetry:quiet")
def test_what_goes_on_for_ever_is_said_again(caplog):
    times = iter([0.0, 1.0, 3000.0, 3601.0, 3602.0, 1e6])
    outages = Outages(clock=lambda: next(times))
    try:
        library = logging.getLogger("opentelemetry.sdk")
        for _ in range(4):
            library.error("queue full")
        outages.over("opentelemetry.exporter")
        library.error("queue full")
        assert caplog.text.count("queue full") == 2
        outages.mute()
        library.error("queue full")
        assert caplog.text.count("queue full") == 2
    finally:
        outages.close()
    library.error("as before")
    assert caplog.records[-1].name == "opentelemetry.sdk"


@requirement("hub/telemetry:off")
@pytest.mark.one_loop
def test_nothing_is_imported_when_nothing_is_configured(tmp_path):
    program = """
import asyncio, sys
from exec_server.hub.registry_service import HubOptions, serve_hub

async def main():
    async with serve_hub(HubOptions(state=sys.argv[1])) as hub:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(hub.url.rpartition(":")[2]))
        writer.write(b"GET /healthz HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
        assert b"200 OK" in await reader.read()
        writer.close()

asyncio.run(main())
print([name for name in sys.modules if name.split(".")[0] in ("opentelemetry", "requests")])
"""
    command = [sys.executable, "-c", program, str(tmp_path / "state")]
    assert subprocess.check_output(command, timeout=30) == b"[]\n"


@requirement("hub/telemetry:configured")
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (False, False)),
        ({"ENDPOINT": " "}, (False, False)),
        ({"ENDPOINT": "http://c:4318"}, (True, True)),
        ({"TRACES_ENDPOINT": "https://c/x"}, (True, False)),
        ({"METRICS_ENDPOINT": "http://c", "PROTOCOL": "http/protobuf"}, (False, True)),
        ({"ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "True"}, (False, False)),
        ({"ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, (False, True)),
        ({"ENDPOINT": "http://c", "OTEL_METRICS_EXPORTER": "none"}, (True, False)),
        ({"ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "otlp"}, (True, True)),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, (False, False)),
    ],
)
def test_the_standard_variables_say_what_is_sent(variables, expected):
    assert wanted_signals(named(variables)) == ExportedSignals(*expected)


@requirement("hub/telemetry:configured")
@pytest.mark.parametrize(
    ("variables", "match"),
    [
        ({"ENDPOINT": "collector:4318"}, "OTLP_ENDPOINT begins with"),
        ({"TRACES_ENDPOINT": "user:secret@c"}, "^OTEL_EXPORTER_OTLP_TRACES_ENDPOINT begins with"),
        ({"ENDPOINT": "http://c", "PROTOCOL": "grpc"}, "OTLP_PROTOCOL has to be"),
        ({"ENDPOINT": "http://c", "METRICS_PROTOCOL": "grpc"}, "METRICS_PROTOCOL has to be"),
        ({"ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "zipkin"}, "TRACES_EXPORTER has to be"),
    ],
)
def test_what_we_cannot_send_is_refused(variables, match):
    with pytest.raises(ConfigurationError, match=match) as refused:
        wanted_signals(named(variables))
    assert "secret" not in str(refused.value)


def named(variables):
    return {
        name if name.startswith("OTEL_") else f"OTEL_EXPORTER_OTLP_{name}": value
        for name, value in variables.items()
    }


@requirement("hub/telemetry:configured")
async def test_the_names_of_the_service_can_be_chosen(tmp_path, monkeypatch):
    async with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{collector.url}/v1/metrics")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=node-1")
        async with registry(tmp_path) as visitor:
            assert (await visitor.ask("GET", "/healthz")).status == 200
    # Metrics are sent at the end; otherwise this would take a minute.
    assert collector.value(f"{OURS}requests", operation="healthz", status="2xx") == 1
    resource = collector.resources[-1]
    assert (resource["service.name"], resource["service.instance.id"]) == ("ours", "node-1")
    assert not collector.spans


@requirement("hub/telemetry:configured")
async def test_a_variable_that_the_library_refuses_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "-5")
    before = set(threading.enumerate())
    with pytest.raises(ConfigurationError, match="OpenTelemetry"):
        async with registry(tmp_path):
            pass
    assert not [each for each in set(threading.enumerate()) - before if "Otel" in each.name]
    assert logging.getLogger("opentelemetry").propagate


@requirement("hub/telemetry:extra")
async def test_without_the_packages_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.delitem(sys.modules, "exec_server.hub.observe.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigurationError, match=r"exec-server\[telemetry\]"):
        async with registry(tmp_path):
            pass


@requirement("hub/logs:trace")
async def test_a_line_of_the_log_names_the_span_it_belongs_to(tmp_path, monkeypatch):
    async def fails(**options):
        raise RuntimeError("the disk is full")

    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonFormatter())
    monkeypatch.setattr(logging.getLogger("exec_server"), "handlers", [handler])
    async with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        async with registry(tmp_path) as visitor:
            _, secret = await visitor.token("observe")
            monkeypatch.setattr(visitor.hub.store, "events", fails)
            await visitor.ask("GET", "/api/events", secret)
    (failed,) = (each for each in map(json.loads, lines.getvalue().splitlines()))
    span = collector.span("events")
    assert (failed["trace_id"], failed["span_id"]) == (span.trace_id.hex(), span.span_id.hex())
    assert "RuntimeError: the disk is full" in failed["traceback"]
