"""Commands in the sandboxes that Codex asks for, and what follows when one is denied."""

from __future__ import annotations

from tests.interop.app_server import app_server
from tests.interop.client import NARROW, Codex
from tests.interop.model import exec_command
from tests.interop.scenarios import scenario
from tests.requirements import requirement

DENIED = "Read-only file system"


def outside(codex: Codex) -> str:
    return str(codex.work.parent / "outside.txt")


@requirement("interop:sandbox")
@scenario("read-only sandbox", is_old=True)
async def test_read_only_reads_and_does_not_write(codex):
    (codex.work / "a.txt").write_text("readable\n")
    async with codex.exec(sandbox="read-only") as model:
        read = await model.call(exec_command("cat a.txt"))
        written = await model.call(exec_command("echo no > b.txt"))
    assert read.text == "readable\n"
    assert DENIED in written
    assert not (codex.work / "b.txt").exists()


@requirement("interop:sandbox")
@scenario("workspace-write sandbox", is_old=True)
async def test_workspace_write_writes_inside_only(codex):
    (codex.work / ".git").mkdir()
    async with codex.exec(sandbox="workspace-write", config=NARROW) as model:
        inside = await model.call(exec_command("echo yes > in.txt && cat in.txt"))
        protected = await model.call(exec_command("echo no > .git/config"))
        away = await model.call(exec_command(f"echo no > {outside(codex)}"))
    assert inside.text == "yes\n"
    assert DENIED in protected
    assert DENIED in away
    assert not (codex.work / ".git" / "config").exists()
    assert not (codex.work.parent / "outside.txt").exists()


@requirement("interop:sandbox")
@scenario("sandbox without network")
async def test_a_sandbox_without_network_reaches_no_host(codex):
    reach = "exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"
    async with codex.exec(sandbox="workspace-write") as model:
        output = await model.call(exec_command(reach.format(port=model.port)))
    assert output.exit_code != 0
    assert "reached" not in output.text


@requirement("interop:approval")
@scenario("denied by the sandbox, then approved")
async def test_a_denied_command_runs_outside_once_the_user_approves(codex):
    command = f"echo yes > {outside(codex)} && echo written"
    settings = {"sandbox": "workspace-write", "approval": "on-request", "config": NARROW}
    async with codex.model(**settings) as model, app_server(codex) as user:
        await user.turn()
        denied = await model.call(exec_command(command))
        assert user.approved == []
        assert denied.exit_code == 1
        assert not (codex.work.parent / "outside.txt").exists()
        output = await model.call(
            exec_command(command, sandbox_permissions="require_escalated", justification="may I?")
        )
        await model.finish()
        await user.until_event("turn/completed")
    assert user.approved == ["item/commandExecution/requestApproval"]
    assert output.text == "written\n"
    assert (codex.work.parent / "outside.txt").read_text() == "yes\n"
