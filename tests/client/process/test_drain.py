"""`run` ends with its command: what stays in the background, signals, and what was dropped."""

from __future__ import annotations

import asyncio
import pickle
import signal

import pytest

from exec_server.client.process.bounded_output import BoundedOutput, Gap, with_gap
from exec_server.errors import CommandFailed, CommandTimeout
from exec_server.sync import local as local_sync
from tests.client.conftest import is_ours
from tests.requirements import requirement
from tests.support.leaks import eventually
from tests.support.wire import PATIENCE

# The background process ends when its input does, or with the server.
LEFT = "sleep 300 & echo $!"


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@requirement("client/run:drain")
async def test_a_process_in_the_background_does_not_delay_the_end(anywhere):
    async with asyncio.timeout(PATIENCE):
        done = await anywhere.run(["sh", "-c", LEFT], drain=0.1)
    pid = int(done.stdout)
    assert (done.returncode, done.has_background, done.truncated) == (0, True, False)
    assert is_alive(pid)
    if is_ours(anywhere):
        await anywhere.terminate(done.process_id)
        await eventually(lambda: not is_alive(pid))
    else:
        await anywhere.run(["kill", str(pid)])


@requirement("client/run:drain")
async def test_by_default_it_is_awaited_for_a_moment(client):
    async with asyncio.timeout(PATIENCE):
        done = await client.run(["sh", "-c", LEFT], timeout=60)
    assert done.has_background
    await client.terminate(done.process_id)


@requirement("client/run:drain")
async def test_what_comes_within_the_moment_is_collected(anywhere, tmp_path):
    # The second writer outlives the first, and nothing keeps the output open after it.
    script = f"(cat {tmp_path}/go; echo late) & echo early"
    await anywhere.fs.write_file(tmp_path / "go", b"")
    done = await anywhere.run(["sh", "-c", script], drain=PATIENCE)
    assert sorted(done.stdout.split()) == [b"early", b"late"]
    assert not done.has_background


@requirement("client/run:drain")
async def test_a_background_process_that_never_stops_writing_does_not_delay_it_either(client):
    async with asyncio.timeout(PATIENCE):
        done = await client.run(["sh", "-c", "yes & echo up"], drain=0.2, max_output=100)
    assert done.has_background and done.stdout[:1] in b"uy"
    await client.terminate(done.process_id)


@requirement("client/run:drain")
async def test_the_process_left_behind_does_not_wait_for_a_reader(client, tmp_path):
    # It writes much more than a window, and then says so.
    script = f"(head -c 30000000 /dev/zero; echo done >{tmp_path}/done) & echo up"
    await client.run(["sh", "-c", script], drain=0)
    await eventually(lambda: (tmp_path / "done").exists())


@requirement("client/run:drain")
async def test_with_none_the_output_is_awaited_to_its_end(client):
    with pytest.raises(CommandTimeout) as caught:
        await client.run(["sh", "-c", LEFT], drain=None, timeout=0.5)
    pid = int(caught.value.stdout)
    await eventually(lambda: not is_alive(pid))


@requirement("client/run:drain")
async def test_the_timeout_is_for_the_command_and_not_for_what_it_leaves(client):
    async with asyncio.timeout(PATIENCE):
        done = await client.run(["sh", "-c", LEFT], drain=300, timeout=0.5)
    assert done.returncode == 0 and done.has_background
    await client.terminate(done.process_id)


@requirement("client/run:drain")
async def test_all_output_of_the_command_comes(anywhere):
    for _ in range(3):
        done = await anywhere.run(["head", "-c", "3000000", "/dev/zero"])
        assert len(done.stdout) == 3_000_000 and not done.has_background


@requirement("client/run:drain")
async def test_input_that_is_not_read_does_not_delay_the_end(client):
    async with asyncio.timeout(PATIENCE):
        script = ["sh", "-c", "exec 3<&0; (sleep 300 <&3) & echo up"]
        done = await client.run(script, input=bytes(3_000_000), drain=0.1)
    assert done.stdout == b"up\n" and done.has_background
    await client.terminate(done.process_id)


@requirement("client/run:drain")
@pytest.mark.parametrize("drain", ["1", True, b""])
async def test_a_moment_is_a_number(client, drain):
    with pytest.raises(TypeError, match=r"^drain must be a number of seconds"):
        await client.run(["true"], drain=drain)


@requirement("client/run:drain")
def test_a_program_without_a_loop_is_not_delayed_either():
    with local_sync() as box:
        done = box.run(["sh", "-c", LEFT], drain=0.1)
        assert done.has_background and done.process_id is not None
        box.terminate(done.process_id)


# Signals.


