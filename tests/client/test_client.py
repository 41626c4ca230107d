"""The handshake, calls with deadlines, and what happens when the connection is lost."""

from __future__ import annotations

import asyncio

import pytest

from exec_server import errors
from exec_server.client.client import ExecServerClient
from exec_server.client.connect_options import (
    ExecServerClientConnectOptions,
    RemoteExecServerConnectArgs,
)
from exec_server.client_urls import connect
from exec_server.errors import (
    CallTimeout,
    ConnectError,
    ConnectionClosed,
    ExecServerError,
    InvalidRequest,
    ProtocolError,
    RpcError,
    SessionAttached,
)
from exec_server.limits import Limits
from exec_server.transport.dial import dial
from tests.requirements import requirement
from tests.support.fake_server import Talk, fake_server
from tests.support.leaks import eventually
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.usefixtures("no_leaks")

INFO = {"shell": {"name": "bash", "path": "/bin/bash"}, "cwd": "file:///srv"}


# The handshake.


@requirement("client/handshake", "client/call:ids")
async def test_the_handshake_says_who_we_are():
    heard = []

    async def script(talk: Talk) -> None:
        request = await talk.expect("initialize")
        await talk.answer(request, {"sessionId": "the-session"})
        heard.extend([request, await talk.expect("initialized")])
        status = await talk.expect("environment/status")
        heard.append(status)
        await talk.answer(status, {"status": "ready"})
        await talk.gone()

    async with fake_server(script) as url, connect(url, client_name="me") as client:
        assert await client.environment_status() == "ready"
        assert client.session_id == "the-session" and client.concurrency == 1
        assert client.is_connected
    assert [message.get("id") for message in heard] == [1, None, 2]
    extensions = {"concurrentRequests": 64, "errorDetails": True, "sharing": True, "packed": True}
    assert heard[0]["params"] == {"clientName": "me", **extensions}
    assert heard[1] == {"method": "initialized", "params": {}}


@requirement("client/handshake")
async def test_a_real_server_grants_a_session(client):
    assert client.session_id and client.concurrency == 64
    assert await client.environment_status() == "ready"


@requirement("client/handshake:deadline")
async def test_a_server_that_does_not_shake_hands_is_given_up():
    async def script(talk: Talk) -> None:
        await talk.expect("initialize")
        await talk.gone()

    async with fake_server(script) as url:
        with pytest.raises(ConnectError, match=r"did not answer `initialize` within 0\.05 s"):
            async with connect(url, initialize_timeout=0.05):
                pass


@requirement("client/handshake:refused")
async def test_a_refusal_is_raised_as_it_is_said():
    async def script(talk: Talk) -> None:
        await talk.refuse(await talk.expect("initialize"), -32600, "unknown session id x")
        await talk.gone()

    async with fake_server(script) as url:
        with pytest.raises(InvalidRequest, match="unknown session id x"):
            async with connect(url, resume_session_id="x"):
                pass


@requirement("client/handshake:refused")
async def test_a_server_that_hangs_up_is_a_connect_error():
    async def script(talk: Talk) -> None:
        await talk.expect("initialize")

    async with fake_server(script) as url:
        with pytest.raises(ConnectError, match="ended the connection during the handshake"):
            async with connect(url):
                pass


@requirement("client/handshake:refused")
@pytest.mark.parametrize("answer", ["hello there", '{"id": [], "result": 1}', b"\x00"])
async def test_a_server_of_another_kind_is_told_as_such(answer):
    async def script(talk: Talk) -> None:
        await talk.expect("initialize")
        await talk.socket.send(answer)
        await talk.gone()

    async with fake_server(script) as url:
        with pytest.raises(ConnectError, match="what answers there is not an exec-server: "):
            async with connect(url):
                pass


@requirement("client/handshake:refused")
async def test_a_program_that_prints_other_text_is_told_as_such():
    with pytest.raises(ConnectError, match="must print nothing but messages on its standard outp"):
        async with connect("stdio:sh -c 'echo Welcome to build-1; cat >/dev/null'"):
            pass


@requirement("client/handshake:refused")
async def test_a_program_that_ends_at_once_is_told_as_such():
    with pytest.raises(ConnectError, match="that leads to the server has ended without an answer"):
        async with connect("stdio:true"):
            pass


async def test_an_answer_that_cannot_be_read_is_told_to_the_caller():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.expect("environment/status")
        await talk.socket.send("no message")
        await talk.gone()

    async with fake_server(script) as url, connect(url, reconnect=False) as client:
        with pytest.raises(ConnectionClosed, match="the other side broke the protocol: "):
            await client.environment_status()


@requirement("client/handshake:resume")
async def test_a_session_is_resumed(server):
    async with connect(server.url) as first:
        session_id = first.session_id
        process = await first.start(["sleep", "60"], process_id="p")
    async with connect(server.url, resume_session_id=session_id) as second:
        assert second.session_id == session_id
        assert [info.process_id for info in await second.list_processes()] == ["p"]
        assert await second.terminate("p")
    assert process.returncode is None


