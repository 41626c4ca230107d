"""`/metrics`, `/healthz` and `/readyz` of a server."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from hashlib import sha256

import pytest

from exec_server.errors import InternalError
from exec_server.server.authentication import CapabilityToken
from exec_server.server.serving import RunningServer, serve
from tests.requirements import requirement
from tests.support.leaks import eventually
from tests.support.otlp import collecting
from tests.support.principals import MadePrincipals, bearer
from tests.support.raw import UPGRADE, HttpAnswer, http, request_head
from tests.support.servers import start_server
from tests.support.wire import Wire

SAMPLE = re.compile(r"(?P<name>[a-z_]+)(\{(?P<labels>[^}]*)\})? (?P<value>[0-9.e+-]+)")
RIGHT = {"Authorization": "Bearer right"}


async def get(server: RunningServer, path: str, method: str = "GET", **headers: str) -> HttpAnswer:
    return await http(server.url, request_head(method, path, {"Host": "localhost", **headers}))


def samples(text: str) -> dict[str, float]:
    """Every sample of a scrape, by its name with labels; the form of all lines is checked."""
    found, declared = {}, set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            declared.add(line.split()[2])
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            family = re.sub(r"_(bucket|sum|count)$", "", match["name"])
            assert match["name"] in declared or family in declared, line
            found[line.rpartition(" ")[0]] = float(match["value"])
    return found


async def scrape(server: RunningServer, **headers: str) -> dict[str, float]:
    answer = await get(server, "/metrics", **headers)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.body.endswith(b"\n")
    return {
        name.removeprefix("exec_server_"): n for name, n in samples(answer.body.decode()).items()
    }


@requirement("metrics:counts")
async def test_the_metrics_follow_what_happens(no_leaks):
    async with serve(metrics=True) as server:
        first = await scrape(server)
        assert (first["connections"], first["accepted_connections_total"]) == (0, 0)
        async with Wire(server.url) as wire:
            await wire.initialize()
            await wire.start("p", ["sleep", "1000"])
            await wire.run("q", ["head", "-c", "100000", "/dev/zero"])
            await wire.error("process/start", {"processId": "p"})
            busy = await scrape(server)
            assert busy["connections"] == busy["accepted_connections_total"] == 1
            assert busy['sessions{state="attached"}'] == 1
            assert busy['sessions{state="detached"}'] == 0
            assert busy["processes"] == 1 and busy["known_processes"] == 2
            assert busy["keeper_up"] == 1 and busy["keeper_lost"] == 0
            assert busy["sent_bytes_total"] > 100_000 > busy["received_bytes_total"] > 100
            assert busy["received_messages_total"] == 5
            assert busy['request_seconds_count{method="process/start"}'] == 2
            assert busy['request_seconds_bucket{method="process/start",le="+Inf"}'] == 2
            assert busy["resident_bytes"] > 1 << 20 and busy["open_descriptors"] > 5
        await http(server.url, request_head("GET", "/", {"Origin": "x"}))
        later = await scrape(server)
        assert later["connections"] == 0 and later['sessions{state="detached"}'] == 1
        assert later['refusals_total{reason="origin"}'] == 1


@requirement("metrics:counts", "metrics:audit")
@pytest.mark.skipif(sys.platform != "linux", reason="durable jobs need Linux")
async def test_durable_processes_count_too(no_leaks, tmp_path):
    async with serve(metrics=True, state_directory=tmp_path / "state") as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
            await wire.start("p", ["cat"], durable=True, pipeStdin=True)
            await wire.start("q", ["cat"], pipeStdin=True)
            first = await scrape(server)
            assert first["processes"] == 2 and "audit_last_line" not in first
            await wire.write("p", b"x" * 1000)
            await wire.output_until("p", b"x" * 1000)
            grown = (await scrape(server))["journal_bytes"] - first["journal_bytes"]
            assert 1000 <= grown < 2000
            await wire.call("process/terminate", {"processId": "p"})
            await wire.event("p", "process/closed")
            assert (await scrape(server))["processes"] == 1
            # The keeper ends with its last job, and not later than the test.
            await wire.call("job/prune", {})


@requirement("metrics:counts")
async def test_lines_on_a_unix_socket_count_too(no_leaks, tmp_path):
    async with serve(f"unix://{tmp_path}/socket", metrics=True) as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
        assert (await scrape(server))["received_messages_total"] == 2


@requirement("metrics:keeper")
@pytest.mark.skipif(sys.platform != "linux", reason="the keeper is found by its id")
async def test_the_loss_of_the_keeper_is_seen(no_leaks):
    async with serve(metrics=True) as server, Wire(server.url) as wire:
        await wire.initialize()
        await wire.run("p", ["true"])
        pid = server.core.spawner.keeper_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: server.core.spawner.has_lost_keeper)
        assert (await scrape(server))["keeper_lost"] == 1
        # Asking whether the server is ready starts a new keeper.
        assert (await get(server, "/readyz")).status == 200
        assert (await scrape(server))["keeper_up"] == 1


@requirement("metrics:access")
async def test_metrics_are_off_unless_asked_for_and_need_the_token_of_clients(no_leaks):
    token = CapabilityToken(sha256(b"right").digest())
    async with serve(authenticator=token) as server:
        for path in ("/metrics", "/healthz"):
            assert (await get(server, path, **RIGHT)).status == 404
        assert server.core.routes is type(server.core)(resumable=False).routes
    async with serve(authenticator=token, metrics=True) as server:
        refused = await get(server, "/metrics")
        assert (refused.status, refused.body) == (401, b"missing websocket bearer token")
        assert (await get(server, "/metrics", Authorization="Bearer wrong")).status == 401
        assert (await scrape(server, **RIGHT))['refusals_total{reason="token"}'] == 2
        for path in ("/metrics", "/healthz"):
            for method in ("HEAD", "POST", "PUT", "DELETE"):
                answer = await get(server, path, method, **RIGHT)
                assert (answer.status, answer.headers["allow"]) == (405, "GET")
        assert (await get(server, "/metrics", Origin="https://x", **RIGHT)).status == 403
        # The others need no token.
        assert (await get(server, "/healthz")).body == b"ok\n"
        assert (await get(server, "/readyz")).status == 200


@requirement("metrics:counts")
async def test_refused_scopes_are_errors_of_requests(no_leaks, tmp_path):
    made = MadePrincipals(tmp_path)
    made.add("ci", "files:read")
    async with serve(metrics=True, principals=made.path) as server:
        async with made.wire(server.url, "ci") as wire:
            await wire.initialize()
            await wire.error("process/list", {})
            await wire.error("fs/open", {"path": "file:///x", "handleId": "h", "mode": "replace"})
            found = await scrape(server, **bearer(made.tokens["ci"]))
    assert found["request_errors_total"] == 2
    assert found['request_seconds_count{method="process/list"}'] == 1
    assert found['request_seconds_count{method="fs/open"}'] == 1


@requirement("metrics:host")
async def test_a_web_page_cannot_read_metrics_under_a_name_of_its_own(no_leaks):
    async with serve(metrics=True) as server:
        port = server.url.rpartition(":")[2]
        for host in (
            "127.0.0.1",
            f"127.0.0.1:{port}",
            f"localhost:{port}",
            f"[::1]:{port}",
            "[::1]",
        ):
            assert (await get(server, "/metrics", Host=host)).status == 200, host
        for host in ("rebound.example", f"rebound.example:{port}", "127.0.0.1.example", "[x]:1"):
            refused = await get(server, "/metrics", Host=host)
            assert refused.status == 403 and b"Host header" in refused.body
        assert (await get(server, "/healthz", Host="build-1.lab")).status == 200
    token = CapabilityToken(sha256(b"right").digest())
    async with serve(authenticator=token, metrics=True) as server:
        assert (await get(server, "/metrics", Host="build-1.lab", **RIGHT)).status == 200


@pytest.mark.one_loop
@requirement("metrics:otlp")
async def test_a_collector_of_opentelemetry_gets_the_metrics(tmp_path):
    async with collecting() as collector:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_METRIC_EXPORT_INTERVAL": "100"}
        with start_server("--metrics", env=env) as server:
            async with Wire(server.url) as wire:
                await wire.initialize()
                await collector.until(
                    lambda: (
                        collector.value("exec_server.server.connections_total") == 1
                        or collector.value("exec_server.server.connections") == 1
                    )
                )
            server.process.terminate()
            assert await asyncio.to_thread(server.wait) == 0
        assert {each["service.name"] for each in collector.resources} == {"exec-server"}
        before = collector.requests
        # Without --metrics nothing is exported, whatever the variables say.
        with start_server(env=env) as server:
            async with Wire(server.url) as wire:
                await wire.initialize()
            server.process.terminate()
            assert await asyncio.to_thread(server.wait) == 0
        assert collector.requests == before


@requirement("metrics:ready")
async def test_a_server_that_cannot_start_commands_is_not_ready(no_leaks, monkeypatch):
    async with serve(metrics=True) as server:

        def refuse() -> None:
            raise InternalError("Too many open files (os error 24)")

        monkeypatch.setattr(server.core.spawner, "start", refuse)
        answer = await get(server, "/readyz")
        assert (answer.status, answer.body) == (
            503,
            b"commands cannot be started: Too many open files (os error 24)\n",
        )
        assert (await get(server, "/healthz")).status == 200
        # The one who asked was not refused.
        assert not any(name.startswith("refusals_total") for name in await scrape(server))
        monkeypatch.undo()
        assert (await get(server, "/readyz", **UPGRADE)).status == 200