@requirement("client/process:end-signal")
@pytest.mark.parametrize("tty", [False, True])
async def test_the_signal_that_ended_it_is_known(anywhere, tty):
    process = await anywhere.start(["sh", "-c", "kill -KILL $$"], tty=tty)
    code = await process.wait()
    if not is_ours(anywhere):
        # It is not told, and a status alone proves nothing.
        assert (code, process.signal) == (1 if tty else 137, None)
        return
    assert (code, process.signal) == (137, signal.SIGKILL)
    assert isinstance(process.signal, signal.Signals)
    done = await anywhere.run(["sh", "-c", "kill -TERM $$"], tty=tty)
    assert (done.returncode, done.signal) == (143, signal.SIGTERM)
    with pytest.raises(CommandFailed, match=r"^sh was ended by SIGTERM$") as caught:
        done.check_returncode()
    assert caught.value.signal == signal.SIGTERM


@requirement("client/process:end-signal")
@pytest.mark.parametrize("tty", [False, True])
async def test_a_status_that_looks_like_a_signal_is_none(anywhere, tty):
    done = await anywhere.run(["sh", "-c", "exit 137"], tty=tty)
    assert (done.returncode, done.signal) == (137, None)
    with pytest.raises(CommandFailed, match="ended with status 137"):
        done.check_returncode()


@requirement("client/process:end-signal")
async def test_another_handle_and_its_events_know_it_too(client):
    process = await client.start(["sleep", "300"])
    await process.send_signal("SIGUSR1")
    await process.wait()
    exited = [event async for event in process.events() if hasattr(event, "exit_code")]
    assert [event.signal for event in exited] == [signal.SIGUSR1]
    again = await client.attach(process.process_id)
    assert (await again.wait(), again.signal) == (138, signal.SIGUSR1)


@requirement("process/exited:signal")
async def test_a_client_that_does_not_ask_is_not_told(wire):
    for number, more in enumerate([{}, {"details": True}]):
        name = f"p{number}"
        started = await wire.start(name, ["sh", "-c", "kill -KILL $$"], **more)
        exited = await wire.event(name, "process/exited")
        await wire.event(name, "process/closed")
        read = await wire.call("process/read", {"processId": name})
        assert ("pid" in started) == ("signal" in exited) == ("signal" in read) == bool(more)
        assert exited["exitCode"] == read["exitCode"] == 137
        if more:
            assert exited["signal"] == read["signal"] == 9 and started["pid"] > 1


# What was dropped.


@requirement("client/run:bounded")
async def test_the_text_says_where_something_is_missing(anywhere):
    done = await anywhere.run(["seq", "100000"], max_output=20)
    head, tail = b"1\n2\n3\n4\n5\n", b"9999\n100000\n"[-10:]
    assert done.stdout == head + tail and done.stdout_gap == Gap(10, done.dropped_bytes)
    assert done.stderr_gap is None and done.text("stderr") == ""
    line = f"[... {done.dropped_bytes} bytes of output are missing here ...]"
    assert done.text() == f"{head.decode()}{line}\n{tail.decode()}"


@requirement("client/run:bounded")
async def test_errors_say_what_was_dropped(client):
    with pytest.raises(CommandFailed, match=r"; 40 bytes of its output were dropped$") as failed:
        await client.run(["sh", "-c", "printf %060d 1; exit 3"], check=True, max_output=20)
    assert (failed.value.dropped_bytes, len(failed.value.stdout)) == (40, 20)
    with pytest.raises(CommandTimeout, match="bytes of its output were dropped") as timed_out:
        await client.run(["yes"], timeout=0.3, max_output=1000)
    assert timed_out.value.dropped_bytes > 0
    assert timed_out.value.stdout == b"y\n" * 500


@requirement("client/run:bounded")
def test_a_gap_has_a_line_of_its_own():
    assert with_gap(b"ab", None, "utf-8") == "ab"
    assert (
        with_gap(b"ab", Gap(1, 7), "utf-8") == "a\n[... 7 bytes of output are missing here ...]\nb"
    )
    assert with_gap(b"b", Gap(0, 7), "utf-8").startswith("[... 7 bytes")
    # A character that was cut in two does not hide the line.
    assert with_gap("é".encode(), Gap(1, 1), "utf-8").count("\ufffd") == 2
    output = BoundedOutput(0)
    output.add(b"abc")
    assert (output.content(), output.gap) == (b"", Gap(0, 3))


@requirement("client/run:bounded")
async def test_a_result_can_be_pickled(client):
    done = await client.run(["seq", "1000"], max_output=20)
    assert pickle.loads(pickle.dumps(done)) == done
