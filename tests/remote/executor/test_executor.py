"""An executor registers, connects, and connects again."""

from __future__ import annotations

import asyncio
import re

import msgspec
import pytest

import exec_server
from exec_server.errors import ConnectError, RegistryError, RpcError
from exec_server.relay.frame import RelayFrame, Reset, Resume, StreamId, decode, encode
from exec_server.remote.credentials.credentials import BearerToken
from exec_server.remote.executor import executor as executor_module
from tests.remote.conftest import LIMITS, connect, executor
from tests.requirements import requirement
from tests.support.rendezvous import Scripted


@requirement("remote/socket:headers")
async def test_an_upgrade_says_no_more_than_it_must(relay, monkeypatch):
    monkeypatch.setenv("OPENAI_CLUSTER", "cluster-1")
    monkeypatch.setenv("DD_SERVICE", "")
    async with executor(relay):
        relay.cut("environment")
        await relay.until(lambda: relay.count("environment") == 2)
        async with connect(relay):
            pass
    (_, first), (_, second), (_, harness) = relay.upgrades
    plain = {"host", "upgrade", "connection", "sec-websocket-version", "sec-websocket-key"}
    assert set(first) == plain | {"x-request-id", "x-cluster-name"}
    assert set(harness) == plain | {"x-cluster-name"}
    assert re.fullmatch("req_[0-9a-f]{32}", first["x-request-id"])
    assert first["x-request-id"] != second["x-request-id"]
    assert first["sec-websocket-version"] == "13"


@requirement("remote/executor:reconnect")
async def test_a_lost_socket_is_dialled_again_without_registering(online):
    for number in (2, 3, 4):
        online.cut("environment")
        await online.until(lambda n=number: online.count("environment") == n)
        await online.until(online.is_online)
    assert len(online.operations("register")) == 1


@requirement("remote/executor:reconnect")
@pytest.mark.parametrize("status", [500, 503, 302, 200])
async def test_other_refusals_are_waited_out(online, status):
    online.refuse("environment", status, status)
    online.cut("environment")
    await online.until(lambda: online.count("environment") == 4 and online.is_online())
    assert len(online.operations("register")) == 1


@requirement("remote/executor:reconnect")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 410, 429])
async def test_a_client_error_registers_again_with_the_same_key(online, status):
    online.refuse("environment", status)
    online.cut("environment")
    await online.until(lambda: online.count("environment") == 3 and online.is_online())
    first, second = online.operations("register")
    assert first.body == second.body
    async with connect(online) as client:
        assert (await client.run(["true"])).returncode == 0


@requirement("remote/executor:reconnect")
async def test_an_expired_url_is_replaced(online):
    online.expire_urls()
    online.cut("environment")
    await online.until(lambda: len(online.operations("register")) == 2 and online.is_online())


@requirement("remote/executor:reconnect", "remote/registry:errors")
async def test_a_later_refusal_of_the_registry_ends_it(relay):
    with pytest.raises(RegistryError, match="authentication error"):
        async with executor(relay) as task:
            relay.script("register", Scripted.error(401))
            relay.refuse("environment", 403)
            relay.cut("environment")
            await task


@requirement("remote/registry:errors")
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_registry_that_fails_later_ends_one_with_nothing_to_lose(relay, status):
    with pytest.raises(RegistryError, match=f"failed \\({status}"):
        async with executor(relay) as task:
            relay.script("register", Scripted.error(status))
            relay.refuse("environment", 403)
            relay.cut("environment")
            await task


@requirement("remote/executor:registers-again")
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_registry_that_is_away_does_not_end_one_with_sessions(online, client, status):
    online.script("register", Scripted.error(status), Scripted.error(status))
    online.refuse("environment", 403)
    online.cut("environment")
    await online.until(lambda: len(online.operations("register")) == 4 and online.is_online())


@pytest.fixture
def complaints(monkeypatch):
    """Collects the log messages of an executor about its rendezvous."""
    found: asyncio.Queue[str] = asyncio.Queue()
    monkeypatch.setattr(executor_module.logger, "warning", lambda text, *_: found.put_nowait(text))
    return found


