"""Unix sockets: WebSockets and plain lines on a path that only its owner can use."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from typing import Any

import pytest

from exec_server.errors import ConfigurationError
from exec_server.limits import Limits
from exec_server.server.authentication import CapabilityToken
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.raw import CLOSE, RawSocket, http, request_head
from tests.support.wire import PATIENCE, Wire, start_params


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "socket")


@pytest.fixture
async def server(no_leaks, path):
    async with serve(f"unix://{path}") as running:
        yield running


@requirement("unix:websocket")
async def test_a_websocket_works_as_on_tcp(server, path):
    assert server.url == f"unix://{path}"
    async with Wire(server.url) as wire:
        await wire.initialize()
        finished = await wire.run("p", ["seq", "1", "100000"])
        assert finished.stdout.endswith(b"\n100000\n")
        await wire.send("not JSON")
        answer = await wire.receive()
        assert answer["id"] == -1
        assert "exec-server websocket unix: " in answer["error"]["message"]


@requirement("unix:http")
async def test_the_http_answers_are_the_same(server):
    assert (await http(server.url, request_head("GET", "/readyz", {}))).status == 200
    assert (await http(server.url, request_head("GET", "/", {}))).status == 400
    assert (await http(server.url, request_head("GET", "/", {"Origin": "x"}))).status == 403


@requirement("unix:close")
async def test_a_close_frame_is_answered(server):
    async with RawSocket(server.url) as sock:
        await sock.upgrade()
        await sock.send_frame(CLOSE, b"\x03\xe8")
        assert (await sock.receive_frame()).opcode == CLOSE
        assert await sock.at_end() == b""


@requirement("unix:lines")
async def test_a_peer_may_speak_plain_lines(server):
    async with RawSocket(server.url) as sock:
        messages = [
            {"id": 1, "method": "initialize", "params": {"clientName": "x"}},
            {"method": "initialized"},
            {"id": 2, "method": "process/start", "params": start_params("p", ["echo", "hi"])},
        ]
        await sock.send(b"".join(json.dumps(message).encode() + b"\r\n" for message in messages))
        await sock.send(b"\n not JSON\n")
        seen: list[dict[str, Any]] = []
        async with asyncio.timeout(PATIENCE):
            while not seen or seen[-1].get("method") != "process/closed":
                seen.append(json.loads(await sock.reader.readline()))
        answers = [message for message in seen if "id" in message]
        assert [answer["id"] for answer in answers] == [1, 2, -1]
        prefix = "failed to parse JSON-RPC message from exec-server unix socket: "
        assert answers[2]["error"]["message"].startswith(prefix)


@requirement("unix:lines")
async def test_plain_lines_have_a_session_that_can_be_resumed(server):
    async with RawSocket(server.url) as sock:
        await sock.send(b'{"id":1,"method":"initialize","params":{"clientName":"x"}}\n')
        session_id = json.loads(await sock.reader.readline())["result"]["sessionId"]
        sock.writer.write_eof()
        assert await sock.at_end() == b""
    async with Wire(server.url) as wire:
        result = await wire.initialize(resumeSessionId=session_id)
        assert result["sessionId"] == session_id


@pytest.mark.parametrize("data", [b'{"id":1,"method":"\xff"}\n', b'{"x":"' + b"y" * 2000 + b'"}\n'])
@requirement("unix:lines")
async def test_lines_that_are_too_long_or_not_utf8_end_the_connection(no_leaks, path, data):
    async with (
        serve(f"unix://{path}", limits=Limits(message_bytes=1000)) as server,
        RawSocket(server.url) as sock,
    ):
        await sock.send(data)
        assert await sock.at_end() == b""


@requirement("unix:lines")
async def test_a_violation_in_plain_lines_is_told_and_ends_the_connection(server):
    async with RawSocket(server.url) as sock:
        await sock.send(b'{"method":"no/such"}\n{"id":2,"method":"x"}\n')
        rest = (await sock.at_end()).splitlines()
        assert [json.loads(line)["id"] for line in rest] == [-1]


@requirement("unix:mode")
async def test_only_the_owner_can_connect(server, path):
    mode = os.stat(path).st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


@requirement("unix:removed")
async def test_the_socket_is_removed_at_the_end(no_leaks, path):
    async with serve(f"unix://{path}"):
        assert os.path.exists(path)
    assert not os.path.exists(path)


@requirement("unix:stale")
async def test_a_socket_that_nobody_serves_is_replaced(no_leaks, path):
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    async with serve(f"unix://{path}") as server, Wire(server.url) as wire:
        await wire.initialize()


@requirement("unix:in-use")
async def test_a_socket_that_is_served_is_left_alone(server, path):
    with pytest.raises(ConfigurationError, match=r"Address in use \(os error 98\)"):
        async with serve(f"unix://{path}"):
            pass
    async with Wire(server.url) as wire:
        await wire.initialize()


@requirement("unix:in-use")
async def test_a_socket_whose_program_accepts_nothing_is_in_use(path):
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(path)
        busy.listen(0)
        # Another connection would wait until this one is accepted.
        waiting.connect(path)
        with pytest.raises(ConfigurationError, match=r"Address in use \(os error 98\)"):
            async with serve(f"unix://{path}"):
                pass


@pytest.mark.parametrize("kind", ["file", "folder"])
@requirement("unix:in-use")
async def test_anything_else_at_the_path_is_left_alone(no_leaks, path, kind):
    if kind == "file":
        with open(path, "w", encoding="utf-8") as file:
            file.write("precious")
    else:
        os.mkdir(path)
    with pytest.raises(ConfigurationError, match="Address in use"):
        async with serve(f"unix://{path}"):
            pass
    assert os.path.exists(path)


@requirement("unix:in-use")
async def test_a_path_that_cannot_be_is_refused(no_leaks, tmp_path):
    for path in (tmp_path / "no" / "such", tmp_path / ("x" * 200)):
        with pytest.raises(ConfigurationError):
            async with serve(f"unix://{path}"):
                pass


@requirement("unix:relative")
async def test_a_relative_path_counts_from_the_working_directory(no_leaks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with serve("unix://here") as server:
        assert server.url == f"unix://{tmp_path}/here"
        assert (tmp_path / "here").is_socket()


@requirement("unix:no-auth")
async def test_a_token_is_not_for_unix_sockets(no_leaks, path):
    with pytest.raises(ConfigurationError, match="not unix"):
        async with serve(f"unix://{path}", authenticator=CapabilityToken(bytes(32))):
            pass
    assert not os.path.exists(path)


@requirement("http:head-timeout")
async def test_a_connection_that_says_nothing_is_dropped(no_leaks, path):
    limits = Limits(http_head_timeout=0.05)
    async with serve(f"unix://{path}", limits=limits) as server, RawSocket(server.url) as sock:
        assert await sock.at_end() == b""
