"""Connections that are lost at every moment that matters, and servers that go away."""

from __future__ import annotations

import base64
import contextlib
import signal
import sys

from tests.interop.executors import listening
from tests.interop.model import apply_patch, exec_command, view_image, write_stdin
from tests.interop.scenarios import scenario
from tests.interop.test_files import png
from tests.interop.test_mcp import PROGRAM, WHEREABOUTS, mcp_over_http, placed
from tests.interop.test_sessions import SOON
from tests.interop.waiting import ended
from tests.requirements import requirement

LOST = "exec-server transport disconnected"
TYPED = 'while read -r l; do echo "got:$l"; echo "$l" >> typed; [ "$l" = quit ] && break; done'
WAITS = "echo one; read -r _ < go; seq 500; exit 3"
SAYS = "one\n" + "".join(f"{n}\n" for n in range(1, 501))
CHANGE = "*** Update File: a.txt\n@@\n-old line\n+new line\n"


@requirement("interop:lost-start")
@scenario("connection lost before a start", ways=("direct",))
async def test_a_start_that_did_not_arrive_is_an_error_and_not_repeated(codex):
    async with codex.exec() as model:
        await model.request()
        codex.executor.tap.lose_request("process/start")
        lost = await model.call(exec_command("echo x >> count"))
        after = await model.call(exec_command("echo after"))
    assert LOST in lost
    assert after.text == "after\n"
    assert not (codex.work / "count").exists()


@requirement("interop:lost-start")
@scenario("connection lost after a start", ways=("direct",))
async def test_a_start_whose_answer_is_lost_is_an_error_and_the_command_is_ended(codex, fifo):
    started = fifo("started")
    async with codex.exec() as model:
        await model.request()
        codex.executor.tap.lose_reply("process/start")
        lost = await model.call(exec_command("echo $$ > started; exec sleep 1000"))
        await ended(int(await started.line()))
        after = await model.call(exec_command("echo after"))
    assert LOST in lost
    assert after.text == "after\n"


@requirement("interop:lost-command")
@scenario("connection lost during a command", ways=("direct", "relay"))
async def test_a_command_goes_on_without_its_connection_and_loses_nothing(codex, fifo):
    go = fifo("go")
    async with codex.exec() as model:
        first = await model.call(exec_command(WAITS, yield_time_ms=SOON))
        await model.ask(write_stdin(first.session))
        codex.executor.drop()
        go.write("go\n")
        (last,) = await model.answers()
    assert first.text + last.text == SAYS
    assert last.exit_code == 3


@requirement("interop:lost-command")
@scenario("command ends during an outage", ways=("direct",))
async def test_a_command_that_ends_meanwhile_is_told_whole(codex, fifo):
    go, started = fifo("go"), fifo("started")
    tap = codex.executor.tap
    async with codex.exec() as model:
        first = await model.call(exec_command(f"echo $$ > started; {WAITS}", yield_time_ms=SOON))
        pid = int(await started.line())
        await model.ask(write_stdin(first.session))
        tap.is_down = True
        dials = tap.dials
        tap.cut()
        go.write("go\n")
        await ended(pid)
        await tap.until(lambda: tap.dials >= dials + 3)
        tap.is_down = False
        (last,) = await model.answers()
    assert first.text + last.text == SAYS
    assert last.exit_code == 3


@requirement("interop:lost-command")
@scenario("old connection not yet known to be lost", ways=("direct",))
async def test_a_session_that_is_still_attached_is_resumed_once_it_is_not(codex, fifo):
    go = fifo("go")
    tap = codex.executor.tap
    async with codex.exec() as model:
        first = await model.call(exec_command(WAITS, yield_time_ms=SOON))
        await model.ask(write_stdin(first.session))
        tap.cut_client()
        await tap.until_said("initialize", times=3)
        tap.release()
        go.write("go\n")
        (last,) = await model.answers()
    assert first.text + last.text == SAYS


@requirement("interop:lost-write")
@scenario("connection lost before a write", ways=("direct",))
async def test_a_write_that_did_not_arrive_is_repeated(codex):
    await typed_once(codex, codex.executor.tap.lose_request)


@requirement("interop:lost-write")
@scenario("connection lost after a write", ways=("direct",))
async def test_a_write_whose_answer_is_lost_is_not_done_twice(codex):
    await typed_once(codex, codex.executor.tap.lose_reply)


async def typed_once(codex, lose) -> None:
    async with codex.exec() as model:
        first = await model.call(exec_command(TYPED, tty=True, yield_time_ms=SOON))
        lose("process/write")
        second = await model.call(write_stdin(first.session, "one\n", yield_time_ms=SOON))
        last = await model.call(write_stdin(first.session, "quit\n"))
    assert "got:one" in second.text + last.text
    assert last.exit_code == 0
    assert (codex.work / "typed").read_text() == "one\nquit\n"


@requirement("interop:lost-files")
@scenario("connection lost before a file write", ways=("direct",))
async def test_a_file_write_that_did_not_arrive_is_an_error(codex):
    (codex.work / "a.txt").write_text("old line\n")
    async with codex.exec() as model:
        await model.request()
        codex.executor.tap.lose_request("fs/writeFile")
        lost = await model.call(apply_patch(CHANGE))
        before = (codex.work / "a.txt").read_text()
        again = await model.call(apply_patch(CHANGE))
    assert "Failed to write file" in lost
    assert before == "old line\n"
    assert "Success" in again
    assert (codex.work / "a.txt").read_text() == "new line\n"


