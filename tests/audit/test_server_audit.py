"""The audit log of a server: what it says about requests, processes and connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from exec_server.audit.audit_file import AuditLines, AuditOptions
from exec_server.audit.audit_reader import lines_of
from exec_server.audit.chain import check
from exec_server.audit.event import WorkEvent
from exec_server.errors import RpcError
from exec_server.process.child import Child
from exec_server.protocol import process
from exec_server.protocol.ends import EndedBy, EndReport, Usage
from exec_server.protocol.sandbox import workspace_write
from exec_server.rpc.router import Route
from exec_server.server.audited_requests import end_facts
from exec_server.server.authentication import CapabilityToken
from exec_server.server.local_peers import LocalPeers
from exec_server.server.server import ROUTES
from exec_server.server.server_audit import ServerAudit
from exec_server.server.serving import RunningServer, serve
from exec_server.transport.certificate import Certificate
from tests.requirements import requirement
from tests.support.backends import needs_some_backend
from tests.support.certificates import make_certificates
from tests.support.cli import Cue
from tests.support.leaks import eventually
from tests.support.raw import UPGRADE, http, request_head
from tests.support.servers import start_server
from tests.support.tiny_disk import fill, tiny_disk
from tests.support.wire import Finished, Wire, start_params

SECRET = "s3cret-Value"


def read(path: Path) -> list[dict[str, Any]]:
    done = check(lines_of(str(path)))
    assert not done.faults, done.faults
    return [json.loads(line) for _, line in lines_of(str(path))]


def named(path: Path, name: str) -> list[dict[str, Any]]:
    return [each for each in read(path) if each["name"] == name]


@contextlib.asynccontextmanager
async def audited(
    path: Path, url: str = "ws://127.0.0.1:0", options: AuditOptions | None = None, **rest: Any
) -> AsyncIterator[RunningServer]:
    with contextlib.closing(ServerAudit(AuditLines(str(path), options))) as audit:
        async with serve(url, audit=audit, **rest) as server:
            yield server


@requirement("audit/lines:connections")
async def test_the_first_line_has_the_url_for_clients(tmp_path, no_leaks):
    make_certificates(tmp_path)
    own, path = str(tmp_path / "server.pem"), tmp_path / "audit.log"
    async with audited(path, tls=Certificate(own, own)) as server:
        assert server.url.startswith("wss://")
        (started,) = named(path, "server started")
        assert started["detail"].endswith(f"listens on {server.url}")


@requirement("audit/lines:requests", "audit/lines:no-content")
async def test_a_command_has_a_line_before_its_answer_and_one_at_its_end(tmp_path, no_leaks):
    path = tmp_path / "audit.log"
    async with audited(path) as server, Wire(server.url) as wire:
        await wire.initialize()
        argv = ["sh", "-c", f"cat; echo {SECRET}-out; exit 3", "x", "--token", SECRET]
        await wire.start(
            "p",
            argv,
            env={"PATH": os.environ["PATH"], "KEY": SECRET},
            cwd=str(tmp_path),
            pipeStdin=True,
        )
        (started,) = named(path, "process/start")
        await wire.write("p", SECRET.encode())
        await wire.call("process/closeStdin", {"processId": "p"})
        await wire.events_until_closed("p")
        await wire.call("process/read", {"processId": "p"})
        await wire.call("session/ping")
        assert (await wire.error("process/start", start_params("p", ["true"])))["code"] == -32600
    assert started["argv"] == ["sh", "-c", f"cat; echo {SECRET}-out; exit 3", "x", "--token", "***"]
    assert started["cwd"] == str(tmp_path) and started["env"] == ["KEY", "PATH"]
    assert started["principal"] == f"uid:{os.geteuid()}" and started["process"] == "p"
    assert started["address"].startswith("127.0.0.1:") and len(started["session"]) == 12
    (ended,) = named(path, "process ended")
    assert (ended["process"], ended["exit_code"], ended["session"]) == ("p", 3, started["session"])
    assert ended["bytes_in"] == len(SECRET)
    assert ended["bytes_out"] == len(SECRET) + len(f"{SECRET}-out\n")
    assert ended["principal"] == started["principal"] and ended["process_pid"] > 1
    refused = named(path, "process/start")[1]
    assert (refused["code"], refused["error"]) == (-32600, "process p already exists")
    assert [each["name"] for each in read(path)] == [
        "server started",
        "connection opened",
        "initialize",
        "process/start",
        "process ended",
        "process/start",
        "connection closed",
        "server stopped",
    ]


@requirement("audit/lines:requests", "audit/lines:no-content")
async def test_files_signals_and_http_have_lines_without_content(tmp_path, no_leaks):
    path, file = tmp_path / "audit.log", tmp_path / "file"
    async with audited(path) as server, Wire(server.url) as wire:
        await wire.initialize()
        uri = file.as_uri()
        await wire.call("fs/writeFile", {"path": uri, "dataBase64": "czNjcmV0LVZhbHVl"})
        await wire.call("fs/readFile", {"path": uri})
        await wire.call(
            "fs/copy", {"sourcePath": uri, "destinationPath": f"{uri}2", "recursive": False}
        )
        await wire.error("fs/readFile", {"path": f"{uri}-missing"})
        await wire.call("fs/open", {"handleId": "h", "path": uri})
        await wire.call("fs/readBlock", {"handleId": "h", "offset": 0, "len": 5})
        await wire.call("fs/close", {"handleId": "h"})
        url = f"http://me:{SECRET}@127.0.0.1:1/a?q={SECRET}"
        body = {"method": "POST", "url": url, "requestId": "r", "bodyBase64": "czNjcmV0"}
        await wire.error("http/request", body)
        await wire.start("p", ["sleep", "1000"])
        await wire.call("process/signal", {"processId": "p", "signal": "SIGTERM"})
        await wire.events_until_closed("p")
        await wire.call("process/terminate", {"processId": "p"})
    lines = [each for each in read(path) if "/" in each["name"]]
    assert [each["name"] for each in lines] == [
        "fs/writeFile",
        "fs/readFile",
        "fs/copy",
        "fs/readFile",
        "fs/open",
        "http/request",
        "process/start",
        "process/signal",
        "process/terminate",
    ]
    write, read_, copy, missing, opened, request, _, signalled, _ = lines
    assert (write["paths"], write["bytes_in"]) == ([str(file)], 12)
    assert read_["bytes_out"] >= 12 and copy["paths"] == [str(file), f"{file}2"]
    assert missing["code"] == -32004 and opened["detail"] == "read"
    assert (request["http_method"], request["url"]) == ("POST", "http://127.0.0.1:1/a?q=***")
    assert request["bytes_in"] == 6 and request["code"] < 0
    assert (signalled["process"], signalled["signal"]) == ("p", "SIGTERM")
    assert SECRET not in path.read_text() and "czNj" not in path.read_text()
    (ended,) = named(path, "process ended")
    assert ended["exit_code"] == 143


@requirement("audit/lines:connections", "audit/masking:secrets")
async def test_refusals_and_resumed_sessions_have_lines_and_the_token_has_none(tmp_path, no_leaks):
    path = tmp_path / "audit.log"
    token = CapabilityToken(sha256(SECRET.encode()).digest())
    right = {"Authorization": f"Bearer {SECRET}"}
    async with audited(path, authenticator=token) as server:
        await http(server.url, request_head("GET", "/", {**UPGRADE, "Authorization": "Bearer no"}))
        await http(server.url, request_head("GET", "/", {**UPGRADE, "Origin": "https://evil.test"}))
        await http(server.url, b"nonsense\r\n\r\n")
        async with Wire(server.url, headers=right) as wire:
            session = (await wire.initialize())["sessionId"]
            await wire.start("p", ["echo", SECRET])
        await eventually(lambda: len(named(path, "connection closed")) == 1)
        async with Wire(server.url, headers=right) as wire:
            await wire.initialize(resumeSessionId=session)
            server.core.stop_request()
            await wire.call("server/stop", {})
    refused = [each["detail"].split(":")[0] for each in named(path, "connection refused")]
    assert refused == ["token", "origin", "malformed"]
    assert all(
        each["address"].startswith("127.0.0.1:") for each in named(path, "connection refused")
    )
    new, resumed = named(path, "initialize")
    assert "a new session" in new["detail"] and "resumed" in resumed["detail"]
    assert new["session"] == resumed["session"] and new["principal"] == "token"
    assert named(path, "process/start")[0]["argv"] == ["echo", "***"]
    assert named(path, "server/stop")
    text = path.read_text()
    assert SECRET not in text and session not in text


@requirement("audit/lines:unix")
@pytest.mark.parametrize("carrier", ["websocket", "lines"])
async def test_a_client_of_a_unix_socket_has_its_user_and_process(tmp_path, carrier, no_leaks):
    path = tmp_path / "audit.log"
    async with audited(path, f"unix://{tmp_path}/socket") as server:
        if carrier == "websocket":
            async with Wire(server.url) as wire:
                await wire.initialize()
        else:
            reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/socket")
            writer.write(b'{"id":1,"method":"initialize","params":{"clientName":"x"}}\n')
            await reader.readline()
            writer.close()
            await writer.wait_closed()
    (line,) = named(path, "initialize")
    assert (line["uid"], line["pid"]) == (os.geteuid(), os.getpid())
    assert line["principal"] == f"uid:{os.geteuid()}"


@requirement("audit/lines:ends")
async def test_processes_that_end_with_their_session_have_lines(tmp_path, no_leaks):
    path = tmp_path / "audit.log"
    async with audited(path) as server, Wire(server.url) as wire:
        await wire.initialize()
        await wire.start("p", ["sleep", "1000"])
        await wire.start("q", ["sleep", "1000"])
        await wire.call("process/terminate", {"processId": "q"})
        await wire.events_until_closed("q")
    killed, left = named(path, "process ended")
    assert (killed["process"], killed["exit_code"]) == ("q", 137)
    assert (left["process"], left["detail"]) == ("p", "it was ended with the server")
    assert "exit_code" not in left
    assert read(path)[-1]["name"] == "server stopped"


@requirement("audit/lines:off")
async def test_a_server_without_audit_has_its_handlers_as_they_are(no_leaks):
    async with serve() as server, Wire(server.url) as wire:
        await wire.initialize()
        (session,) = server.core.sessions
        assert server.core.routes is ROUTES and server.core.audit is None
        assert session.processes.on_exit is None


@requirement("audit/full:refuse", "metrics:audit")
async def test_work_is_refused_while_the_disk_is_full_and_nothing_is_done(tmp_path, no_leaks):
    marker = tmp_path / "marker"
    with tiny_disk(1 << 20, tmp_path / "disk") as disk:
        path = disk / "audit.log"
        options = AuditOptions(when_full="refuse")
        async with audited(path, options=options, metrics=True) as server:
            async with Wire(server.url) as wire:
                await wire.initialize()
                filling = fill(disk)
                assert server.audit is not None
                while server.audit.lines.admits():
                    await wire.call("fs/getMetadata", {"path": tmp_path.as_uri()})
                error = await wire.error("process/start", start_params("p", ["touch", str(marker)]))
                assert error["code"] == -32030 and "audit log" in error["message"]
                # What is not audited goes on.
                assert await wire.call("process/list") == {"processes": []}
                found = await http(
                    server.url, request_head("GET", "/metrics", {"Host": "localhost"})
                )
                assert b"exec_server_audit_refused_total 2\n" in found.body
                assert not marker.exists()
                filling.unlink()
                assert (await wire.run("p", ["touch", str(marker)])).exit_code == 0
        assert marker.exists()
        assert named(path, "requests refused")[0]["detail"].startswith("2 ")


@requirement("audit/full:go-on")
async def test_work_goes_on_with_a_full_disk_and_the_lost_lines_are_told(tmp_path, no_leaks):
    with tiny_disk(256 * 1024, tmp_path / "disk") as disk:
        path = disk / "audit.log"
        async with audited(path) as server, Wire(server.url) as wire:
            await wire.initialize()
            filling = fill(disk)
            assert server.audit is not None
            while not server.audit.lines.lost_total:
                await wire.call("fs/getMetadata", {"path": tmp_path.as_uri()})
            assert (await wire.run("p", ["true"])).exit_code == 0
            lost = server.audit.lines.lost_total
            filling.unlink()
            await wire.call("fs/getMetadata", {"path": tmp_path.as_uri()})
        assert named(path, "events lost")[0]["detail"] == str(lost)


@requirement("audit/fsync")
async def test_no_answer_leaves_before_its_line_is_on_the_disk(tmp_path, monkeypatch, no_leaks):
    path = tmp_path / "audit.log"
    held, synced = asyncio.Event(), []
    loop = asyncio.get_running_loop()
    may_sync = os.pipe()

    def slow_sync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_size)
        loop.call_soon_threadsafe(held.set)
        os.read(may_sync[0], 1)

    async with audited(path, options=AuditOptions(fsync="always")) as server:
        async with Wire(server.url) as wire:
            await wire.initialize(concurrentRequests=8)
            monkeypatch.setattr("os.fdatasync", slow_sync)
            asked = [
                await wire.request("process/start", start_params(f"p{n}", ["echo", "x"]))
                for n in range(3)
            ]
            await asyncio.wait_for(held.wait(), 60)
            await eventually(lambda: len(named(path, "process ended")) == 3)
            # Another connection, which has no lines under way, is answered.
            assert not wire.unread
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await wire.socket.recv()
            monkeypatch.undo()
            os.write(may_sync[1], b"xxx")
            for number, request in enumerate(asked):
                assert "result" in await wire.answer(request)
                events = await wire.events_until_closed(f"p{number}")
                assert [each["method"] for each in events] == [
                    "process/output",
                    "process/exited",
                    "process/closed",
                ]
    for end in may_sync:
        os.close(end)
    # The three requests have shared their syncs.
    assert 1 <= len(synced) <= 2


@requirement("audit/chain:crash")
@pytest.mark.skipif(sys.platform != "linux", reason="a keeper ends the processes")
async def test_the_chain_is_whole_after_the_server_was_killed(tmp_path):
    path = tmp_path / "audit.log"
    with start_server("--audit", str(path), "--audit-fsync", "never") as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
            await wire.start("p", ["sleep", "1000"])
            last = read(path)[-1]
            server.signal(signal.SIGKILL)
            assert await asyncio.to_thread(server.wait) == -signal.SIGKILL
    with start_server("--audit", str(path)) as server:
        pass
    lines = read(path)
    assert last in lines and last["name"] == "process/start"
    assert [each["name"] for each in lines[-2:]] == ["server started", "server stopped"]
    assert lines[-1]["n"] == len(lines)


@pytest.mark.one_loop
@requirement("audit/lines:ends")
@pytest.mark.skipif(sys.platform != "linux", reason="durable jobs need Linux")
async def test_a_durable_process_that_ends_without_a_server_has_a_line_of_its_end(tmp_path):
    path, cue = tmp_path / "audit.log", Cue(tmp_path / "cue")
    words = ("--audit", str(path), "--state", str(tmp_path / "state"))
    with start_server(*words) as server:
        async with Wire(server.url) as wire:
            session = (await wire.initialize())["sessionId"]
            script = f"{cue.wait}; exit 5"
            pid = (await wire.start("p", ["sh", "-c", script], durable=True, details=True))["pid"]
        server.signal(signal.SIGKILL)
        await asyncio.to_thread(server.wait)
    await cue.give()
    await eventually(lambda: not Path(f"/proc/{pid}").exists())
    for _ in range(2):
        with start_server(*words) as server:
            async with Wire(server.url) as wire:
                await wire.initialize(resumeSessionId=session)
                read_ = await wire.call("process/read", {"processId": "p", "waitMs": 10_000})
                assert read_["exitCode"] == 5
    # Only one of the two servers tells it.
    (ended,) = named(path, "process ended")
    assert (ended["process"], ended["exit_code"]) == ("p", 5)
    assert ended["principal"] == named(path, "process/start")[0]["principal"]


@pytest.mark.one_loop
@needs_some_backend
@requirement("audit/rotation", "audit/lines:sandboxed")
async def test_a_sandboxed_command_neither_reads_the_log_nor_ends_when_it_is_rotated(tmp_path):
    folder, work = tmp_path / "own", tmp_path / "work"
    folder.mkdir(mode=0o700)
    work.mkdir()
    path = folder / "audit.log"
    with start_server("--audit", str(path), "--audit-size", "64K") as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
            confined = {"sandbox": workspace_write([str(work)]).wire, "cwd": work.as_uri()}
            script = f"echo ready; read x; cat {path} {path}.1; echo $x"
            await wire.start("p", ["sh", "-c", script], pipeStdin=True, **confined)
            await wire.output_until("p", b"ready")
            while not Path(f"{path}.1").exists():
                await wire.error("fs/getMetadata", {"path": f"{work.as_uri()}/{'x' * 200}"})
            await wire.write("p", b"done\n")
            events = Finished(await wire.events_until_closed("p"))
    assert events.stdout == b"done\n" and events.exit_code == 0
    assert b"server started" not in events.stdout + events.stderr
    assert named(path, "process/start")[0]["sandbox"] == f"workspace-write={work}, no network"


@requirement("audit/lines:ends")
def test_the_cause_and_usage_of_an_end_are_written_if_they_are_known():
    by = EndedBy(kind="client", principal="bob")
    child = SimpleNamespace(
        process_id="p",
        pid=7,
        exit_code=137,
        input_bytes=1,
        log=SimpleNamespace(total_bytes=2),
        lost=None,
        failure=None,
        end=EndReport(cause="limit", signal="SIGKILL", by=by, limit="wall"),
        usage=Usage(wall=1.5, cpu=0.5, source="rusage"),
    )
    facts = end_facts(cast(Child, child))
    assert (facts["cause"], facts["signal"], facts["detail"]) == ("limit", "SIGKILL", "limit wall")
    assert facts["ended_by"] == "client bob" and facts["usage"] == {"wall": 1.5, "cpu": 0.5}
    assert WorkEvent(at=1.0, name="process ended", **facts).exit_code == 137
    child.end = child.usage = None
    assert "cause" not in end_facts(cast(Child, child))


@requirement("audit/lines:requests")
def test_a_lack_of_rights_has_a_line_for_every_method(tmp_path):
    def refuse(context: Any, params: Any) -> Any:
        raise RpcError("alice may not do this", code=-32020)

    def fail(context: Any, params: Any) -> Any:
        raise RpcError("unknown process", code=-32600)

    path = tmp_path / "audit.log"
    audit = ServerAudit(AuditLines(str(path)))
    context = SimpleNamespace(
        connection=SimpleNamespace(peer_name="192.0.2.1:5"),
        session=None,
        who=SimpleNamespace(name="alice"),
    )
    for handler in (refuse, fail):
        table = {method.name: Route(method, handler) for method in (process.READ, process.SIGNAL)}
        routes = audit.routes(table)
        assert audit.routes(table) is routes
        for params in (process.ReadParams("p"), process.SignalParams("p", "TERM")):
            name = "process/read" if isinstance(params, process.ReadParams) else "process/signal"
            with pytest.raises(RpcError):
                routes[name].handler(context, params)
    audit.close()
    assert [(each["name"], each["code"], each["process"]) for each in read(path)] == [
        ("process/read", -32020, "p"),
        ("process/signal", -32020, "p"),
        ("process/signal", -32600, "p"),
    ]


@requirement("audit/lines:connections", "logs:refusals")
async def test_lines_of_a_user_who_may_not_connect_are_refused_with_a_line(
    tmp_path, monkeypatch, caplog, no_leaks
):
    path = tmp_path / "audit.log"
    monkeypatch.setattr(LocalPeers, "refusal", lambda _self, _transport: "another user")
    async with audited(path, f"unix://{tmp_path}/socket", metrics=True) as server:
        reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/socket")
        writer.write(b'{"id":1,"method":"initialize","params":{"clientName":"x"}}\n')
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        assert server.metrics is not None and 'reason="peer"} 1\n' in server.metrics.text()
    (refused,) = named(path, "connection refused")
    assert (refused["address"], refused["detail"]) == ("a Unix socket", "peer: another user")
    assert "refused a Unix socket: another user" in caplog.text
