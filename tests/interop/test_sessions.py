"""Commands that go on: terminals, pipes, interruptions and what is left behind."""

from __future__ import annotations

from tests.interop.app_server import app_server
from tests.interop.model import exec_command, write_stdin
from tests.interop.scenarios import scenario
from tests.interop.waiting import ended
from tests.requirements import requirement

# Long enough that the client gives up waiting for the end, but not much longer.
SOON = 400
TRAPS = "trap 'echo caught; exit 9' INT; echo up > started; while :; do sleep 0.05; done"


@requirement("interop:sessions")
@scenario("terminal session, written to", is_old=True)
async def test_a_terminal_echoes_and_answers(codex):
    async with codex.exec() as model:
        first = await model.call(
            exec_command("read -r a; echo got:$a; read -r b; echo bye:$b",
                         tty=True, yield_time_ms=SOON)
        )  # fmt: skip
        second = await model.call(write_stdin(first.session, "hello\n", yield_time_ms=SOON))
        last = await model.call(write_stdin(first.session, "there\n"))
    said = first.text + second.text + last.text
    assert said.splitlines() == ["hello", "got:hello", "there", "bye:there"]
    assert last.exit_code == 0


@requirement("interop:sessions")
@scenario("terminal or not")
async def test_only_a_terminal_is_one(codex):
    ask = "for f in 0 1 2; do [ -t $f ] && echo yes$f || echo no$f; done"
    async with codex.exec() as model:
        terminal = await model.call(exec_command(ask, tty=True))
        pipes = await model.call(exec_command(ask))
    assert terminal.text.split() == ["yes0", "yes1", "yes2"]
    assert pipes.text.split() == ["no0", "no1", "no2"]


@requirement("interop:sessions")
@scenario("terminal session, Control-C", is_old=True)
async def test_control_c_interrupts_in_a_terminal(codex, fifo):
    started = fifo("started")
    async with codex.exec() as model:
        first = await model.call(exec_command(TRAPS, tty=True, yield_time_ms=SOON))
        await started.line()
        last = await model.call(write_stdin(first.session, "\x03"))
    assert "caught" in last.text
    assert last.exit_code == 9


@requirement("interop:sessions")
@scenario("session without a terminal", is_old=True)
async def test_a_session_on_pipes_is_polled_and_takes_no_input(codex, fifo):
    command = "echo one; read -r _ < go; echo two"
    go = fifo("go")
    async with codex.exec() as model:
        first = await model.call(exec_command(command, yield_time_ms=SOON))
        refused = await model.call(write_stdin(first.session, "text\n", yield_time_ms=SOON))
        go.write("go\n")
        last = await model.call(write_stdin(first.session))
    assert "stdin is closed" in refused
    assert first.text + last.text == "one\ntwo\n"
    assert last.exit_code == 0


@requirement("interop:sessions")
@scenario("session without a terminal, Control-C")
async def test_control_c_interrupts_without_a_terminal(codex, fifo):
    started = fifo("started")
    async with codex.exec() as model:
        first = await model.call(exec_command(TRAPS, yield_time_ms=SOON))
        await started.line()
        last = await model.call(write_stdin(first.session, "\x03"))
    assert last.text == "caught\n"
    assert last.exit_code == 9


@requirement("interop:interrupt")
@scenario("interrupted turn")
async def test_a_turn_that_the_user_interrupts_ends_its_command(codex, fifo):
    started = fifo("started")
    async with codex.model() as model, app_server(codex) as user:
        turn = await user.turn()
        await model.ask(exec_command("echo $$ > started; exec sleep 1000"))
        pid = int(await started.line())
        await user.interrupt(turn)
        completed = await user.until_event("turn/completed")
        assert completed["params"]["turn"]["status"] == "interrupted"
        await ended(pid)


@requirement("interop:orphans")
@scenario("command still running at the end")
async def test_nothing_of_a_client_that_has_gone_runs_on(codex, fifo):
    started = fifo("started")
    async with codex.exec() as model:
        first = await model.call(
            exec_command("echo $$ > started; exec sleep 1000", yield_time_ms=SOON)
        )
        assert first.session
        pid = int(await started.line())
    await ended(pid)
