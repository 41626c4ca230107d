"""Which servers Codex uses, and how it shows who it is."""

from __future__ import annotations

from tests.interop.executors import (
    ENVIRONMENT,
    MARK,
    Executor,
    command,
    environment,
    environments,
    listening,
)
from tests.interop.model import apply_patch, exec_command
from tests.interop.scenarios import scenario
from tests.requirements import requirement

TOKEN = "a-token-of-some-length-for-the-loopback"


@requirement("interop:several-environments")
@scenario("several environments at once", ways=("direct",))
async def test_each_tool_runs_where_the_model_says(codex, reference_path, server_home):
    server = codex.column.server
    program, *args = command(server, reference_path)
    third = environment("third", program=program, args=[*args, "--listen", "stdio"])
    mark = f'env = {{ {MARK} = "third" }}\n'
    where = f"echo ${MARK}"
    with listening(server, reference_path, server_home, **{MARK: "second"}) as second:
        codex.executor = Executor(
            {},
            environments(
                environment(ENVIRONMENT, url=codex.executor.tap.url),
                environment("second", url=second.url),
                third + mark,
            ),
        )
        async with codex.exec() as model:
            await model.ask(
                exec_command(where),
                exec_command(where, environment_id="second"),
                exec_command(where, environment_id="third"),
            )
            outputs = await model.answers()
            patched = await model.call(
                apply_patch("*** Environment ID: second\n*** Add File: new.txt\n+there\n")
            )
    assert [output.text for output in outputs] == [f"{server}\n", "second\n", "third\n"]
    assert "Success" in patched
    assert (codex.work / "new.txt").read_text() == "there\n"


@requirement("interop:bearer-token")
@scenario("bearer token", ways=("direct",))
async def test_the_right_token_is_let_in_and_no_other(codex, reference_path, server_home):
    (server_home / "token").write_text(f"{TOKEN}\n")
    options = ("--ws-auth", "capability-token", "--ws-token-file", str(server_home / "token"))
    told = {}
    with listening(codex.column.server, reference_path, server_home, *options) as running:
        for token in (TOKEN, "a-wrong-one"):
            entry = environment(ENVIRONMENT, url=running.url, auth_bearer_token=token)
            codex.executor = Executor({}, environments(entry))
            async with codex.exec() as model:
                told[token] = await model.call(exec_command(f"echo let in by ${MARK}"))
    assert told[TOKEN].text == f"let in by {codex.column.server}\n"
    assert "No usable execution environment is available" in told["a-wrong-one"]


@requirement("interop:no-environment")
@scenario("no server listens", ways=("direct",))
async def test_a_server_that_is_not_there_is_told_to_the_model(codex):
    codex.executor.tap.is_down = True
    async with codex.exec() as model:
        output = await model.call(exec_command("echo here > file"))
    assert "No usable execution environment is available" in output
    assert not (codex.work / "file").exists()