@requirement("remote/executor:reconnect")
@pytest.mark.parametrize("url", ["", "http://127.0.0.1:1", "ws://127.0.0.1:1/", "nonsense"])
async def test_a_rendezvous_that_cannot_be_reached_is_waited_for(relay, url, complaints):
    answer = {
        "environment_id": "env-1",
        "security_profile": "noise_hybrid_ik_v1",
        "url": url,
        "executor_registration_id": "",
    }
    relay.script("register", Scripted(200, answer))
    config = exec_server.RemoteExecutorConfig(
        registry_url=relay.url,
        environment_id="env-1",
        credentials=BearerToken("t"),
        limits=LIMITS,
    )
    task = asyncio.ensure_future(exec_server.run_remote_executor(config))
    try:
        async with asyncio.timeout(60):
            for _ in range(3):
                await complaints.get()
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait({task})
    assert len(relay.operations("register")) == 1


@requirement("remote/socket:sizes")
async def test_what_is_no_frame_is_passed_over(online, client):
    for nonsense in (b"", b"\xff" * 50, "text", b"\x08\x02\x12\x01a\x3a\x00", bytes(262144)):
        online.send_to_executor(nonsense)
    assert (await client.run(["echo", "on"])).stdout == b"on\n"
    assert online.count("environment") == 1
    online.send_to_executor(bytes(262145))
    await online.until(lambda: online.count("environment") == 2)


@requirement("remote/executor:methods")
async def test_every_kind_of_method_works_through_a_stream(client, tmp_path):
    assert (await client.environment_info()).shell
    big = bytes(range(256)) * 8000
    await client.fs.write_bytes(str(tmp_path / "big"), big)
    assert (tmp_path / "big").read_bytes() == big
    assert await client.fs.read_bytes(str(tmp_path / "big")) == big
    terminal = await client.start(["sh", "-c", "stty size; read x; echo got $x"], tty=True)
    await terminal.write(b"keys\n")
    shown = b"".join([chunk.data async for chunk in terminal])
    assert b"24 80" in shown
    assert b"got keys" in shown
    with pytest.raises(RpcError):
        await client.fs.read_file(str(tmp_path / "missing"))


@requirement("remote/executor:malformed")
@pytest.mark.parametrize("words", [b"[]", b'"x"', b"{", b"\xef\xbb\xbf{}", b"{}"])
async def test_what_is_no_json_rpc_ends_the_stream_but_not_the_session(online, words):
    lines: list[str] = []
    async with connect(online, on_state=lines.append) as client:
        process = await client.start(["cat"], stdin=True)
        session_id = client.session_id
        # The client's own checks are bypassed.
        client._session.connection._peer._connection.send(words)
        await process.write(b"still here\n")
        assert (await anext(process)).data == b"still here\n"
        assert client.session_id == session_id
        assert lines[:3] == ["connected", "recovering", "connected"]
        await process.terminate()


@requirement("remote/executor:streams")
async def test_streams_are_many_but_not_without_end(relay):
    limits = msgspec.structs.replace(LIMITS, relay_streams=3)
    async with executor(relay, limits=limits), connect(relay) as one, connect(relay) as two:
        async with connect(relay) as three:
            for client in (one, two, three):
                assert (await client.run(["true"])).returncode == 0
            with pytest.raises(ConnectError):
                async with connect(relay):
                    pass
        await relay.until(lambda: len(relay.sockets) == 3)
        async with connect(relay) as another:
            assert (await another.run(["true"])).returncode == 0


@requirement("remote/executor:streams")
async def test_a_stream_of_another_id_is_reset(online):
    frames: list[RelayFrame] = []

    def note(_direction: str, data: bytes) -> list[bytes]:
        frames.append(decode(data))
        return [data]

    online.tamper = note
    online.send_to_executor(encode(RelayFrame(StreamId("stranger"), Resume())))
    # These are data of an unknown stream, without a handshake.
    online.send_to_executor(
        bytes.fromhex("0801120873747261 6e676572 2a05180122 0178".replace(" ", ""))
    )
    await online.until(lambda: frames)
    assert frames[0] == RelayFrame(StreamId("stranger"), Reset("noise_relay_protocol_error"))
