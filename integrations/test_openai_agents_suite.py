"""ShellTool and ApplyPatchTool of the OpenAI Agents SDK, called as its runner calls them."""

from __future__ import annotations

import pytest
from agents import ShellCommandRequest
from agents.editor import ApplyPatchOperation
from agents.tool import ShellActionRequest, ShellCallData

from exec_server.integrations.openai_agents import ExecServerTools
from integrations.lifetimes import check


@pytest.fixture
async def tools(server_url, tmp_path):
    made = ExecServerTools(server_url, cwd=str(tmp_path))
    yield made
    await made.close()


def request(*commands: str, **options) -> ShellCommandRequest:
    action = ShellActionRequest(commands=list(commands), **options)
    return ShellCommandRequest(ctx_wrapper=None, data=ShellCallData(call_id="1", action=action))


async def test_each_command_has_its_outputs_and_its_status(tools, tmp_path):
    tool = tools.shell_tool()
    result = await tool.executor(request("echo out; echo err >&2; exit 3", "pwd"))
    first, second = result.output
    assert (first.stdout, first.stderr, first.outcome.exit_code) == ("out\n", "err\n", 3)
    assert second.stdout == f"{tmp_path}\n" and second.outcome.type == "exit"


async def test_a_timeout_has_the_output_so_far_and_ends_the_call(tools):
    result = await tools.run_shell(request("echo so far; sleep 600", "echo never", timeout_ms=500))
    (only,) = result.output
    assert (only.stdout, only.outcome.type) == ("so far\n", "timeout")


async def test_the_limit_of_the_model_is_passed_on(tools):
    assert (await tools.run_shell(request("true", max_output_length=7))).max_output_length == 7


async def test_files_are_created_updated_moved_and_deleted(tools, tmp_path):
    editor = tools.apply_patch_tool().editor
    create = ApplyPatchOperation(type="create_file", path="sub/a.txt", diff="+one\n+two\n")
    assert (await editor.create_file(create)).status == "completed"
    assert (tmp_path / "sub/a.txt").read_text().splitlines() == ["one", "two"]
    assert (await editor.create_file(create)).status == "failed"
    diff = "@@\n one\n-two\n+2\n"
    update = ApplyPatchOperation(type="update_file", path="sub/a.txt", diff=diff, move_to="b.txt")
    assert (await editor.update_file(update)).status == "completed"
    assert (tmp_path / "b.txt").read_text().splitlines() == ["one", "2"]
    assert not (tmp_path / "sub/a.txt").exists()
    delete = ApplyPatchOperation(type="delete_file", path="b.txt")
    assert (await editor.delete_file(delete)).status == "completed"
    assert (await editor.delete_file(delete)).status == "failed"


async def test_a_patch_changes_nothing_outside(tools):
    operation = ApplyPatchOperation(type="create_file", path="../x", diff="+x\n")
    with pytest.raises(ValueError, match="outside"):
        await tools.create_file(operation)


LIFETIME = """
import asyncio, sys
from agents import ShellCommandRequest
from agents.tool import ShellActionRequest, ShellCallData
from exec_server.integrations.openai_agents import ExecServerTools
async def main(url, command):
    tools = ExecServerTools(url)
    action = ShellActionRequest(commands=[command])
    data = ShellCallData(call_id="1", action=action)
    try:
        await tools.run_shell(ShellCommandRequest(ctx_wrapper=None, data=data))
    finally:
        await tools.close()
asyncio.run(main(*sys.argv[1:]))
"""


def test_nothing_is_left_when_the_program_ends(impatient_url, tmp_path, ending):
    check(LIFETIME, impatient_url, tmp_path, ending)
