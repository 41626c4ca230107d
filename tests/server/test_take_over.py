"""A session is taken from a connection that its client has lost and the server has not."""

from __future__ import annotations

import asyncio

import pytest

from tests.requirements import requirement
from tests.support.local import server_with
from tests.support.wire import PATIENCE, Wire, decoded

# Prints every line that it is sent.
ECHO = ["sh", "-c", 'while read -r line; do echo "$line"; done']


class Holder(Wire):
    session_id: str


def wanting(session_id: str, **take_over) -> dict[str, object]:
    return {
        "clientName": "x",
        "resumeSessionId": session_id,
        "concurrentRequests": 2,
        "takeOver": take_over,
    }


@pytest.fixture
async def holder(server):
    """It holds a session with the process `p`."""
    async with Holder(server.url) as wire:
        wire.session_id = (await wire.initialize(concurrentRequests=2))["sessionId"]
        await wire.start("p", ECHO, pipeStdin=True)
        yield wire


@requirement("reconnect/take-over:stock")
async def test_a_client_that_asks_for_nothing_of_ours_sees_no_generation(server):
    async with Wire(server.url) as stock:
        assert "generation" not in await stock.initialize()


@requirement("reconnect/take-over:generation")
async def test_the_generation_of_the_lost_connection_gives_the_session_at_once(server, holder):
    assert await holder.write("p", b"one\n", "1") == "accepted"
    assert decoded(await holder.event("p", "process/output")) == b"one\n"
    async with Wire(server.url) as other:
        result = await other.call("initialize", wanting(holder.session_id, generation=1))
        assert (result["sessionId"], result["generation"]) == (holder.session_id, 2)
        await other.send({"method": "initialized"})
        # It was accepted before, and is not done again.
        assert await other.write("p", b"one\n", "1") == "accepted"
        assert await other.write("p", b"two\n", "2") == "accepted"
        event = await other.event("p", "process/output")
        assert (event["seq"], decoded(event)) == (2, b"two\n")
        page = await other.call("process/read", {"processId": "p"})
        assert [decoded(chunk) for chunk in page["chunks"]] == [b"one\n", b"two\n"]
    await holder.closed()


@requirement("reconnect/take-over:force")
async def test_force_takes_the_session_from_a_connection_that_is_there(server, holder):
    async with Wire(server.url) as other:
        wanted = wanting(holder.session_id, force=True)
        result = await other.call("initialize", wanted)
        assert (result["sessionId"], result["generation"]) == (holder.session_id, 2)
        await other.send({"method": "initialized"})
        await holder.closed()
        assert await other.write("p", b"x\n", "1") == "accepted"


@requirement("reconnect/take-over:generation")
async def test_requests_of_the_old_connection_end_with_the_take_over(server, holder):
    await holder.request("process/read", {"processId": "p", "waitMs": 60_000})
    async with Wire(server.url) as other:
        await other.call("initialize", wanting(holder.session_id, generation=1))
        await other.send({"method": "initialized"})
        await holder.closed()
        assert await other.write("p", b"x\n", "1") == "accepted"
        assert decoded(await other.event("p", "process/output")) == b"x\n"


@requirement("reconnect/take-over:fenced")
@pytest.mark.parametrize("generation", [2, 3, 99])
async def test_another_generation_is_refused(server, holder, generation):
    async with Wire(server.url) as other:
        error = await other.error("initialize", wanting(holder.session_id, generation=generation))
        assert error["code"] == -32010
    assert await holder.write("p", b"still here\n", "1") == "accepted"


@requirement("reconnect/take-over:fenced")
async def test_the_displaced_client_cannot_take_the_session_back(server, holder):
    async with Wire(server.url) as other, Wire(server.url) as back:
        await other.call("initialize", wanting(holder.session_id, generation=1))
        error = await back.error("initialize", wanting(holder.session_id, generation=1))
        assert error["code"] == -32010


