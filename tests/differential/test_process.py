"""Reading, writing, signalling and ending processes beside the reference."""

from __future__ import annotations

import base64
import os
import signal
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.children import Watched
from tests.support.comparing import ask, finished, ran, try_start
from tests.support.wire import Wire, decoded

pytestmark = pytest.mark.one_loop


async def write(wire: Wire, data: bytes, write_id: str, process_id: str = "p"):
    params = {
        "processId": process_id,
        "chunk": base64.b64encode(data).decode(),
        "writeId": write_id,
    }
    return await ask(wire, "process/write", params)


async def read(wire: Wire, **params):
    return await ask(wire, "process/read", {"processId": "p", **params})


async def five_chunks(wire: Wire) -> None:
    """Chunks 1 to 5 of six bytes, then the exit and the close."""
    script = "for i in 1 2 3 4 5; do read x; echo line$i; done; read x"
    await try_start(wire, "p", ["sh", "-c", script], pipeStdin=True)
    for number in range(1, 6):
        await write(wire, b"\n", str(number))
        await wire.event("p", "process/output")
    # Only now, because the reference may number an exit before the last words.
    await write(wire, b"\n", "exit")
    await wire.event("p", "process/closed")


# process/read.

PAGES: list[dict[str, Any]] = [
    {},
    {"afterSeq": 0, "maxBytes": None, "waitMs": None},
    *({"afterSeq": cursor} for cursor in (1, 4, 5, 6, 7, 8, 1000, 2**64 - 1)),
    *({"maxBytes": size} for size in (0, 1, 5, 6, 7, 11, 12, 13, 29, 30, 31, 2**64 - 1)),
    *({"afterSeq": 3, "maxBytes": size} for size in (0, 6, 11, 12, 100)),
    {"afterSeq": 5, "maxBytes": 10},
    {"afterSeq": 1000, "waitMs": 2**64 - 1},
]


@requirement("process/read:paging-examples", "process/read:next-seq", "process/read:max-bytes")
async def test_pages_are_the_same(both):
    async def conversation(wire):
        await five_chunks(wire)
        return [await read(wire, **params) for params in PAGES]

    pages = await both.agree(conversation)
    assert pages[0]["nextSeq"] == 8


@pytest.mark.parametrize("member", ["afterSeq", "maxBytes", "waitMs"])
@requirement("process/read:numbers", "envelope/integers")
async def test_numbers_are_refused_alike(both, member):
    async def conversation(wire):
        await try_start(wire, "p", ["true"])
        await wire.event("p", "process/closed")
        found = []
        for text in ("-1", "-0", "1.0", "1e1", '"1"', "true", "[]", f"{2**64 - 1}", f"{2**64}"):
            params = f'{{"processId":"p","{member}":{text}}}'
            await wire.send(f'{{"id":"n","method":"process/read","params":{params}}}')
            answer = await wire.answer("n")
            found.append((text, answer.get("error", {}).get("code")))
        return found

    await both.agree(conversation)


@requirement("process/read:unknown", "process/read:params")
async def test_unknown_processes_are_refused_in_the_same_words(both):
    async def conversation(wire):
        request_id = await wire.request("process/read", {"processId": "nobody"})
        return (await wire.answer(request_id))["error"], await ask(wire, "process/read", {})

    await both.agree(conversation)


@requirement("process/read:wait-for-exit", "process/read:describes-now")
async def test_an_exited_but_open_process_is_waited_for_alike(both):
    async def conversation(wire):
        # It exits only after its output was told: the reference may tell them in another order.
        words = ["sh", "-c", "sleep 60 </dev/null & echo $!; read line; exit 3"]
        await try_start(wire, "p", words, pipeStdin=True)
        pid = int(decoded(await wire.event("p", "process/output")))
        await write(wire, b"\n", "w")
        await wire.event("p", "process/exited")
        news = await read(wire, afterSeq=1, waitMs=600_000)
        known = await read(wire, afterSeq=2, waitMs=20)
        running = await ask(wire, "process/terminate", {"processId": "p"})
        os.kill(pid, signal.SIGKILL)
        closed = await read(wire, afterSeq=2, waitMs=600_000)
        return news, known, running, closed

    await both.agree(conversation)


