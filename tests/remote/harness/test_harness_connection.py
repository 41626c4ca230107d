"""A harness: from URL to connection, and from one connection to the next."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any, cast

import pytest

import exec_server
from exec_server.errors import ConfigurationError, ConnectError, ConnectionRejected, SessionLost
from exec_server.relay.effects import Message, StreamOpened
from exec_server.relay.frame import StreamId
from exec_server.remote.harness import harness_connection
from exec_server.remote.harness.dialler import parse_url
from exec_server.remote.harness.harness_connection import HarnessConnection
from exec_server.remote.registry_http import Http
from exec_server.transport.frames import dial_frames
from tests.remote.conftest import LIMITS, connect, executor
from tests.remote.executor.test_forward import Raw
from tests.requirements import requirement
from tests.support.rendezvous import TOKEN, Scripted


@requirement("remote/harness:url")
@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("noise+https://registry.example/env", ("https://registry.example", "env")),
        ("noise+https://h:8/a/b/env%201", ("https://h:8/a/b", "env 1")),
        ("noise+http://127.0.0.1:1/e", ("http://127.0.0.1:1", "e")),
        ("noise+http://registry.example/env", None),
        ("noise+https://registry.example", None),
        ("noise+https://registry.example/", None),
        ("noise+ws://registry.example/env", None),
    ],
)
def test_a_url_names_a_registry_and_an_environment(url, found):
    if found is None:
        with pytest.raises(ConfigurationError):
            parse_url(url)
    else:
        assert parse_url(url) == found


@requirement("remote/harness:url")
async def test_a_url_without_a_token_is_refused(online, monkeypatch):
    monkeypatch.delenv("EXEC_SERVER_REGISTRY_TOKEN", raising=False)
    with pytest.raises(ConfigurationError):
        async with exec_server.connect(online.noise_url()):
            pass
    assert not online.operations("connect")


@requirement("remote/harness:variables")
async def test_the_variables_name_an_environment(online, tmp_path):
    env = {
        "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": online.url,
        "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID": "env-1",
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": "harness-token",
        "CODEX_EXEC_SERVER_NOISE_CHATGPT_ACCOUNT_ID": "account-1",
    }
    async with exec_server.environments(tmp_path, env) as manager:
        client = await manager.client()
        assert (await client.run(["echo", "there"])).stdout == b"there\n"
    (asked,) = online.operations("connect")
    assert asked.headers["authorization"] == "Bearer harness-token"
    assert asked.headers["chatgpt-account-id"] == "account-1"


@requirement("remote/harness:resume")
async def test_each_connection_has_a_new_bundle_and_stream_and_the_same_key(online):
    async with connect(online) as client:
        session_id = client.session_id
        for number in (2, 3):
            online.cut("harness")
            await online.until(lambda n=number: len(online.operations("validate")) == n)
            assert (await client.run(["echo", "again"])).stdout == b"again\n"
        assert client.session_id == session_id
    bundles, verdicts = online.operations("connect"), online.operations("validate")
    assert len({asked.body["harness_public_key"]["x25519_public_key"] for asked in bundles}) == 1
    assert len({asked.body["harness_key_authorization"] for asked in verdicts}) == 3
    assert len({asked.headers["x-codex-noise-stream-id"] for asked in verdicts}) == 3


@requirement("remote/harness:final")
@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_final_refusal_during_recovery_ends_it_at_once(online, status):
    async with connect(online) as client:
        online.script("connect", Scripted.error(status, "nope"))
        online.cut("harness")
        async with asyncio.timeout(60):
            await client.wait_closed()
        with pytest.raises(SessionLost, match="scripted"):
            await client.run(["true"])
    assert len(online.operations("connect")) == 2


@requirement("remote/harness:final")
@pytest.mark.parametrize(
    "answer",
    [
        *(Scripted.error(status) for status in (408, 429, 500, 503)),
        Scripted.error(409, "environment_offline"),
        Scripted(None),
    ],
)
async def test_a_registry_that_may_get_better_is_asked_again_during_recovery(online, answer):
    async with connect(online) as client:
        session_id = client.session_id
        online.script("connect", answer, answer)
        online.cut("harness")
        await online.until(lambda: len(online.operations("connect")) == 4)
        assert (await client.run(["echo", "back"])).stdout == b"back\n"
        assert client.session_id == session_id


@requirement("remote/harness:unauthorized")
async def test_a_401_gets_one_new_bundle(online):
    online.refuse("harness", 401)
    async with connect(online):
        assert len(online.operations("connect")) == 2
    online.refuse("harness", 401, 401)
    with pytest.raises(ConnectionRejected):
        async with connect(online):
            pass
    assert len(online.operations("connect")) == 4


@requirement("remote/harness:unauthorized")
@pytest.mark.parametrize("status", [403, 503])
async def test_other_refusals_get_none(online, status):
    online.refuse("harness", status)
    with pytest.raises(ConnectError):
        async with connect(online):
            pass
    assert len(online.operations("connect")) == 1


@requirement("remote/registry:validate")
async def test_a_harness_that_the_registry_does_not_know_is_kept_out(online):
    online._authorizations.clear()
    online._validate = lambda *_: (200, {"valid": False})
    with pytest.raises(ConnectError, match="reset"):
        async with connect(online):
            pass


@requirement("remote/plaintext:explicit")
@pytest.mark.parametrize("is_executor_id", [False, True])
async def test_the_older_relay_works_when_both_ends_ask_for_it(relay, is_executor_id):
    async with executor(relay, relay="plaintext", is_executor_id=is_executor_id):
        kind = "executor" if is_executor_id else "environment"
        assert relay.asked[0].path == f"/cloud/{kind}/env-1/register"
        assert relay.asked[0].body is None
        url = relay._sign("env-1", "harness")
        async with exec_server.connect(url, limits=LIMITS) as client:
            process = await client.start(["cat"], stdin=True)
            relay.cut("harness")
            await process.write(b"over\n")
            assert (await anext(process)).data == b"over\n"
            await process.terminate()
        # A registration of the older relay can be used for one socket.
        relay.cut("environment")
        await relay.until(lambda: len(relay.operations("register")) == 2 and relay.is_online())


@requirement("remote/plaintext:explicit")
async def test_no_end_falls_back_to_the_older_relay(online):
    with pytest.raises(ConnectError):
        async with exec_server.connect(
            online._sign("env-1", "harness"), limits=LIMITS, initialize_timeout=2
        ):
            pass
    assert not online.operations("validate")
    frames = bytes(online.seen)
    assert TOKEN.encode() not in frames


class Answering:
    """The end of a stream whose first frames bring the answer and messages at once."""

    def __init__(self) -> None:
        stream = cast(StreamId, "s")
        self.frames: list[list[StreamOpened | Message]] = [
            [StreamOpened(stream), Message(stream, b"1"), Message(stream, b"2")],
            [Message(stream, b"3")],
        ]

    def join_with(self, join: object) -> None: ...

    def receive(self, _: object) -> list[StreamOpened | Message]:
        return self.frames.pop(0)


@pytest.mark.parametrize("is_lost", ["before", "after", "never"])
@requirement("remote/forward:opaque")
async def test_what_comes_with_the_answer_waits_for_the_receiver(is_lost):
    socket = SimpleNamespace(is_reading=True)
    socket.pause_reading = lambda: setattr(socket, "is_reading", False)
    socket.resume_reading = lambda: setattr(socket, "is_reading", True)
    connection = HarnessConnection(cast(Any, Answering()), lambda: (), limits=LIMITS)
    connection.socket_opened(cast(Any, socket))
    connection.frame_received(b"")
    await connection.wait_open()
    assert not socket.is_reading
    if is_lost == "before":
        connection.socket_lost("read_error")
    receiver = Raw(connection)
    if is_lost != "before":
        assert socket.is_reading
        # What has been read before it is told stays in order.
        connection.frame_received(b"")
    if is_lost == "after":
        connection.socket_lost("read_error")
    expected: list[bytes | None] = [b"1", b"2"]
    if is_lost != "before":
        expected.append(b"3")
    if is_lost != "never":
        expected.append(None)
    assert [await receiver.next() for _ in expected] == expected
    assert receiver.messages.empty()


async def test_a_dial_that_is_cancelled_leaves_no_error_behind(online, monkeypatch):
    """The socket is open, and the handshake has not been answered."""
    complaints = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: complaints.append(context["message"]))
    dial = dial_frames

    async def cancelled(*words, **options):
        await dial(*words, **options)
        raise asyncio.CancelledError

    monkeypatch.setattr(harness_connection, "dial_frames", cancelled)
    with pytest.raises(asyncio.CancelledError):
        async with connect(online):
            pass
    monkeypatch.undo()
    # The lost socket is reported meanwhile.
    async with connect(online) as client:
        await client.run(["true"])
    gc.collect()
    assert complaints == []


@pytest.mark.parametrize("moment", ["answered", "returned"])
@requirement("remote/harness:cancelled")
async def test_a_dial_that_is_cancelled_when_it_succeeds_closes_its_socket(
    online, monkeypatch, moment
):
    def cancelled(original):
        async def call(self):
            await original(self)
            raise asyncio.CancelledError

        return call

    owner, name = {
        "answered": (harness_connection.HarnessConnection, "wait_open"),
        "returned": (Http, "close"),
    }[moment]
    monkeypatch.setattr(owner, name, cancelled(getattr(owner, name)))
    with pytest.raises(asyncio.CancelledError):
        async with connect(online):
            pass
    monkeypatch.undo()
    await online.until(lambda: all(socket.role != "harness" for socket in online.sockets))
