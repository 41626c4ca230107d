"""Bounds of durable jobs: journals, age and windows; and which jobs a client sees."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import msgspec
import pytest

from exec_server.errors import ConfigurationError
from exec_server.limits import DEFAULT_LIMITS, KIB
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.durable import PATIENCE, jobs_of, read_all, until
from tests.support.wire import Wire, start_params

LINES = "for i in $(seq 20000); do echo line $i; done"
TEXT = b"".join(b"line %d\n" % i for i in range(1, 20001))


def limits(**members: float):
    return msgspec.structs.replace(DEFAULT_LIMITS, orphan_grace=0.2, **members)


@requirement("durable:bounds")
async def test_the_oldest_output_goes_first_and_is_counted(no_leaks, tmp_path):
    few = limits(job_journal_bytes=64 * KIB)
    async with serve(limits=few, state_directory=tmp_path / "state") as running:
        async with Wire(running.url) as wire:
            await wire.initialize()
            await wire.start("a", ["sh", "-c", LINES], durable=True)
            await wire.event("a", "process/closed")
            params = {"processId": "a", "afterSeq": 0}
            answer = await wire.call("process/read", params)
            data = b"".join(base64.b64decode(chunk["chunk"]) for chunk in answer["chunks"])
            assert 0 < len(data) <= 64 * KIB
            assert TEXT.endswith(data)
            assert answer["droppedBytes"] == len(TEXT) - len(data)


@requirement("durable:bounds")
async def test_all_journals_together_have_a_bound(no_leaks, tmp_path):
    few = limits(job_journal_total_bytes=256 * KIB)
    async with serve(limits=few, state_directory=tmp_path / "state") as running:
        async with Wire(running.url) as wire:
            await wire.initialize()
            for name in ("a", "b"):
                await wire.start(name, ["sh", "-c", LINES], durable=True)
                await wire.event(name, "process/closed")
            assert running.core.jobs is not None
            running.core.jobs.make_room()
            sizes = [child.job.log.retained_bytes for child in running.core.jobs.children]
            assert sum(sizes) <= 256 * KIB
            for name in ("a", "b"):
                data, answer = await read_all(wire, name)
                assert TEXT.endswith(data)
                assert answer["exitCode"] == 0


@requirement("durable:bounds")
async def test_ended_jobs_are_forgotten_after_their_time(no_leaks, tmp_path):
    state = tmp_path / "state"
    async with serve(limits=limits(job_keep_seconds=0.2), state_directory=state) as running:
        async with Wire(running.url) as wire:
            session = (await wire.initialize())["sessionId"]
            await wire.start("a", ["true"], durable=True)
            await wire.event("a", "process/closed")
            await until(lambda: not list((state / "jobs").iterdir()))
            assert list((state / "sessions").iterdir()) == []
            assert await jobs_of(wire) == []
            assert session


@requirement("durable:pages")
async def test_an_answer_holds_no_more_than_a_client_can_take(no_leaks, tmp_path):
    script = "head -c 20000000 /dev/zero"
    async with serve(limits=limits(), state_directory=tmp_path / "state") as running:
        async with Wire(running.url) as wire:
            await wire.initialize()
            await wire.start("a", ["sh", "-c", script], durable=True)
            await wire.event("a", "process/closed")
            wire.unread.clear()
            answer = await wire.call("process/read", {"processId": "a"})
            assert answer["hasMore"] is True
            first = sum(len(base64.b64decode(chunk["chunk"])) for chunk in answer["chunks"])
            assert first <= 16 << 20
            answer = await wire.call(
                "process/read", {"processId": "a", "afterSeq": answer["nextSeq"] - 1}
            )
            assert "hasMore" not in answer
            rest = sum(len(base64.b64decode(chunk["chunk"])) for chunk in answer["chunks"])
            assert first + rest == 20_000_000


@requirement("durable:window")
@pytest.mark.one_loop
async def test_a_window_holds_a_program_across_a_crash(servers, tmp_path):
    done = tmp_path / "done"
    async with Wire(servers.url) as wire:
        session = (await wire.initialize(concurrentRequests=4))["sessionId"]
        script = f"{LINES}; touch $0"
        await wire.start("a", ["sh", "-c", script, str(done)], durable=True, flowWindow=16 * KIB)
        await wire.output_until("a", b"line 1\n")
        servers.kill()
    servers.start()
    # Neither the keeper nor the next server takes more than the window allows.
    assert not done.exists()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session, concurrentRequests=4, flowProcesses={"a": 0})
        data, after, is_closed = b"", 0, False
        while not is_closed:
            answer = await wire.call(
                "process/read", {"processId": "a", "afterSeq": after, "waitMs": 10_000}
            )
            data += b"".join(base64.b64decode(chunk["chunk"]) for chunk in answer["chunks"])
            assert "droppedBytes" not in answer
            after, is_closed = answer["nextSeq"] - 1, answer["closed"]
            await wire.send({"method": "process/ack", "params": {"processId": "a", "seq": after}})
    assert data == TEXT
    assert done.exists()


@requirement("durable:window")
@pytest.mark.one_loop
async def test_a_window_that_was_given_up_holds_no_later_server_or_keeper(servers, tmp_path):
    done = tmp_path / "done"
    async with Wire(servers.url) as wire:
        session = (await wire.initialize(concurrentRequests=4))["sessionId"]
        argv = ["sh", "-c", f"read go; {LINES}; touch $0", str(done)]
        await wire.start("a", argv, pipeStdin=True, durable=True, flowWindow=16 * KIB)
        await wire.send({"method": "process/ack", "params": {"processId": "a", "seq": None}})
        await wire.write("a", b"go\n", "w1")
        servers.kill()
    await until(done.exists, "the keeper has not drained it")
    servers.start()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        data, answer = await read_all(wire, "a")
    assert (data, answer["exitCode"]) == (TEXT, 0)


@requirement("durable:refused")
async def test_durable_needs_a_state_directory(wire):
    refusal = await wire.error("process/start", start_params("a", ["true"], durable=True))
    assert refusal["message"] == "this server keeps no state: start it with --state DIR"
    info = await wire.call("environment/info")
    assert info["capabilities"]["processDurable"] is False
    assert await jobs_of(wire) == []
    assert await wire.call("job/prune", {}) == {"removed": 0}
    assert "another program" in (await wire.error("server/stop", {}))["message"]


async def test_the_capability_is_announced_with_a_state_directory(no_leaks, tmp_path):
    async with serve(state_directory=tmp_path / "state") as running, Wire(running.url) as wire:
        result = await wire.initialize()
        assert result["environmentInfo"]["capabilities"]["processDurable"] is True
    assert not (tmp_path / "state").exists()


@requirement("durable:principal")
async def test_a_job_is_found_from_another_session_of_the_same_user(no_leaks, tmp_path):
    async with serve(limits=limits(), state_directory=tmp_path / "state") as running:
        async with Wire(running.url) as wire, Wire(running.url) as other:
            session = (await wire.initialize())["sessionId"]
            await other.initialize()
            await wire.start("a", ["sleep", "1000"], durable=True, cwd="file:///tmp")
            (job,) = await jobs_of(other)
            assert (job["sessionId"], job["processId"]) == (session, "a")
            assert (job["argv"], job["cwd"]) == (["sleep", "1000"], "file:///tmp")
            assert (job["attached"], job["lost"], job["endedAt"]) == (True, None, None)
            await wire.call("process/terminate", {"processId": "a"})
            await wire.event("a", "process/closed")
            assert await other.call("job/prune", {"sessionId": "other"}) == {"removed": 0}
            assert await other.call("job/prune", {"processId": "a"}) == {"removed": 1}


async def test_long_names_of_state_directories_work(no_leaks, tmp_path):
    state = Path(tmp_path, *(["a-long-name-of-a-directory"] * 8))
    async with serve(limits=limits(), state_directory=state) as running:
        async with Wire(running.url) as wire:
            await wire.initialize()
            await wire.start("a", ["sh", "-c", "echo yes"], durable=True)
            data, answer = await read_all(wire, "a")
            assert (data, answer["exitCode"]) == (b"yes\n", 0)


async def test_a_state_directory_that_is_a_link_or_of_others_is_refused(no_leaks, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigurationError, match="link cannot be used"):
        async with serve(state_directory=tmp_path / "link"):
            raise AssertionError("it was served")


@requirement("durable:window-ends")
async def test_a_client_that_stays_away_does_not_hold_its_job(tmp_path):
    hasty = limits(detached_session_seconds=0.2)
    async with serve(limits=hasty, state_directory=tmp_path / "state") as server:
        async with Wire(server.url) as wire:
            session = (await wire.initialize(concurrentRequests=4))["sessionId"]
            script = f"{LINES}; exit 3"
            await wire.start("a", ["sh", "-c", script], durable=True, flowWindow=16 * KIB)
            await wire.output_until("a", b"line 1\n")
        async with Wire(server.url) as wire:
            await wire.initialize()
            async with asyncio.timeout(PATIENCE):
                while (await jobs_of(wire))[0]["exitCode"] != 3:
                    pass
        async with Wire(server.url) as wire:
            await wire.initialize(resumeSessionId=session)
            data, _ = await read_all(wire, "a")
            assert data == TEXT
            await wire.call("job/prune", {})