@requirement("interop:lost-files")
@scenario("connection lost after a file write", ways=("direct",))
async def test_a_file_write_whose_answer_is_lost_is_an_error_but_done(codex):
    (codex.work / "a.txt").write_text("old line\n")
    async with codex.exec() as model:
        await model.request()
        codex.executor.tap.lose_reply("fs/writeFile")
        lost = await model.call(apply_patch(CHANGE))
        after = await model.call(exec_command("cat a.txt"))
    assert "Failed to write file" in lost
    assert after.text == "new line\n"


@requirement("interop:lost-files")
@scenario("connection lost during a file read", ways=("direct",))
async def test_a_picture_whose_answer_is_lost_is_shown_when_asked_again(codex):
    (codex.work / "p.png").write_bytes(png(4, 3))
    async with codex.exec() as model:
        await model.request()
        codex.executor.tap.lose_reply("fs/readFile")
        lost = await model.call(view_image(codex.work / "p.png"))
        shown = await model.call(view_image(codex.work / "p.png"))
    assert "exec-server transport closed" in lost
    assert base64.b64decode(shown.partition(",")[2]).startswith(b"\x89PNG")


@requirement("interop:lost-http")
@scenario("connection lost before an HTTP request", ways=("direct",))
async def test_an_http_request_that_did_not_arrive_leaves_the_mcp_server_usable(codex):
    await called_again(codex, lambda tap: tap.lose_request("http/request"))


@requirement("interop:lost-http")
@scenario("connection lost during an HTTP body", ways=("direct",))
async def test_a_body_that_is_cut_leaves_the_mcp_server_usable(codex):
    await called_again(codex, lambda tap: tap.lose_event("http/request/bodyDelta"))


async def called_again(codex, lose) -> None:
    async with mcp_over_http() as url:
        async with codex.exec(config=placed(url=url)) as model:
            first = await model.call(WHEREABOUTS)
            lose(codex.executor.tap)
            lost = await model.call(WHEREABOUTS)
            again = await model.call(WHEREABOUTS)
    assert "hello from " in first
    assert "hello from " not in lost
    assert "hello from " in again


@requirement("interop:lost-mcp")
@scenario("connection lost beside an MCP server over stdio", ways=("direct", "relay"))
async def test_an_mcp_server_outlives_the_connection(codex):
    config = placed(command=sys.executable, args=[PROGRAM, "stdio"], cwd=str(codex.work))
    async with codex.exec(config=config) as model:
        before = await model.call(WHEREABOUTS)
        codex.executor.drop()
        after = await model.call(WHEREABOUTS)
    assert "hello from " in before
    # The same process answers.
    assert before.text == after.text


@requirement("interop:lost-idle")
@scenario("connection lost while idle", ways=("direct", "relay"))
async def test_a_connection_that_is_lost_while_idle_is_not_noticed(codex):
    async with codex.exec() as model:
        one = await model.call(exec_command("echo one"))
        codex.executor.drop()
        two = await model.call(exec_command("echo two"))
    assert (one.text, two.text) == ("one\n", "two\n")


@requirement("interop:restart")
@scenario("server restarted while idle", ways=("direct",))
async def test_a_server_that_was_restarted_is_used_with_a_new_session(
    codex, reference_path, server_home
):
    async with codex.exec() as model:
        one = await model.call(exec_command("echo one"))
        with restarted(codex, reference_path, server_home):
            await codex.executor.tap.until(codex.executor.tap.has_refused)
            two = await model.call(exec_command("echo two"))
    assert (one.text, two.text) == ("one\n", "two\n")


@requirement("interop:restart")
@scenario("server restarted during a command", ways=("direct",))
async def test_a_command_of_a_server_that_was_restarted_is_given_up(
    codex, reference_path, server_home, fifo
):
    started = fifo("started")
    async with codex.exec() as model:
        first = await model.call(
            exec_command("echo $$ > started; exec sleep 1000", yield_time_ms=SOON)
        )
        pid = int(await started.line())
        await model.ask(write_stdin(first.session))
        with restarted(codex, reference_path, server_home):
            await ended(pid)
            (lost,) = await model.answers()
            after = await model.call(exec_command("echo after"))
    assert "unknown session id" in lost
    assert after.text == "after\n"


@contextlib.contextmanager
def restarted(codex, reference_path, server_home):
    """Stop the server, and have another in its place for the length of a block."""
    executor = codex.executor
    executor.tap.is_down = True
    executor.process.signal(signal.SIGTERM)
    executor.process.wait()
    with listening(codex.column.server, reference_path, server_home) as fresh:
        executor.tap.target = fresh.url
        executor.tap.is_down = False
        yield


@requirement("interop:orphans")
@scenario("client killed", ways=("direct",))
async def test_the_commands_of_a_killed_client_end_with_its_session(codex, fifo):
    started = fifo("started")
    async with codex.killed() as model:
        await model.ask(exec_command("echo $$ > started; exec sleep 1000"))
        pid = int(await started.line())
    # The session is kept for half a minute, in case the client comes back.
    await ended(pid)
