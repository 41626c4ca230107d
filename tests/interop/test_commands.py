"""Commands that the model runs and that end by themselves."""

from __future__ import annotations

import os

from tests.interop.executors import MARK
from tests.interop.model import exec_command
from tests.interop.scenarios import scenario
from tests.requirements import requirement


@requirement("interop:commands")
@scenario("command", is_old=True)
async def test_a_command_runs_on_the_executor_in_its_directory(codex):
    async with codex.exec() as model:
        output = await model.call(exec_command("echo hello-$((40+2)); pwd"))
    assert output.exit_code == 0
    assert output.text == f"hello-42\n{codex.work}\n"
    if codex.executor.tap is not None:
        assert "process/start" in codex.executor.tap.methods()


@requirement("interop:commands")
@scenario("command that fails, with stderr", is_old=True)
async def test_the_status_and_both_outputs_are_told(codex):
    async with codex.exec() as model:
        output = await model.call(exec_command("echo out; echo err >&2; exit 42"))
    assert output.exit_code == 42
    assert sorted(output.text.split()) == ["err", "out"]


@requirement("interop:commands")
@scenario("missing program")
async def test_a_missing_program_is_the_shells_affair(codex):
    async with codex.exec() as model:
        output = await model.call(exec_command("no-such-program-anywhere"))
        nowhere = await model.call(exec_command("true", workdir="/nowhere"))
        after = await model.call(exec_command("echo after"))
    assert output.exit_code == 127
    assert "no-such-program-anywhere: command not found" in output.text
    assert "No such file or directory" in nowhere
    assert after.text == "after\n"


@requirement("interop:output")
@scenario("large output", is_old=True)
async def test_the_ends_of_a_large_output_are_told(codex):
    async with codex.exec() as model:
        output = await model.call(exec_command("seq 1 100000 | tee all; echo the end"))
    assert output.exit_code == 0
    assert output.text.rstrip().endswith("100000\nthe end")
    assert "\n1\n2\n3\n" in output
    assert "truncated" in output
    assert (codex.work / "all").read_text().count("\n") == 100_000


@requirement("interop:output")
@scenario("binary output")
async def test_bytes_that_are_no_text_are_replaced(codex):
    async with codex.exec() as model:
        output = await model.call(exec_command(r"printf 'a\377\000\376b\n'"))
    assert output.text == "a\ufffd\0\ufffdb\n"


@requirement("interop:commands")
@scenario("parallel commands")
async def test_commands_asked_for_together_run_together(codex):
    # Each waits for the other: one after the other they would never end.
    for name in ("a", "b"):
        os.mkfifo(codex.work / name)
    async with codex.exec() as model:
        await model.ask(
            exec_command("echo > a; read -r _ < b; echo one"),
            exec_command("read -r _ < a; echo > b; echo two"),
        )
        outputs = await model.answers()
    assert [output.text for output in outputs] == ["one\n", "two\n"]
    assert [output.exit_code for output in outputs] == [0, 0]


@requirement("interop:environment")
@scenario(
    "working directory and environment",
    is_old=True,
    fails={"0.120.0": "This release sends the whole environment of its own machine."},
)
async def test_a_command_gets_its_directory_and_the_executors_environment(codex, server_home):
    (codex.work / "a b").mkdir()
    shown = f'"$NO_COLOR|$TERM|$PAGER|${{CODEX_THREAD_ID:+id}}|${{PATH:+path}}|${MARK}"'
    async with codex.exec() as model:
        output = await model.call(exec_command(f"pwd; echo {shown}; echo $HOME", workdir="a b"))
    pwd, variables, home = output.text.splitlines()
    assert pwd == str(codex.work / "a b")
    assert variables == f"1|dumb|cat|id|path|{codex.column.server}"
    assert home == str(server_home)


@requirement("interop:environment")
@scenario("login shell")
async def test_a_login_shell_reads_the_profile_of_the_executors_user(codex, server_home):
    (server_home / ".bash_profile").write_text("export FROM_PROFILE=yes\n")
    async with codex.exec() as model:
        login = await model.call(exec_command("echo profile:$FROM_PROFILE", login=True))
        plain = await model.call(exec_command("echo profile:$FROM_PROFILE"))
    assert login.text == "profile:yes\n"
    assert plain.text == "profile:\n"
