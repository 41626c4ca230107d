"""Handles as in asyncio: lines, separators, texts, pid, and the end of a block."""

from __future__ import annotations

import asyncio
import os
import pickle
from pathlib import Path

import pytest

from exec_server.errors import ConnectionClosed, StdinClosed
from exec_server.sync import local as local_sync
from tests.client.conftest import is_ours
from tests.client.process.test_drain import is_alive
from tests.requirements import requirement
from tests.support.leaks import eventually
from tests.support.wire import PATIENCE


@requirement("client/process:lines")
async def test_lines_come_with_their_newlines(anywhere):
    process = await anywhere.start(["printf", r"one\n\ntwo\nthree"])
    assert [line async for line in process.lines()] == [b"one\n", b"\n", b"two\n", b"three"]


@requirement("client/process:lines")
async def test_lines_of_both_streams_are_not_mixed(anywhere):
    script = "printf a; printf b >&2; sleep 0.1; echo A; echo B >&2; printf end"
    process = await anywhere.start(["sh", "-c", script])
    lines = [line async for line in process.lines()]
    assert sorted(lines) == [b"aA\n", b"bB\n", b"end"] and lines[-1] == b"end"


@requirement("client/process:lines")
async def test_one_stream_can_be_chosen(anywhere):
    process = await anywhere.start(["sh", "-c", "echo out; echo err >&2"])
    assert [line async for line in process.lines("stderr")] == [b"err\n"]
    assert [line async for line in process.stdout.lines()] == [b"out\n"]


@requirement("client/process:lines")
async def test_a_reader_that_leaves_loses_nothing(anywhere):
    process = await anywhere.start(["seq", "5"])
    async for line in process.lines():
        assert line == b"1\n"
        break
    assert await process.read_until() == b"2\n"
    assert await process.stdout.readline() == b"3\n"
    assert await process.stdout.read() == b"4\n5\n"
    assert await process.stdout.readline() == b""


@requirement("client/process:lines")
async def test_many_lines_are_exact_and_quick(client):
    process = await client.start(["seq", "300000"])
    lines = [line async for line in process.lines()]
    assert lines == [b"%d\n" % n for n in range(1, 300_001)]


@requirement("client/process:lines")
async def test_a_line_without_end_is_an_error(client):
    process = await client.start(["head", "-c", "5000", "/dev/zero"])
    with pytest.raises(asyncio.LimitOverrunError):
        _ = [line async for line in process.lines(limit=1000)]
    with pytest.raises(asyncio.LimitOverrunError):
        await process.read_until(limit=1000)
    assert await process.stdout.read() == bytes(5000)


@requirement("client/process:read-until")
async def test_it_reads_up_to_a_separator(anywhere):
    script = "printf 'name: '; read x; printf 'hi %s> ' $x; read y"
    async with await anywhere.start(["sh", "-c", script], tty=True) as process:
        assert (await process.read_until(b": ")).endswith(b"name: ")
        await process.write(b"bob\n")
        async with asyncio.timeout(PATIENCE):
            assert (await process.read_until((b"nothing", b"> "))).endswith(b"hi bob> ")


@requirement("client/process:read-until")
async def test_a_separator_may_come_in_pieces(client, tmp_path):
    os.mkfifo(tmp_path / "go")
    process = await client.start(["sh", "-c", f"printf 'x--'; cat {tmp_path}/go; printf -- '->y'"])
    reading = asyncio.create_task(process.read_until(b"--->"))
    await eventually(lambda: process.wake_seq >= 1)
    await asyncio.to_thread((tmp_path / "go").write_bytes, b"")
    assert await reading == b"x--->"
    assert await process.stdout.read() == b"y"


@requirement("client/process:read-until")
async def test_the_end_before_the_separator_has_the_rest(anywhere):
    process = await anywhere.start(["printf", "rest"])
    with pytest.raises(asyncio.IncompleteReadError) as caught:
        await process.read_until()
    assert caught.value.partial == b"rest"


@requirement("client/process:read-until")
async def test_a_cancelled_reader_loses_nothing(client):
    process = await client.start(["sh", "-c", "printf a; printf b >&2; exec sleep 300"])
    async with process:
        await eventually(lambda: process.wake_seq >= 2)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await process.read_until()
        await process.send_signal("TERM")
        assert await process.stdout.read() == b"a" and await process.stderr.read() == b"b"


@requirement("client/process:read-until")
@pytest.mark.parametrize("separator", [b"", (), (b"x", "")])
async def test_a_separator_has_a_byte(client, separator):
    process = await client.start(["true"])
    with pytest.raises(ValueError, match="at least one byte"):
        await process.read_until(separator)


@requirement("client/process:wait-limits")
async def test_waits_take_a_time_limit_and_lose_nothing(anywhere):
    process = await anywhere.start(["sh", "-c", "printf 'begun '; read x; echo $x"], stdin=True)
    with pytest.raises(TimeoutError, match=r"b'---' did not come within 0\.05 s"):
        await process.read_until(b"---", timeout=0.05)
    with pytest.raises(TimeoutError, match=r"the process did not end within 0\.05 s"):
        await process.wait(timeout=0.05)
    with pytest.raises(TypeError, match="timeout must be a number of seconds or None, not str"):
        await process.stdout.readline(timeout="1")
    await process.write(b"word\n")
    assert await process.stdout.readline(timeout=PATIENCE) == b"begun word\n"
    assert await process.wait(timeout=PATIENCE) == 0