@requirement("reconnect/take-over:lost-answers")
async def test_a_client_takes_over_from_its_own_earlier_attempt(server, holder):
    async with Wire(server.url) as one, Wire(server.url) as two, Wire(server.url) as late:
        first = wanting(holder.session_id, generation=1, client="me", attempt=1)
        assert (await one.call("initialize", first))["generation"] == 2
        # Its answer was lost, so the client still names the first connection.
        second = wanting(holder.session_id, generation=1, client="me", attempt=2)
        assert (await two.call("initialize", second))["generation"] == 3
        # A request that was long under way comes too late.
        assert (await late.error("initialize", first))["code"] == -32010
        stranger = wanting(holder.session_id, generation=1, client="you", attempt=9)
        assert (await late.error("initialize", stranger))["code"] == -32010


@requirement("reconnect/take-over:probe")
async def test_a_silent_connection_loses_its_session_to_the_holder_of_the_token():
    async with server_with(take_over_probe=0.2) as server, Wire(server.url) as silent:
        session_id = (await silent.initialize())["sessionId"]
        await silent.start("p", ["sh", "-c", "yes | head -c 3000000; echo end"])
        async with Wire(server.url) as other:
            result = await other.call("initialize", wanting(session_id))
            assert result["generation"] == 2
            await other.send({"method": "initialized"})
            cursor, size, page = 0, 0, {"closed": False}
            while not page["closed"]:
                poll = {"processId": "p", "afterSeq": cursor, "waitMs": 5000}
                page = await other.call("process/read", poll)
                size += sum(len(decoded(chunk)) for chunk in page["chunks"])
                cursor = page["nextSeq"] - 1
            # A process without a window keeps its newest mebibyte.
            assert size + page.get("droppedBytes", 0) >= 1 << 20
        silent.cut()


@requirement("reconnect/take-over:probe")
@pytest.mark.parametrize("sign", ["answer", "error", "request"])
async def test_a_connection_that_gives_a_sign_of_life_keeps_its_session(server, holder, sign):
    async with Wire(server.url) as other:
        asked = await other.request("initialize", wanting(holder.session_id))
        ping = await holder.find(lambda message: message.get("method") == "session/ping")
        if sign == "answer":
            await holder.send({"id": ping["id"], "result": {}})
        elif sign == "error":
            error = {"code": -32601, "message": "exec-server client does not implement it"}
            await holder.send({"id": ping["id"], "error": error})
        else:
            assert await holder.call("environment/status") == {"status": "ready"}
        answer = await other.answer(asked)
        assert answer["error"]["code"] == -32010
        # The connection may try again, and the holder still works.
        assert await holder.write("p", b"x\n", "1") == "accepted"


@requirement("reconnect/take-over:probe")
async def test_a_detached_session_needs_no_probe(server, holder):
    holder.cut()
    async with asyncio.timeout(PATIENCE), Wire(server.url) as other:
        result = await other.call("initialize", wanting(holder.session_id))
        assert result["generation"] == 2


@requirement("reconnect/take-over:probe")
async def test_of_two_that_want_a_silent_session_one_gets_it():
    async with server_with(take_over_probe=0.2) as server, Wire(server.url) as silent:
        session_id = (await silent.initialize())["sessionId"]
        async with Wire(server.url) as one, Wire(server.url) as two:
            asked = [await wire.request("initialize", wanting(session_id)) for wire in (one, two)]
            answers = [
                await wire.answer(each) for wire, each in zip((one, two), asked, strict=True)
            ]
        codes = sorted(answer.get("error", {}).get("code", 0) for answer in answers)
        assert codes == [-32010, 0]


@requirement("reconnect/take-over:probe")
async def test_a_client_that_leaves_during_the_probe_changes_nothing():
    async with server_with(take_over_probe=0.2) as server, Wire(server.url) as holder:
        session_id = (await holder.initialize())["sessionId"]
        async with Wire(server.url) as other:
            await other.request("initialize", wanting(session_id))
            await holder.find(lambda message: message.get("method") == "session/ping")
            other.cut()
        async with Wire(server.url) as next_one:
            assert (await next_one.call("initialize", wanting(session_id)))["generation"] == 2


@requirement("reconnect/take-over:fenced")
@pytest.mark.parametrize(
    "take_over",
    [{"generation": 0}, {"generation": "1"}, {"client": "x" * 65}, {"attempt": -1}, []],
    ids=str,
)
async def test_a_malformed_take_over_is_refused(server, holder, take_over):
    params = {**wanting(holder.session_id), "takeOver": take_over}
    async with Wire(server.url) as other:
        assert (await other.error("initialize", params))["code"] == -32602