@requirement("retention:newest-whole-chunks", "extension/dropped-bytes")
async def test_evicted_output_is_skipped_alike(both):
    async def conversation(wire):
        await try_start(wire, "p", ["sh", "-c", "seq 1 500000; sleep 60"])
        seen = await wire.output_until("p", b"\n500000\n")
        page = await read(wire)
        kept = b"".join(decoded(chunk) for chunk in page["chunks"])
        seqs = [chunk["seq"] for chunk in page["chunks"]]
        assert seen.endswith(kept)
        assert seqs == list(range(seqs[0], seqs[-1] + 1))
        assert page["nextSeq"] == seqs[-1] + 1
        # Within one chunk of the same size, which differ between runs.
        return 1 - (1 << 16) / (1 << 20) < len(kept) / (1 << 20) <= 1, "droppedBytes" in page

    theirs, mine = await both.hear(conversation)
    # Only ours tells of the gap.
    assert (theirs, mine) == ((True, False), (True, True))


# process/write.


@requirement("process/write:params", "process/write:base64")
async def test_writes_are_refused_alike(both):
    cases: list[dict[str, Any]] = [
        {},
        {"processId": 1},
        {"chunk": None},
        {"chunk": 5},
        {"writeId": None},
        {"writeId": 1},
        {"writeId": ""},
        *(
            {"chunk": chunk}
            for chunk in (
                "aGVsbG8",
                "_-8=",
                "YR==",
                "YWJ=",
                "aGVsbG8=\n",
                " aGk=",
                "a",
                "=",
                "====",
            )
        ),
        {"chunk": "aGk=" * 10_000 + "!"},
        {"chunk": "AAAA" * 10_000 + "YR=="},
    ]

    async def conversation(wire):
        await try_start(wire, "p", ["sleep", "60"], pipeStdin=True)
        good = {"processId": "p", "chunk": "", "writeId": "1"}
        return [await ask(wire, "process/write", {**good, **case}) for case in cases]

    outcomes = await both.agree(conversation)
    assert outcomes == [{"status": "accepted"}] + [-32602] * (len(cases) - 1)


@requirement("dialect/write-id:absent")
async def test_a_write_without_an_id_is_ours_and_the_older_documents(both):
    async def conversation(wire):
        await try_start(wire, "p", ["cat"], pipeStdin=True)
        return await ask(wire, "process/write", {"processId": "p", "chunk": ""})

    assert await both.hear(conversation) == (-32602, {"status": "accepted"})


@pytest.mark.parametrize(
    "params", [{}, {"pipeStdin": True}, {"tty": True}], ids=["pipes", "stdin", "tty"]
)
@requirement("process/write:stdin-closed", "process/write:after-exit", "process/write:check-order")
async def test_statuses_are_the_same_through_the_life_of_a_process(both, params):
    async def conversation(wire):
        found = [await write(wire, b"x", "0")]
        await try_start(wire, "p", ["sleep", "60"], **params)
        found += [await write(wire, b"x", "1"), await write(wire, b"x", "1")]
        found.append(await write(wire, b"\n", ""))
        await ask(wire, "process/signal", {"processId": "p", "signal": "interrupt"})
        await wire.event("p", "process/closed")
        found += [await write(wire, b"x", "1"), await write(wire, b"x", "2")]
        return found

    await both.agree(conversation)


@pytest.mark.parametrize(
    "params", [{}, {"pipeStdin": True}, {"tty": True}], ids=["pipes", "stdin", "tty"]
)
@requirement("process/write:after-terminate", "process/write:ids-outlive-the-process")
async def test_statuses_are_the_same_after_terminate(both, params):
    async def conversation(wire):
        await try_start(wire, "p", ["sleep", "60"], **params)
        found = [await write(wire, b"x", "1")]
        found.append(await ask(wire, "process/terminate", {"processId": "p"}))
        found += [await write(wire, b"x", "1"), await write(wire, b"x", "2")]
        await wire.event("p", "process/closed")
        found += [await write(wire, b"x", "1"), await write(wire, b"x", "3")]
        return found

    await both.agree(conversation)


@requirement("process/write:idempotent")
async def test_repeated_ids_write_once(both):
    async def conversation(wire):
        await try_start(wire, "p", ["cat"], pipeStdin=True)
        for data, write_id in ((b"a", "1"), (b"b", "1"), (b"c", "2"), (b"", "3"), (b"d", "3")):
            await write(wire, data, write_id)
        await write(wire, b"end", "4")
        return await wire.output_until("p", b"end")

    assert await both.agree(conversation) == b"acend"


@requirement("process/write:remembered-ids")
async def test_4096_ids_are_remembered(both):
    async def conversation(wire):
        await try_start(wire, "p", ["cat"], pipeStdin=True)
        for number in range(4097):
            await write(wire, b"", str(number))
        # The second is still known, the first is not.
        await write(wire, b"second", "1")
        await write(wire, b"first", "0")
        await write(wire, b"end", "end")
        return await wire.output_until("p", b"end")

    assert await both.agree(conversation) == b"firstend"


