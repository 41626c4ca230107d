"""What becomes of calls and handles when the connection is lost."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import pytest

from exec_server.client.client import ExecServerClient
from exec_server.client.process.output_buffer import (
    Closed,
    Exited,
    Failed,
    OutputChunk,
    ResyncRequired,
)
from exec_server.client_urls import connect
from exec_server.errors import (
    CallTimeout,
    ConfigurationError,
    ConnectError,
    ConnectionClosed,
    InvalidRequest,
    ProcessFailed,
    SessionLost,
)
from exec_server.limits import Limits
from exec_server.transport.dial import dial
from tests.requirements import requirement
from tests.support.fake_server import Script, Talk, fake_server
from tests.support.fault_proxy import Fault, FaultProxy, fault_proxy
from tests.support.leaks import eventually
from tests.support.local import server_with
from tests.support.turns import turn
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.usefixtures("no_leaks")

QUICK = Limits(recovery_pause=0.01)
# As with servers that cannot let a process wait.
NO_WINDOW = Limits(recovery_pause=0.01, flow_window=0)
NEWS = {"exited": False, "exitCode": None, "closed": False, "failure": None}


@pytest.fixture
async def proxy(server) -> AsyncIterator[FaultProxy]:
    """Between clients and `server`."""
    async with fault_proxy(server.url) as running:
        yield running


@pytest.fixture
async def client(proxy) -> AsyncIterator[ExecServerClient]:
    """Connected through `proxy`."""
    async with connect(proxy.url, limits=QUICK) as connected:
        yield connected


@contextlib.asynccontextmanager
async def talking(*scripts: Script, **options) -> AsyncIterator[ExecServerClient]:
    """A client whose connections meet one script after the other."""
    turns = iter(scripts)

    async def play(talk: Talk) -> None:
        await next(turns)(talk)

    options = {"limits": QUICK, **options}
    async with fake_server(play) as url, connect(url, **options) as client:
        yield client
    assert not list(turns), "not every script was played"


def is_followed(client: ExecServerClient) -> bool:
    """True once a process of the client is known to run."""
    return any(each.is_started for each in client._session.processes.handles.values())


async def hang_up(talk: Talk) -> None:
    talk.socket.transport.abort()


async def lost(client: ExecServerClient) -> None:
    """Until the client knows that its connection is gone."""
    await eventually(lambda: not client.is_connected)


# Resuming.


@requirement("reconnect/resume", "reconnect/started-only")
async def test_a_session_is_resumed_and_its_processes_go_on():
    heard = []

    async def first(talk: Talk) -> None:
        heard.append(await talk.shake_hands())
        await talk.start()
        await talk.output("p", 1, b"one ")
        await talk.start()
        await talk.event("process/exited", "q", seq=1, exitCode=0)
        await talk.event("process/closed", "q", seq=2)
        await talk.expect("environment/status")
        await hang_up(talk)

    async def second(talk: Talk) -> None:
        request = await talk.expect("initialize")
        heard.append(request["params"])
        assert request["id"] == 1
        # Events of a resumed session may come before the answer.
        await talk.output("p", 3, b"three ")
        await talk.answer(request, {"sessionId": "s"})
        await talk.expect("initialized")
        read = await talk.expect("process/read")
        heard.append(read["params"])
        chunk = {"seq": 2, "stream": "stdout", "chunk": "dHdvIA=="}
        await talk.answer(read, {"chunks": [chunk], "nextSeq": 3, **NEWS})
        await talk.event("process/exited", "p", seq=4, exitCode=7)
        await talk.event("process/closed", "p", seq=5)
        await talk.gone()

    async with talking(first, second) as client:
        process = await client.start(["x"], cwd="/", process_id="p")
        ended = await client.start(["x"], cwd="/", process_id="q")
        assert await ended.stdout.read() == b""
        with pytest.raises(ConnectionClosed):
            await client.environment_status()
        async with asyncio.timeout(PATIENCE):
            assert await process.stdout.read() == b"one two three "
            assert await process.wait() == 7
    assert heard[0].get("resumeSessionId") is None and heard[1]["resumeSessionId"] == "s"
    assert heard[2] == {"processId": "p", "afterSeq": 1, "waitMs": 0}


@requirement("reconnect/resume", "reconnect/states")
async def test_a_real_server_loses_nothing(proxy):
    states: list[str] = []
    async with connect(proxy.url, limits=QUICK, on_state=states.append) as client:
        process = await client.start(["sh", "-c", "echo 1; read x; echo $x; exit 5"], stdin=True)
        assert (await anext(process)).data == b"1\n"
        session_id = client.session_id
        proxy.cut()
        await process.write(b"2\n")
        assert await process.stdout.read() == b"2\n"
        assert await process.wait() == 5
        assert client.session_id == session_id and client.state == "connected"
    assert states == ["connected", "recovering", "connected", "closed"]
    assert proxy.connections == 2


@requirement("reconnect/resume")
async def test_a_process_that_ends_meanwhile_is_heard_of(proxy, client):
    process = await client.start(["sh", "-c", "echo 1; read x; echo 2; exit 3"], stdin=True)
    assert (await anext(process)).data == b"1\n"
    proxy.is_down = True
    proxy.cut()
    await lost(client)
    # Another client of the same session would do this.
    async with connect(proxy.target_url, resume_session_id=client.session_id) as other:
        await other.write(process.process_id, b"\n")
        result = await other.read(process.process_id, after_seq=2, wait=PATIENCE)
        while not result.closed:
            result = await other.read(
                process.process_id, after_seq=result.next_seq - 1, wait=PATIENCE
            )
    proxy.is_down = False
    async with asyncio.timeout(PATIENCE):
        assert await process.stdout.read() == b"2\n"
        assert await process.wait() == 3


@requirement("reconnect/once")
async def test_one_reconnect_serves_everybody(proxy, client):
    process = await client.start(["sleep", "60"])
    proxy.is_down = True
    proxy.cut()
    await lost(client)
    calls = [asyncio.ensure_future(client.environment_status()) for _ in range(20)]
    runs = [asyncio.ensure_future(client.run(["echo", "hi"])) for _ in range(5)]
    await turn()
    assert not any(task.done() for task in (*calls, *runs))
    proxy.is_down = False
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*calls) == ["ready"] * 20
        assert {done.stdout for done in await asyncio.gather(*runs)} == {b"hi\n"}
    assert proxy.connections == 2
    assert await process.terminate()


@requirement("reconnect/attached")
async def test_a_session_that_is_still_attached_is_asked_for_again(proxy, client):
    # As with servers that have no take-over.
    client._session.link._can_take_over = False
    process = await client.start(["cat"], stdin=True)
    proxy.keeps_server_side = True
    proxy.cut(only_client=True)
    # Refused at least once.
    await proxy.wait(lambda proxy: proxy.connections >= 3)
    assert client.state == "recovering"
    proxy.keeps_server_side = False
    proxy.cut()
    async with asyncio.timeout(PATIENCE):
        await process.write(b"x")
        assert (await anext(process)).data == b"x"
    assert await process.terminate()


@requirement("reconnect/half-close")
@pytest.mark.parametrize("direction", ["up", "down"])
async def test_half_an_end_is_an_end(proxy, client, direction):
    process = await client.start(["cat"], stdin=True)
    proxy.half_close(direction)
    async with asyncio.timeout(PATIENCE):
        await process.write(b"x")
        assert (await anext(process)).data == b"x"
        await proxy.wait(lambda proxy: proxy.connections == 2)
    assert await process.terminate()


@requirement("reconnect/keepalive")
async def test_a_connection_that_has_gone_silent_is_replaced():
    # Our own clock must run out well before the server's, which still holds the session.
    limits = Limits(ping_interval=0.05, pong_timeout=0.1, recovery_pause=0.01)
    async with (
        server_with(ping_interval=0.05, pong_timeout=0.2) as server,
        fault_proxy(server.url) as proxy,
        connect(proxy.url, limits=limits) as client,
    ):
        process = await client.start(["cat"], stdin=True)
        proxy.stall()
        async with asyncio.timeout(PATIENCE):
            await process.write(b"x")
            assert (await anext(process)).data == b"x"
        assert proxy.connections >= 2
        assert await process.terminate()


@requirement("reconnect/keepalive")
async def test_a_silence_that_is_only_idle_is_kept():
    limits = Limits(ping_interval=0.02, pong_timeout=0.1)
    async with (
        server_with() as server,
        fault_proxy(server.url) as proxy,
        connect(proxy.url, limits=limits) as client,
    ):
        process = await client.start(["sh", "-c", "read x; echo $x"], stdin=True)
        # Pings and their answers, for longer than a dead peer is believed in.
        begun = proxy.pieces
        await eventually(lambda: proxy.pieces > begun + 20)
        await process.write(b"late\n")
        assert await process.stdout.read() == b"late\n"
        assert proxy.connections == 1


# Giving up.


@requirement("reconnect/final")
@pytest.mark.parametrize("how", ["unknown", "another"])
async def test_a_session_that_is_gone_is_final(how):
    async def first(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.start()
        await talk.expect("process/read")
        await hang_up(talk)

    async def second(talk: Talk) -> None:
        request = await talk.expect("initialize")
        if how == "unknown":
            await talk.refuse(request, -32600, "unknown session id s")
        else:
            await talk.answer(request, {"sessionId": "other"})
        await talk.gone()

    states: list[str] = []
    async with talking(first, second, on_state=states.append) as client:
        process = await client.start(["x"], cwd="/", process_id="p")
        reading = asyncio.ensure_future(client.read("p"))
        with pytest.raises(SessionLost) as waited:
            await process.wait()
        with pytest.raises(SessionLost) as read:
            await reading
        with pytest.raises(SessionLost) as called:
            await client.environment_status()
        message = str(called.value)
        assert str(waited.value) == message
        assert message.startswith(
            "exec-server transport disconnected; failed to resume exec-server session: "
        )
        assert ("(-32600): unknown session id s" in message) == (how == "unknown")
        # It was sent once, and the later call never.
        assert read.value.may_have_run and not called.value.may_have_run
        assert not called.value.retryable and client.state == "failed"
        async with asyncio.timeout(PATIENCE):
            await client.wait_closed()
    assert states == ["connected", "recovering", "failed"]


@requirement("reconnect/window")
async def test_a_server_that_does_not_come_back_is_given_up(proxy):
    limits = Limits(recovery_window=0.05, recovery_pause=0.01)
    async with connect(proxy.url, limits=limits) as client:
        process = await client.start(["sleep", "60"])
        proxy.is_down = True
        proxy.cut()
        with pytest.raises(SessionLost, match=r"recovery timed out after 0\.05s$"):
            await process.wait()


@requirement("reconnect/window")
async def test_an_attempt_does_not_outlive_the_window(proxy):
    limits = Limits(recovery_window=0.05, recovery_pause=0.01)
    async with connect(proxy.url, limits=limits) as client:
        process = await client.start(["sleep", "60"])
        proxy.delay = 3600
        proxy.cut()
        with pytest.raises(SessionLost, match="recovery timed out"):
            await process.wait()


@requirement("reconnect/no-strategy")
@pytest.mark.parametrize("how", ["told not to", "no session", "foreign connection"])
async def test_without_a_way_back_a_loss_is_final(how):
    async def script(talk: Talk) -> None:
        await talk.shake_hands({} if how == "no session" else None)
        await talk.start()
        await talk.expect("process/list")
        await hang_up(talk)

    async with fake_server(script) as url, contextlib.AsyncExitStack() as stack:
        if how == "foreign connection":
            client = await ExecServerClient.connect(await dial(url, limits=QUICK))
            await stack.enter_async_context(client)
        else:
            reconnect = how != "told not to"
            client = await stack.enter_async_context(connect(url, reconnect=reconnect))
        process = await client.start(["x"], cwd="/")
        with pytest.raises(ConnectionClosed) as caught:
            await client.list_processes()
        assert caught.value.may_have_run
        with pytest.raises(SessionLost, match=r"^exec-server transport disconnected$"):
            await process.wait()
        assert client.state == "failed"


@requirement("reconnect/no-strategy")
async def test_a_program_that_ends_is_final():
    url = f"stdio:{sys.executable} -m exec_server --listen stdio"
    async with connect(url) as client:
        process = await client.start(["sleep", "60"])
        assert client._session.connection is not None
        client._session.connection._peer._connection.abort()
        with pytest.raises(SessionLost):
            await process.wait()


@requirement("reconnect/deadline")
async def test_a_call_that_waits_has_a_deadline(proxy):
    async with connect(proxy.url, limits=QUICK, call_timeout=0.05) as client:
        proxy.is_down = True
        proxy.cut()
        await lost(client)
        with pytest.raises(CallTimeout) as caught:
            await client.list_processes()
        assert not caught.value.may_have_run
        with pytest.raises(CallTimeout) as caught:
            await client.start(["true"], process_id="p")
        assert not caught.value.may_have_run
        assert not client._session.processes.orphans and not client._session.processes.handles
        proxy.is_down = False


@requirement("reconnect/closing")
async def test_closing_ends_a_recovery(proxy):
    async with connect(proxy.url, limits=QUICK) as client:
        process = await client.start(["sleep", "60"])
        waiting = asyncio.ensure_future(process.wait())
        proxy.is_down = True
        proxy.cut()
        await lost(client)
        calling = asyncio.ensure_future(client.environment_status())
        await turn()
        client.close()
        client.close()
        for task in (waiting, calling):
            with pytest.raises(ConnectionClosed, match="the client is closed"):
                await task


# What is repeated.


@requirement("reconnect/not-repeated")
@pytest.mark.parametrize("method", ["signal", "terminate", "list_processes", "write", "fs"])
async def test_what_may_have_run_is_not_repeated(method):
    sent = []

    async def first(talk: Talk) -> None:
        await talk.shake_hands()
        sent.append((await talk.receive())["method"])
        await hang_up(talk)

    async def second(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.answer(await talk.expect("environment/status"), {"status": "ready"})
        await talk.gone()

    async with talking(first, second) as client:
        call = {
            "signal": lambda: client.signal("p", 2),
            "terminate": lambda: client.terminate("p"),
            "list_processes": client.list_processes,
            "write": lambda: client.write("p", b"no id"),
            "fs": lambda: client.fs.read_file("/x"),
        }[method]
        with pytest.raises(ConnectionClosed, match="may have been carried out") as caught:
            await call()
        assert caught.value.may_have_run and not isinstance(caught.value, SessionLost)
        assert await client.environment_status() == "ready"
    assert len(sent) == 1


@requirement("reconnect/reads")
async def test_a_read_is_repeated(proxy, client):
    await client.start(["sh", "-c", "read x; echo $x"], stdin=True, process_id="p")
    reading = asyncio.ensure_future(client.read("p", wait=PATIENCE))
    await client.environment_status()
    proxy.cut()
    await proxy.wait(lambda proxy: proxy.connections == 2)
    assert await client.write("p", b"news\n", write_id="1") == "accepted"
    assert (await reading).chunks[0].chunk.data == b"news\n"


@requirement("reconnect/writes")
async def test_a_write_is_repeated_as_it_was():
    writes = []

    async def first(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.start()
        writes.append((await talk.expect("process/write"))["params"])
        await hang_up(talk)

    async def second(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.answer(await talk.expect("process/read"), {"chunks": [], "nextSeq": 1, **NEWS})
        writes.append((await talk.expect("process/write"))["params"])
        await hang_up(talk)

    async def third(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.answer(await talk.expect("process/read"), {"chunks": [], "nextSeq": 1, **NEWS})
        for _ in range(2):
            request = await talk.expect("process/write")
            writes.append(request["params"])
            await talk.answer(request, {"status": "accepted"})
        await talk.gone()

    async with talking(first, second, third) as client:
        process = await client.start(["x"], cwd="/", stdin=True, process_id="p")
        await process.write(b"abc")
        await process.write(b"def")
    assert [write["writeId"] for write in writes] == ["1", "1", "1", "2"]
    assert writes[0] == writes[1] == writes[2]


@requirement("reconnect/orphans", "reconnect/not-repeated")
async def test_a_lost_start_is_ended_until_that_is_answered():
    async def first(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.expect("process/start")
        await hang_up(talk)

    async def second(talk: Talk) -> None:
        await talk.shake_hands()
        params = (await talk.expect("process/terminate"))["params"]
        assert params == {"processId": "p", "tree": True}
        await hang_up(talk)

    async def third(talk: Talk) -> None:
        await talk.shake_hands()
        request = await talk.expect("process/terminate")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                raise AssertionError(await talk.receive())
        await talk.answer(request, {"running": True})
        await talk.answer(await talk.expect("environment/status"), {"status": "ready"})
        await hang_up(talk)

    async def fourth(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.answer(await talk.expect("environment/status"), {"status": "ready"})
        await talk.gone()

    async with talking(first, second, third, fourth) as client:
        with pytest.raises(ConnectionClosed) as caught:
            await client.start(["x"], cwd="/", process_id="p")
        assert caught.value.may_have_run
        # Not even by hand, or the next terminate would hit the wrong one.
        with pytest.raises(InvalidRequest, match="already exists"):
            await client.start(["x"], cwd="/", process_id="p")
        await eventually(lambda: not client._session.processes.orphans)
        assert await client.environment_status() == "ready"
        await lost(client)
        assert await client.environment_status() == "ready"


@requirement("reconnect/unrecoverable")
@pytest.mark.parametrize("how", ["refused", "gap", "failure"])
async def test_a_process_that_cannot_be_recovered_fails_alone(how):
    terminated = []

    async def first(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.start()
        await talk.output("p", 1, b"early")
        await talk.expect("environment/status")
        await hang_up(talk)

    async def second(talk: Talk) -> None:
        await talk.shake_hands()
        request = await talk.expect("process/read")
        if how == "refused":
            await talk.refuse(request, -32600, "unknown process id p")
        elif how == "gap":
            await talk.answer(request, {"chunks": [], "nextSeq": 3, **NEWS})
        else:
            news = {**NEWS, "failure": "no longer there"}
            await talk.answer(request, {"chunks": [], "nextSeq": 2, **news})
        request = await talk.expect("process/terminate")
        terminated.append(request["params"]["processId"])
        await talk.answer(request, {"running": True})
        await talk.answer(await talk.expect("environment/status"), {"status": "ready"})
        await talk.gone()

    async with talking(first, second) as client:
        process = await client.start(["x"], cwd="/", process_id="p")
        with pytest.raises(ConnectionClosed):
            await client.environment_status()
        with pytest.raises(ProcessFailed, match=r"^failed to recover process p: "):
            await process.wait()
        assert await anext(process.stdout) == b"early"
        assert await client.environment_status() == "ready"
    assert terminated == ["p"]


async def test_a_recovery_that_is_cut_is_begun_again():
    async def first(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.start()
        await talk.expect("environment/status")
        await hang_up(talk)

    async def second(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.expect("process/read")
        await talk.output("p", 2, b"b")
        await hang_up(talk)

    async def third(talk: Talk) -> None:
        await talk.shake_hands()
        chunk = {"seq": 1, "stream": "stdout", "chunk": "YQ=="}
        request = await talk.expect("process/read")
        assert request["params"]["afterSeq"] == 0
        await talk.answer(request, {"chunks": [chunk], "nextSeq": 2, **NEWS})
        await talk.gone()

    async with talking(first, second, third) as client:
        process = await client.start(["x"], cwd="/", process_id="p")
        with pytest.raises(ConnectionClosed):
            await client.environment_status()
        async with asyncio.timeout(PATIENCE):
            assert [(await anext(process)).data for _ in range(2)] == [b"a", b"b"]


# Policies and events.


@requirement("reconnect/policy")
async def test_a_handle_may_fail_at_once(proxy, client):
    process = await client.start(["sleep", "60"], on_disconnect="fail")
    other = await client.start(["sleep", "60"])
    proxy.cut()
    with pytest.raises(ConnectionClosed, match="transport disconnected"):
        await process.wait()
    assert await client.terminate(process.process_id)
    assert await other.terminate() and await other.wait() == 137


@requirement("reconnect/events", "reconnect/resync")
async def test_events_tell_everything_in_order(proxy, client):
    process = await client.start(["sh", "-c", "echo 1; read x; echo 2 >&2; exit 4"], stdin=True)
    events = process.events()
    assert await anext(events) == OutputChunk(1, "stdout", b"1\n")
    proxy.cut()
    assert await anext(events) == ResyncRequired(1)
    await process.write(b"\n")
    rest = [event async for event in events]
    assert sorted(rest[:-1], key=lambda event: event.seq) == rest[:-1]
    assert {type(event) for event in rest} == {OutputChunk, Exited, Closed}
    assert rest[-1] == Closed(4) and process.returncode == 4


@requirement("reconnect/events", "reconnect/failed-read", "reconnect/wake")
async def test_a_failure_is_an_event(proxy):
    async with connect(proxy.url, reconnect=False) as client:
        process = await client.start(["sh", "-c", "echo 1; sleep 60"])
        events = process.events()
        assert (await anext(events)) == OutputChunk(1, "stdout", b"1\n")
        assert process.wake_seq == 1
        waking = asyncio.ensure_future(process.wait_wake(1))
        proxy.cut()
        assert await waking == 2
        rest = [event async for event in events]
        assert isinstance(rest[-1], Failed)
        result = await process.read(after_seq=1)
        assert result.failure and result.exited and result.closed
        assert (result.chunks, result.exit_code, result.next_seq) == ([], None, 3)


@requirement("reconnect/wake")
async def test_the_wake_counter_is_what_was_heard_of(client):
    process = await client.start(["sh", "-c", "echo 1; read x; echo 2"], stdin=True)
    assert await process.wait_wake(0) == 1
    assert (await process.read(after_seq=0)).chunks[0].chunk.data == b"1\n"
    await process.write(b"\n")
    seq = 1
    async with asyncio.timeout(PATIENCE):
        while seq < 4:
            seq = await process.wait_wake(seq)
    assert await process.wait_wake(99) == 4


# Starting for certain.


@requirement("reconnect/ensure")
@pytest.mark.parametrize("direction", ["up", "down"])
async def test_an_ensured_start_runs_once(server, tmp_path, direction):
    ran = tmp_path / "ran"
    async with fault_proxy(server.url) as proxy, connect(proxy.url, limits=QUICK) as client:
        await client.environment_status()
        proxy.cut_next(direction)
        process = await client.start(
            ["sh", "-c", f"echo x >> {ran}; echo hello; exit 3"], ensure=True
        )
        async with asyncio.timeout(PATIENCE):
            assert await process.stdout.read() == b"hello\n"
            assert await process.wait() == 3
        assert proxy.connections == 2 and not client._session.processes.orphans
    assert ran.read_text() == "x\n"


@requirement("reconnect/run-once")
@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("kind", ["reset", "half-open"])
async def test_a_command_runs_once_wherever_its_connection_is_cut(
    server, tmp_path, direction, kind
):
    for after in range(900, 5000, 170 if direction == "down" else 60):
        ran = tmp_path / f"{after}"
        schedule = [Fault(after, direction, kind)]
        async with asyncio.timeout(PATIENCE), fault_proxy(server.url, schedule) as proxy:
            try:
                async with connect(proxy.url, limits=QUICK) as client:
                    done = await client.run(["sh", "-c", f"echo x >> {ran}; echo hi; exit 3"])
            except ConnectError:
                # There was never a connection.
                assert not ran.exists()
                continue
        assert (done.returncode, done.stdout) == (3, b"hi\n")
        assert ran.read_text() == "x\n"


@requirement("reconnect/ensure")
async def test_an_ensured_start_that_nobody_can_tell_of_may_have_run(proxy):
    limits = Limits(recovery_window=0.05, recovery_pause=0.01)
    async with connect(proxy.url, limits=limits) as client:
        await client.environment_status()
        proxy.is_down = True
        proxy.cut_next("down")
        with pytest.raises(SessionLost) as caught:
            await client.start(["sleep", "60"], ensure=True)
        assert caught.value.may_have_run


@requirement("reconnect/ensure")
async def test_an_ensured_start_outlives_further_losses(proxy, client, tmp_path):
    await client.environment_status()
    proxy.cut_next("down")
    argv = ["sh", "-c", f"echo x >> {tmp_path}/ran; echo hello"]
    starting = asyncio.ensure_future(client.start(argv, ensure=True))
    for n in range(2, 5):
        await proxy.wait(lambda proxy, n=n: proxy.connections == n)
        proxy.cut()
    async with asyncio.timeout(PATIENCE):
        assert await (await starting).stdout.read() == b"hello\n"
    assert (tmp_path / "ran").read_text() == "x\n"


@requirement("reconnect/ensure")
async def test_a_program_that_does_not_exist_is_told_with_ensure(client):
    with pytest.raises(Exception, match="No such file"):
        await client.start(["/no/such"], ensure=True)


@requirement("reconnect/ensure", "reconnect/not-repeated")
@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_plain_start_runs_at_most_once(server, tmp_path, direction):
    ran = tmp_path / "ran"
    async with fault_proxy(server.url) as proxy, connect(proxy.url, limits=QUICK) as client:
        await client.environment_status()
        proxy.cut_next(direction)
        with pytest.raises(ConnectionClosed) as caught:
            await client.start(["sh", "-c", f"echo x >> {ran}; sleep 60"], process_id="p")
        assert caught.value.may_have_run
        await eventually(lambda: not client._session.processes.orphans)
        listed = {info.process_id: info for info in await client.list_processes()}
        if direction == "up":
            assert not listed and not ran.exists()
        else:
            result = await client.read("p", wait=PATIENCE)
            assert result.exited and result.exit_code == 137


# Attaching, and from another program.


@requirement("reconnect/attach")
async def test_a_process_is_attached_to(server):
    script = "echo 1; echo 2 >&2; read x; echo got $x; exit 6"
    async with connect(server.url) as first:
        process = await first.start(["sh", "-c", script], stdin=True, process_id="p")
        await process.write(b"")
        assert {(await anext(process)).data for _ in range(2)} == {b"1\n", b"2\n"}
        with pytest.raises(InvalidRequest, match="already exists"):
            await first.attach("p")
        session_id = first.session_id
    async with connect(server.url, resume_session_id=session_id) as second:
        process = await second.attach("p")
        assert {(await anext(process)).data for _ in range(2)} == {b"1\n", b"2\n"}
        # Ids that the first client has used are not used again.
        await process.write(b"it\n")
        assert await process.stdout.read() == b"got it\n"
        assert await process.wait() == 6
        again = await second.attach("p", after_seq=99)
        async with asyncio.timeout(PATIENCE):
            assert await again.stdout.read() == b"" and await again.wait() == 6
        with pytest.raises(InvalidRequest, match="unknown process id nobody"):
            await second.attach("nobody")


@requirement("reconnect/attach", "reconnect/truncated")
async def test_what_the_server_no_longer_has_is_left_out():
    async with server_with(retained_bytes=200_000) as server:
        async with connect(server.url) as first:
            process = await first.start(["sh", "-c", "seq 100000; read x"], stdin=True)
            while not (data := (await anext(process)).data).endswith(b"\n100000\n"):
                pass
            session_id, process_id = first.session_id, process.process_id
        async with connect(server.url, resume_session_id=session_id) as second:
            with pytest.raises(ProcessFailed, match="no longer retained"):
                await second.attach(process_id, on_gap="fail")
            process = await second.attach(process_id)
            assert process.is_truncated
            data = (await anext(process)).data
            await process.close_stdin()
            data += await process.stdout.read()
            whole = "".join(f"{n}\n" for n in range(1, 100_001)).encode()
            assert data == whole[process.dropped_bytes :] and len(data) <= 200_000


@requirement("reconnect/token")
async def test_another_program_goes_on_at_the_exact_byte(server):
    script = "echo o1; echo e1 >&2; read x; echo o2; echo e2 >&2; read x; exit 2"
    async with connect(server.url) as first:
        process = await first.start(["sh", "-c", script], stdin=True, process_id="p")
        tty = await first.start(["cat"], tty=True, process_id="t")
        out = [await anext(process.stdout)]
        # Before the next word on the same stream, which could otherwise share its chunk.
        while await process.wait_wake(0) < 2:
            await first.environment_status()
        await process.write(b"\n")
        while await process.wait_wake(0) < 4:
            await first.environment_status()
        # One stream is further than the other, and some was heard of but not taken.
        out.append(await anext(process.stdout))
        token = first.session_token()
        assert str(first.session_id) not in token and tty.is_terminal
    async with connect(server.url, session_token=token) as second:
        assert second.session_id == first.session_id
        process = await second.attach("p")
        assert (await second.attach("t")).is_terminal
        await process.write(b"\n")
        async with asyncio.timeout(PATIENCE):
            err = await process.stderr.read()
            out.append(await process.stdout.read())
        assert (b"".join(out), err) == (b"o1\no2\n", b"e1\ne2\n")
        assert await process.wait() == 2


@requirement("reconnect/token")
async def test_a_session_is_taken_over_as_soon_as_it_is_free(server):
    async with connect(server.url) as first:
        token = first.session_token()
        taking = asyncio.ensure_future(_session_of(server.url, token))
        await first.environment_status()
    assert await taking == first.session_id


async def _session_of(url: str, token: str) -> str | None:
    async with connect(url, session_token=token) as client:
        return client.session_id


@requirement("reconnect/token")
@pytest.mark.parametrize("token", ["", "no token", "e30", "WyJleGVjLXNlcnZlci0xIl0"])
async def test_what_is_no_token_is_refused(token):
    with pytest.raises(ConfigurationError, match="no session token"):
        async with connect("ws://127.0.0.1:1", session_token=token):
            pass


async def test_a_token_and_an_id_are_one_too_many():
    with pytest.raises(ConfigurationError):
        async with connect("ws://127.0.0.1:1", session_token="x", resume_session_id="y"):
            pass


# Commands.


@requirement("reconnect/truncated")
async def test_a_command_says_when_output_was_cut(tmp_path):
    go = tmp_path / "go"
    async with (
        server_with(retained_bytes=200_000) as server,
        fault_proxy(server.url) as proxy,
        connect(proxy.url, limits=NO_WINDOW) as client,
    ):
        script = f"echo first; mkfifo {go}; read x < {go}; seq 100000; echo done > {go}.done"
        running = asyncio.ensure_future(client.run(["sh", "-c", script]))
        await eventually(go.exists)
        await eventually(lambda: is_followed(client))
        proxy.is_down = True
        proxy.cut()
        await lost(client)
        go.write_text("\n")
        await eventually((tmp_path / "go.done").exists)
        proxy.is_down = False
        async with asyncio.timeout(PATIENCE):
            done = await running
    whole = b"first\n" + "".join(f"{n}\n" for n in range(1, 100_001)).encode()
    assert done.truncated and done.returncode == 0
    assert whole.endswith(done.stdout.removeprefix(b"first\n"))
    assert done.dropped_bytes == len(whole) - len(done.stdout)


@requirement("reconnect/truncated")
async def test_a_command_whose_output_is_whole_says_so(proxy, client):
    running = asyncio.ensure_future(client.run(["sh", "-c", "echo 1; cat"], input=b"x" * 100_000))
    await eventually(lambda: is_followed(client))
    proxy.cut()
    done = await running
    assert done.stdout == b"1\n" + b"x" * 100_000
    assert not done.truncated and not done.dropped_bytes


async def test_a_command_that_takes_too_long_is_killed_after_the_recovery(
    proxy, client, monkeypatch
):
    monkeypatch.setattr("exec_server.client.process.run_to_end._LAST_WORDS", 0.01)
    running = asyncio.ensure_future(client.run(["sleep", "60"], timeout=0.05))
    await eventually(lambda: is_followed(client))
    proxy.is_down = True
    proxy.cut()
    with pytest.raises(Exception, match="took longer"):
        await running
    proxy.is_down = False
    async with asyncio.timeout(PATIENCE):
        (info,) = await client.list_processes()
        assert (await client.read(info.process_id, wait=PATIENCE)).exit_code == 137


@requirement("reconnect/resume")
@pytest.mark.parametrize("kind", ["reset", "close", "half-close"])
async def test_a_cut_inside_a_frame(server, kind):
    faults = [Fault(3000, "down", kind), Fault(2500, "down", kind), Fault(700, "up", kind)]
    async with fault_proxy(server.url, faults) as proxy, connect(proxy.url, limits=QUICK) as client:
        process = await client.start(["sh", "-c", "seq 3000; read x; seq 3000"], stdin=True)
        collecting = asyncio.ensure_future(process.stdout.read())
        await process.write(b"\n")
        async with asyncio.timeout(PATIENCE):
            data = await collecting
        assert data == b"".join(b"%d\n" % n for n in range(1, 3001)) * 2
        assert proxy.faults >= 2