@requirement("client/handshake:resume")
async def test_a_session_that_is_attached_can_be_tried_again_later(server, client):
    with pytest.raises(SessionAttached) as caught:
        async with connect(server.url, resume_session_id=client.session_id):
            pass
    assert caught.value.retryable


@requirement("client/handshake:other-session")
async def test_another_session_than_asked_for_is_a_protocol_error():
    async def script(talk: Talk) -> None:
        await talk.answer(await talk.expect("initialize"), {"sessionId": "other"})
        await talk.gone()

    async with fake_server(script) as url:
        with pytest.raises(ProtocolError, match="session mine was asked for"):
            async with connect(url, resume_session_id="mine"):
                pass


async def test_a_connection_can_be_brought_along(server):
    connection = await dial(server.url, limits=Limits())
    options = ExecServerClientConnectOptions(concurrent_requests=1)
    async with await ExecServerClient.connect(connection, options) as client:
        assert await client.environment_status() == "ready" and client.concurrency == 1


async def test_connect_args_hide_the_token(server):
    args = RemoteExecServerConnectArgs(websocket_url=server.url, auth_token="secret")
    assert "secret" not in repr(args)
    async with await ExecServerClient.connect_websocket(args) as client:
        assert client.is_connected


# What the server says of its machine.


@requirement("client/info")
async def test_what_the_handshake_tells_is_not_asked_again():
    async def script(talk: Talk) -> None:
        await talk.shake_hands({"sessionId": "s", "environmentInfo": INFO})
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        assert (await client.environment_info()).cwd == "file:///srv"


@requirement("client/info")
async def test_what_the_handshake_does_not_tell_is_asked_once():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.answer(await talk.expect("environment/info"), INFO)
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        assert (await client.environment_info()).shell.name == "bash"
        assert (await client.environment_info()).cwd == "file:///srv"


# Calls.


@requirement("client/concurrency")
async def test_a_long_poll_delays_nothing_else(client):
    process = await client.start(["sleep", "60"])
    polling = asyncio.ensure_future(client.read(process.process_id, wait=60))
    async with asyncio.timeout(PATIENCE):
        assert await client.environment_status() == "ready"
        assert (await client.run(["echo", "hi"])).stdout == b"hi\n"
        assert not polling.done()
        await process.terminate()
        result = await polling
        while not result.closed:
            result = await client.read(process.process_id, after_seq=result.next_seq - 1, wait=60)
    assert result.exit_code == 137


@requirement("client/methods")
async def test_every_method_can_be_called(client):
    process = await client.start(["cat"], tty=True, process_id="p")
    assert await client.write("p", b"word\n", write_id="1") == "accepted"
    assert await client.write("p", b"word\n", write_id="1") == "accepted"
    assert await client.write("nobody", b"") == "unknownProcess"
    assert (await anext(process)).data.startswith(b"word")
    result = await client.read("p", after_seq=0, max_bytes=0)
    assert result.chunks[0].chunk.data.startswith(b"word") and not result.exited
    await client.resize("p", 10, 20)
    await client.signal("p", "SIGCONT")
    assert [(info.process_id, info.state) for info in await client.list_processes()] == [
        ("p", "running")
    ]
    assert await client.close_stdin("p") == "accepted"
    assert await process.wait() == 0
    assert not await client.terminate("p")
    with pytest.raises(InvalidRequest, match="unknown process id nobody"):
        await client.read("nobody")


@requirement("client/call:deadline")
async def test_a_call_that_is_not_answered_in_time_fails():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        late = await talk.expect("process/list")
        again = await talk.expect("process/list")
        await talk.answer(late, {"processes": "nonsense"})
        await talk.answer(again, {"processes": []})
        await talk.gone()

    async with fake_server(script) as url, connect(url, call_timeout=0.05) as client:
        with pytest.raises(CallTimeout, match=r"process/list was not answered within 0\.05 s"):
            await client.list_processes()
        assert await client.list_processes() == []


@requirement("client/call:loss")
async def test_a_lost_connection_fails_what_is_pending_and_what_comes_after():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.expect("process/list")
        talk.socket.transport.abort()

    async with fake_server(script) as url, connect(url, reconnect=False) as client:
        with pytest.raises(ConnectionClosed) as caught:
            await client.list_processes()
        assert caught.value.retryable
        assert not client.is_connected
        with pytest.raises(ConnectionClosed):
            await client.environment_status()
        async with asyncio.timeout(PATIENCE):
            await client.wait_closed()


@requirement("client/call:reply-before-end")
async def test_a_reply_just_before_the_end_counts():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.answer(await talk.expect("process/list"), {"processes": []})

    async with fake_server(script) as url, connect(url) as client:
        assert await client.list_processes() == []


