"""The handshake, sessions and environment queries beside the reference."""

from __future__ import annotations

import pytest

from tests.requirements import requirement
from tests.support.comparing import ask, outcome
from tests.support.wire import Wire, start_params

pytestmark = pytest.mark.one_loop

METHODS = {
    "process/start": start_params("p", ["true"]),
    "process/read": {"processId": "p"},
    "process/write": {"processId": "p", "chunk": "", "writeId": "1"},
    "process/signal": {"processId": "p", "signal": "interrupt"},
    "process/terminate": {"processId": "p"},
    "environment/info": None,
    "environment/status": None,
}
WRONG = {
    "process/start": {},
    "process/read": {"processId": "p", "afterSeq": -1},
    "process/write": {"processId": "p", "chunk": "?", "writeId": "1"},
    "process/signal": {"processId": "p", "signal": "kill"},
    "process/terminate": {},
    "environment/info": {"a": 1},
    "environment/status": "x",
}


@pytest.mark.parametrize("stage", ["nothing", "initialize", "initialized"])
@requirement("handshake:before-initialize", "handshake:before-initialized", "errors:order")
async def test_each_stage_refuses_in_the_same_words(both, stage):
    async def conversation(wire):
        if stage != "nothing":
            await wire.call("initialize", {"clientName": "x"})
        if stage == "initialized":
            await wire.send({"method": "initialized"})
        found = []
        for method in METHODS:
            if stage != "initialized":
                answer = await wire.answer(await wire.request(method, METHODS[method]))
                found.append((method, answer["error"]))
            found.append((method, await ask(wire, method, WRONG[method])))
        return found

    await both.agree(conversation, handshake=False)


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        "x",
        {"clientName": 1},
        {"clientName": None},
        {"clientname": "x"},
        {"client_name": "x"},
        {"clientName": "x", "resumeSessionId": 1},
        {"clientName": "x", "resumeSessionId": ""},
        {"clientName": "x", "resumeSessionId": "no such"},
    ],
)
@requirement("initialize:params", "initialize:failure-changes-nothing")
async def test_the_same_initializes_are_refused_and_may_be_repeated(both, params):
    async def conversation(wire):
        found = [await ask(wire, "initialize", params) for _ in range(2)]
        result = await wire.call("initialize", {"clientName": "", "more": 1})
        again = await wire.answer(await wire.request("initialize", {"clientName": "x"}))
        return found, sorted(result), again["error"]

    await both.agree(conversation, handshake=False)


@requirement("initialized:repeatable", "initialized:params")
async def test_initialized_may_be_repeated_with_any_params(both):
    async def conversation(wire):
        for params in ("null", "{}", "[1]", '"x"'):
            await wire.send(f'{{"method":"initialized","params":{params}}}')
        return await ask(wire, "environment/status")

    assert await both.agree(conversation) == {"status": "ready"}


@requirement("session:no-takeover", "session:resume")
async def test_a_session_is_refused_while_held_and_resumed_afterwards(both):
    for url in both:
        async with Wire(url) as holder, Wire(url) as other:
            session_id = (await holder.initialize())["sessionId"]
            params = {"clientName": "x", "resumeSessionId": session_id}
            answer = await other.answer(await other.request("initialize", params))
            assert answer["error"] == {
                "code": -32010,
                "message": f"session {session_id} is already attached to another connection",
            }
            holder.cut()
            while outcome(answer) == -32010:
                answer = await other.answer(await other.request("initialize", params))
            assert answer["result"]["sessionId"] == session_id


@requirement("environment/info:wire-order")
async def test_the_environment_has_the_same_members(both):
    async def conversation(wire):
        info = await wire.call("environment/info")
        # These are about the implementation, and the capabilities say what each can do.
        for name in ("executorVersion", "providerId", "prependPathDirs"):
            info[name] = type(info[name])
        info["capabilities"] = None
        # An addition of ours.
        info.pop("sandbox", None)
        return list(info.items())

    await both.agree(conversation)


@requirement("environment/info:capabilities")
async def test_our_capabilities_are_a_promise_of_ours(both):
    async def conversation(wire):
        return (await wire.call("environment/info"))["capabilities"]

    theirs, mine = await both.hear(conversation)
    assert theirs.keys() <= mine.keys()
    # Nothing that the reference has not, but for what is ours.
    ours = {
        "processResize",
        "processCloseStdin",
        "processSignals",
        "processExitSignals",
        "processList",
        "processReadDroppedBytes",
        "processFlow",
        "concurrentRequests",
    }
    assert {name for name in mine if mine[name] and not theirs.get(name)} >= ours


@requirement("errors:unknown-method")
async def test_methods_of_ours_are_unknown_to_the_reference(both):
    async def conversation(wire):
        methods = ("process/list", "process/resize", "process/closeStdin")
        return [await ask(wire, method, None) for method in methods]

    theirs, mine = await both.hear(conversation)
    assert theirs == [-32601] * 3
    assert mine == [{"processes": []}, -32602, -32602]
