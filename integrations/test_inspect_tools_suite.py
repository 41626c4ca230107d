"""Inspect's remote processes and tools, called in an eval on a server of ours.

Inspect's repository has tests for these, which no package contains; these are ours, for what its
documentation promises.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.solver import solver
from inspect_ai.tool import bash, bash_session, python, text_editor
from inspect_ai.util import (
    ExecCompleted,
    ExecRemoteAwaitableOptions,
    ExecRemoteStreamingOptions,
    ExecStderr,
    ExecStdout,
    sandbox,
)

from exec_server.integrations.inspect import ExecServerConfig
from integrations.lifetimes import is_gone


async def collected(process):
    """Both outputs, and the status."""
    output, status = {ExecStdout: "", ExecStderr: ""}, None
    async for event in process:
        if isinstance(event, ExecCompleted):
            status = event.exit_code
        else:
            output[type(event)] += event.data
    return output[ExecStdout], output[ExecStderr], status


async def place(box) -> str:
    """The directory of the sample."""
    return (await box.exec(["pwd"])).stdout.strip()


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(60):
        while not is_gone(pid):
            await asyncio.sleep(0.1)


async def awaited(box):
    done = await box.exec_remote(["sh", "-c", "echo out; echo err >&2"], stream=False)
    assert (done.success, done.stdout, done.stderr) == (True, "out\n", "err\n")


async def awaited_failure(box):
    done = await box.exec_remote(["sh", "-c", "exit 3"], stream=False)
    assert (done.success, done.returncode) == (False, 3)


async def streamed(box):
    process = await box.exec_remote(["sh", "-c", "echo one; echo two >&2; exit 4"])
    assert await collected(process) == ("one\n", "two\n", 4)


async def killed(box):
    process = await box.exec_remote(["sleep", "600"])
    assert not is_gone(process.pid)
    await process.kill()
    await until_gone(process.pid)


async def with_input(box):
    options = ExecRemoteAwaitableOptions(input="given")
    assert (await box.exec_remote(["cat"], options, stream=False)).stdout == "given"


async def with_open_input(box):
    process = await box.exec_remote(["cat"], ExecRemoteStreamingOptions(stdin_open=True))
    await process.write_stdin("later\n")
    await process.close_stdin()
    assert await collected(process) == ("later\n", "", 0)


async def in_a_directory(box):
    options = ExecRemoteAwaitableOptions(cwd="/usr")
    assert (await box.exec_remote(["pwd"], options, stream=False)).stdout == "/usr\n"


async def with_variables(box):
    options = ExecRemoteAwaitableOptions(env={"A": "b c"})
    done = await box.exec_remote(["sh", "-c", "echo $A"], options, stream=False)
    assert done.stdout == "b c\n"


async def too_late(box):
    with pytest.raises(TimeoutError):
        options = ExecRemoteAwaitableOptions(timeout=2)
        await box.exec_remote(["sleep", "600"], options, stream=False)


async def cancelled(box):
    folder = await place(box)
    command = ["sh", "-c", f"echo $$ > {folder}/pid; exec sleep 600"]
    running = asyncio.create_task(box.exec_remote(command, stream=False))
    async with asyncio.timeout(60):
        while not (found := Path(folder, "pid")).exists() or not found.read_text():
            await asyncio.sleep(0.1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await until_gone(int(found.read_text()))


async def at_once(box):
    commands = [["echo", str(number)] for number in range(5)]
    done = await asyncio.gather(*(box.exec_remote(each, stream=False) for each in commands))
    assert [each.stdout for each in done] == [f"{number}\n" for number in range(5)]


async def much_output(box):
    done = await box.exec_remote(["sh", "-c", "seq 100000"], stream=False)
    assert done.stdout.endswith("99999\n100000\n")


async def survives_the_start(box):
    process = await box.exec_remote(["sh", "-c", "sleep 1; echo still here"])
    await box.exec(["true"])
    assert (await collected(process))[0] == "still here\n"


async def bash_tool(box):
    assert await bash()("echo from bash; pwd") == f"from bash\n{await place(box)}\n"


async def python_tool(box):
    assert (await python()("print(6 * 7)")).strip() == "42"


async def editor_tool(box):
    path = f"{await place(box)}/note.txt"
    tool = text_editor()
    await tool(command="create", path=path, file_text="one\n")
    await tool(command="str_replace", path=path, old_str="one", new_str="two")
    assert "two" in await tool(command="view", path=path)
    assert Path(path).read_text() == "two\n"


async def session_tool(box):
    tool = bash_session(instance="a")
    seen = str(await tool(action="type_submit", input="cd /usr && X=5"))
    async with asyncio.timeout(60):
        seen += str(await tool(action="type_submit", input='echo "$PWD $X"'))
        while "/usr 5" not in seen:
            seen += str(await tool(action="read"))


CHECKS = [
    *(awaited, awaited_failure, streamed, killed, with_input, with_open_input, in_a_directory),
    *(with_variables, too_late, cancelled, at_once, much_output, survives_the_start),
    *(bash_tool, python_tool, editor_tool, session_tool),
]


@solver
def calls():
    async def solve(state, generate):
        await next(check for check in CHECKS if check.__name__ == state.sample_id)(sandbox())
        state.completed = True
        return state

    return solve


@pytest.fixture(scope="module")
def outcomes(server_url, tmp_path_factory):
    """The error of each sample, or None."""
    samples = [Sample(id=check.__name__, input="x") for check in CHECKS]
    place = ("exec-server", ExecServerConfig(server=server_url))
    task = Task(dataset=samples, solver=calls(), sandbox=place, fail_on_error=False)
    folder = str(tmp_path_factory.mktemp("logs"))
    (log,) = eval(task, model="none", display="none", log_dir=folder, max_samples=2)
    return {sample.id: sample.error for sample in log.samples}


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_call(outcomes, name):
    assert outcomes[name] is None, outcomes[name].traceback


TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.solver import solver
from inspect_ai.util import sandbox

@solver
def runs():
    async def solve(state, generate):
        await sandbox().exec(["sh", "-c", "pwd > {file}"])
        return state
    return solve

@task
def one():
    return Task(dataset=[Sample(input="x")], solver=runs())
"""


@pytest.mark.parametrize("is_name", [True, False], ids=["name", "url"])
def test_the_command_line_takes_a_name_and_a_url(server_url, tmp_path, is_name):
    (tmp_path / "task.py").write_text(TASK.replace("{file}", str(tmp_path / "seen")))
    configured = f'[[environments]]\nid = "build-box"\nurl = "{server_url}"\n'
    (tmp_path / "environments.toml").write_text(configured)
    program = Path(sys.executable).with_name("inspect")
    place = f"exec-server:{'build-box' if is_name else server_url}"
    words = ["eval", "task.py", "--model", "none", "--display", "plain", "--sandbox", place]
    env = {**os.environ, "CODEX_HOME": str(tmp_path)}
    done = subprocess.run(
        [program, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (tmp_path / "seen").exists(), done.stdout + done.stderr