# process/signal and process/terminate.


@requirement("process/signal:values", "process/signal:nobody-there")
async def test_signals_are_answered_alike(both):
    async def conversation(wire):
        await try_start(wire, "p", ["sleep", "60"])
        values = ("kill", "Interrupt", "", 2, None, ["interrupt"], "interrupt")
        found = [
            await ask(wire, "process/signal", {"processId": name, "signal": value})
            for value in values
            for name in ("nobody", "p")
        ]
        return found, await finished(wire, "p")

    await both.agree(conversation)


@pytest.mark.parametrize("name", ["SIGTERM", "TERM", "SIGKILL"])
@requirement("extension/signals")
async def test_other_signals_are_ours(both, name):
    async def conversation(wire):
        await try_start(wire, "p", ["sleep", "60"])
        return await ask(wire, "process/signal", {"processId": "p", "signal": name})

    assert await both.hear(conversation) == (-32602, {})


@pytest.mark.parametrize("tty", [False, True])
@requirement("process/terminate:running", "process/terminate:exit-code")
async def test_terminate_is_answered_alike(both, tty):
    async def conversation(wire):
        terminate = {"processId": "p"}
        found = [await ask(wire, "process/terminate", terminate)]
        script = "trap 'echo no' TERM HUP INT; echo ready; while :; do sleep 1; done"
        await try_start(wire, "p", ["sh", "-c", script], tty=tty)
        await wire.output_until("p", b"ready")
        found.append(await ask(wire, "process/terminate", terminate))
        end = await finished_after(wire, 2)
        found.append(await ask(wire, "process/terminate", terminate))
        return found, end

    await both.agree(conversation)


async def finished_after(wire: Wire, seq: int) -> list[object]:
    """Exit code and number of the close, whatever was said before."""
    exited = await wire.event("p", "process/exited")
    closed = await wire.event("p", "process/closed")
    return [exited["exitCode"], exited["seq"] >= seq, closed["seq"] - exited["seq"]]


@requirement("process/terminate:escaped", "process/terminate:readers-stop")
async def test_an_escaped_process_survives_and_does_not_hold_up_the_close(both):
    async def conversation(wire):
        script = "setsid sh -c 'echo $$; trap \"\" HUP; sleep 60' & wait"
        await try_start(wire, "p", ["sh", "-c", script])
        pid = int(decoded(await wire.event("p", "process/output")))
        found = [await ask(wire, "process/terminate", {"processId": "p"})]
        found += await finished_after(wire, 2)
        os.killpg(pid, signal.SIGKILL)
        return found

    await both.agree(conversation)


@requirement("process/terminate:group")
async def test_terminate_kills_the_whole_group(both):
    async def conversation(wire):
        await try_start(wire, "p", ["sh", "-c", "sleep 60 & echo $!; wait"])
        background = Watched(int(decoded(await wire.event("p", "process/output"))))
        result = await ask(wire, "process/terminate", {"processId": "p"})
        await background.ended()
        return result

    await both.agree(conversation)


# Exits.


@pytest.mark.parametrize("tty", [False, True])
@pytest.mark.parametrize(
    "script",
    [
        "exit 0",
        "exit 1",
        "exit 127",
        "exit 255",
        "kill -TERM $$",
        "kill -KILL $$",
        "kill -INT $$",
        "kill -HUP $$",
        "ulimit -c 0; kill -SEGV $$",
        "ulimit -c 0; kill -34 $$",
        "echo out; exit 3",
        "echo out; echo err >&2; exit 4",
        "sleep 0.01 & exit 6",
        "(sleep 0.05; echo late) & echo now; exit 7",
    ],
)
@requirement("exit:status", "exit:signal", "close:late-output", "oddity:terminal-exit-code")
async def test_exits_are_the_same(both, script, tty):
    async def conversation(wire):
        said = await ran(wire, ["sh", "-c", script], tty=tty)
        if tty:
            # What a hang-up does to a background process is a race of its own.
            said["pty"] = said.get("pty", b"").replace(b"late\r\n", b"")
        return said

    await both.agree(conversation)


@requirement("events:chunks")
async def test_chunks_are_of_the_same_size(both):
    async def conversation(wire):
        await try_start(wire, "p", ["sh", "-c", "read x; head -c 100000 /dev/zero"], pipeStdin=True)
        await write(wire, b"\n", "1")
        size, sizes = 0, []
        while size < 100_000:
            sizes.append(len(decoded(await wire.event("p", "process/output"))))
            size += sizes[-1]
        return max(sizes)

    assert await both.agree(conversation) == 8192