@requirement("client/process:wait-limits")
def test_the_time_limits_need_no_event_loop():
    with local_sync() as box, box.start(["cat"], stdin=True, text=True) as process:
        with pytest.raises(TimeoutError, match=r"b'> ' did not come within 0\.05 s"):
            process.read_until("> ", timeout=0.05)
        with pytest.raises(TimeoutError, match="the process did not end"):
            process.wait(timeout=0.05)


@requirement("client/process:read-until")
async def test_an_output_that_ends_too_early_is_told_with_its_end(anywhere):
    process = await anywhere.start(["echo", "no such host"])
    with pytest.raises(asyncio.IncompleteReadError) as ended:
        await process.read_until((b"$ ", b"# "))
    assert str(ended.value) == (
        "the output ended before b'$ ' or b'# ' came; its end was b'no such host\\n'"
    )
    again = pickle.loads(pickle.dumps(ended.value))
    assert (again.partial, str(again)) == (b"no such host\n", str(ended.value))


@requirement("client/process:no-input")
async def test_input_for_a_process_without_one_is_refused(anywhere):
    process = await anywhere.start(["cat"])
    with pytest.raises(StdinClosed, match="start it with stdin=True"):
        await process.communicate(b"lost")
    assert await process.communicate() == (b"", b"")


@requirement("client/process:no-input")
@pytest.mark.parametrize("kind", ["tty", "stdin"])
async def test_input_for_a_process_that_has_closed_is_refused(client, kind):
    process = await client.start(["true"], **{kind: True})
    assert [chunk async for chunk in process] == []
    with pytest.raises(StdinClosed, match="takes no input: it has ended"):
        await process.write(b"lost")


@requirement("client/process:communicate")
async def test_it_writes_and_collects(client):
    process = await client.start(["sh", "-c", "cat; echo err >&2; exit 3"], stdin=True)
    data = bytes(range(256)) * 20_000
    assert await process.communicate(data) == (data, b"err\n")
    assert process.returncode == 3


@requirement("client/process:communicate")
async def test_without_input_it_only_collects(anywhere):
    process = await anywhere.start(["sh", "-c", "echo out; echo err >&2"])
    assert await process.communicate() == (b"out\n", b"err\n")


@requirement("client/process:communicate")
async def test_a_process_need_not_read_and_a_text_is_refused(client):
    process = await client.start(["true"], stdin=True)
    assert await process.communicate(bytes(3_000_000)) == (b"", b"")
    process = await client.start(["cat"], stdin=True)
    with pytest.raises(TypeError, match=r"^input must be bytes, not str"):
        await process.communicate("text")
    await process.kill()


@requirement("client/process:text")
async def test_with_text_everything_is_a_text(client):
    async def started():
        return await client.start(["cat"], stdin=True, text=True)

    process = await started()
    await process.write("é\nzwei\n")
    assert await process.read_until("\n") == "é\n"
    assert await process.stdout.readline() == "zwei\n"
    await process.close_stdin()
    assert await process.stdout.read() == ""
    assert await (await started()).communicate("ö\n") == ("ö\n", "")
    process = await client.start(["printf", r"a\377\nb"], text=True)
    assert [line async for line in process.lines()] == ["a\ufffd\n", "b"]
    process_id = (await client.start(["sh", "-c", "echo é; exec sleep 300"])).process_id
    again = await client.attach(process_id, text=True)
    assert await again.read_until() == "é\n"
    await again.kill()


@requirement("client/process:pid")
async def test_the_pid_is_that_of_the_program(anywhere):
    process = await anywhere.start(["sh", "-c", "echo $$; exec sleep 300"])
    async with process:
        pid = int(await process.read_until())
        assert process.pid == (pid if is_ours(anywhere) else None)


@requirement("client/process:pid")
async def test_another_handle_has_the_pid_too(client):
    process = await client.start(["sleep", "300"])
    pid = process.pid
    del process
    (info,) = await client.list_processes()
    again = await client.attach(info.process_id)
    assert again.pid == pid == info.pid
    assert await again.kill()
    assert await again.wait() == 137


@requirement("client/process:block")
async def test_the_end_of_the_block_ends_everything(client):
    script = "sh -c 'setsid sleep 300 & echo $!; wait' & echo $!; wait"
    async with await client.start(["sh", "-c", script]) as process:
        pids = [int(await process.read_until()), int(await process.read_until()), process.pid]
        assert all(map(is_alive, pids))
    await eventually(lambda: not any(map(is_alive, pids)))


@requirement("client/process:block")
async def test_an_error_in_the_block_is_not_replaced(client):
    with pytest.raises(RuntimeError, match="mine"):
        async with await client.start(["sleep", "300"]) as process:
            raise RuntimeError("mine")
    assert await process.wait() == 137
    with pytest.raises(ConnectionClosed):
        async with await client.start(["sleep", "300"]) as process:
            client.close()
            raise ConnectionClosed("mine")


@requirement("client/process:block")
async def test_a_process_that_has_closed_needs_no_end(anywhere):
    async with await anywhere.start(["true"]) as process:
        assert await process.communicate() == (b"", b"")
    assert process.returncode == 0


@requirement("client/process:lines", "client/process:block")
def test_programs_without_a_loop_have_the_same(tmp_path: Path):
    with local_sync() as box:
        with box.start(["sh", "-c", "seq 3; cat"], stdin=True, text=True) as process:
            assert process.read_until() == "1\n"
            for line in process.lines():
                assert line == "2\n"
                break
            assert process.communicate("in\n") == ("3\nin\n", "")
        with box.start(["sleep", "300"]) as process:
            assert process.pid is not None and is_alive(process.pid)
        assert process.wait() == 137