async def test_a_closed_client_makes_no_calls(server):
    async with connect(server.url) as client:
        client.close()
        client.close()
        with pytest.raises(ConnectionClosed, match="the client is closed"):
            await client.environment_status()


@requirement("client/call:unknown-ids", "client/call:notifications", "client/call:server-requests")
async def test_what_nobody_asked_for_is_ignored_or_answered():
    answers = []

    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        request = await talk.expect("environment/status")
        await talk.send({"id": 99, "result": {}})
        await talk.send({"id": "x", "error": {"code": -1, "message": "?"}})
        await talk.send({"method": "no/such", "params": {"a": 1}})
        await talk.event("process/closed", "nobody", seq=1)
        await talk.send({"id": 7, "method": "no/such/request", "params": {}})
        answers.append(await talk.receive())
        await talk.send({"jsonrpc": "2.0", "id": request["id"], "result": {"status": "ready"}})
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        assert await client.environment_status() == "ready"
    assert answers[0]["id"] == 7 and answers[0]["error"]["code"] == -32601


@requirement("client/call:notifications")
@pytest.mark.parametrize(
    "message",
    [
        '{"method":"process/output","params":{"processId":"p"}}',
        '{"method":"process/exited","params":{"processId":"p","seq":1,"exitCode":"0"}}',
        '{"method":"process/output","params":{"processId":"p","seq":1,"stream":"x","chunk":""}}',
        "not json",
        "[]",
    ],
)
async def test_what_does_not_decode_ends_the_connection(message):
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.expect("environment/status")
        await talk.socket.send(message)
        await talk.gone()

    async with fake_server(script) as url, connect(url, reconnect=False) as client:
        with pytest.raises(ConnectionClosed):
            await client.environment_status()


@requirement("client/call:wrong-shape")
async def test_a_reply_of_the_wrong_shape_fails_the_call_alone():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.answer(await talk.expect("process/list"), {"processes": {}})
        await talk.answer(await talk.expect("process/list"), {"processes": []})
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        with pytest.raises(ProtocolError, match="wrong shape"):
            await client.list_processes()
        assert await client.list_processes() == []


async def test_a_client_is_closed_while_calls_are_pending(client):
    process = await client.start(["sleep", "60"])
    polling = asyncio.ensure_future(client.read(process.process_id, wait=60))
    await eventually(lambda: client._session.connection._peer._calls)
    client.close()
    with pytest.raises(ConnectionClosed):
        await polling
    with pytest.raises(ConnectionClosed, match="the client is closed"):
        await process.wait()


async def test_a_server_that_stops_ends_its_clients(server):
    async with connect(server.url, limits=Limits(recovery_window=0.05)) as client:
        process = await client.start(["sleep", "60"])
        waiting = asyncio.ensure_future(process.wait())
        await server.core.stop()
        with pytest.raises(ConnectionClosed):
            await waiting
        await eventually(lambda: not client.is_connected)


# Errors.


def all_errors(kind: type[ExecServerError] = ExecServerError) -> set[type[ExecServerError]]:
    # Those for calls about files are made when they are first needed, and have no names there.
    is_drawn = getattr(errors, kind.__name__, None) is kind
    ours = {kind} if is_drawn else set()
    return ours.union(*(all_errors(sub) for sub in kind.__subclasses__()))


@requirement("client/errors:retryable")
def test_every_error_says_whether_it_is_retryable():
    retryable = {kind.__name__ for kind in all_errors() if kind.retryable}
    of_connections = {"SessionAttached", "ConnectionClosed", "ConnectError"}
    assert retryable == of_connections | {"AuditUnavailable", "QuotaReached"}


@requirement("client/errors:retryable")
def test_the_tree_in_the_docstring_is_the_tree():
    assert errors.__doc__ is not None
    drawn = {}
    path: list[str] = []
    for line in errors.__doc__.split("::")[1].splitlines():
        name = line.strip(" │├└─").split(" ")[0]
        if name == "Two":
            # The text below the drawing begins here.
            break
        if not name:
            continue
        depth = (line.index(name) - 4) // 4
        path[depth:] = [name]
        drawn[name] = path[depth - 1] if depth else "Exception"
    real = {kind.__name__: kind.__bases__[0].__name__ for kind in all_errors()}
    assert drawn == real


@requirement("client/errors:retryable")
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (-32600, "InvalidRequest"),
        (-32601, "MethodNotFound"),
        (-32602, "InvalidParams"),
        (-32603, "InternalError"),
        (-32004, "NotFound"),
        (-32010, "SessionAttached"),
        (-1, "RpcError"),
    ],
)
def test_codes_of_the_wire_become_errors(code, kind):
    error = RpcError.from_wire(code, "text")
    assert (type(error).__name__, error.code, str(error)) == (kind, code, "text")
