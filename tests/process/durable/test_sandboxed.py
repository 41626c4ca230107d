"""Durable processes in a sandbox: confined under every server, and no sandbox reaches the state."""

from __future__ import annotations

import pytest

from tests.requirements import requirement
from tests.sandbox.test_processes import on_both_backends, read_only, workspace_write
from tests.support.durable import jobs_of, read_all, until
from tests.support.wire import Wire

pytestmark = pytest.mark.one_loop

# It tries to write outside after every line that it reads.
TRIES = """
while read line; do
    echo $line
    (echo x > $0/outside) 2>/dev/null && echo escaped
    echo y >> $0/workspace/inside
done
cat $1/lock $1/jobs/*/job.json 2>/dev/null
exit 6
"""


@requirement("durable:sandboxed")
@on_both_backends
async def test_a_sandbox_outlives_the_server_and_still_confines(servers, tmp_path, backend):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    sandbox = workspace_write(workspace, backend)
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        argv = ["sh", "-c", TRIES, str(tmp_path), str(servers.state)]
        started = await wire.start("a", argv, sandbox=sandbox, pipeStdin=True, durable=True)
        assert (started["sandboxRung"], started["durable"]) == (backend, True)
        await wire.write("a", b"one\n", "w1")
        await wire.output_until("a", b"one")
        servers.restart()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        (listed,) = (await wire.call("process/list"))["processes"]
        assert listed["sandboxRung"] == backend
        await wire.write("a", b"two\n", "w2")
        await wire.call("process/closeStdin", {"processId": "a"})
        data, answer = await read_all(wire, "a")
    assert (data, answer["exitCode"]) == (b"one\ntwo\n", 6)
    assert (workspace / "inside").read_text() == "y\ny\n"
    assert not (tmp_path / "outside").exists()


@requirement("durable:hidden")
@on_both_backends
async def test_no_sandbox_reaches_the_state_even_if_it_is_made_later(servers, backend):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        script = "read line; find $0; cat $0/* $0/jobs/*/* $0/sessions/*; exit 0"
        argv = ["sh", "-c", script, str(servers.state)]
        await wire.start("early", argv, sandbox=read_only(backend), pipeStdin=True)
        await wire.start("kept", ["sleep", "1000"], durable=True)
        await wire.write("early", b"go\n", "w1")
        await wire.start("late", argv, sandbox=read_only(backend), pipeStdin=True)
        await wire.write("late", b"go\n", "w1")
        for name in ("early", "late"):
            data, _ = await read_all(wire, name)
            # Landlock cannot hide names, so they tell nothing; no content can be read.
            key = (servers.state / "keeper.key").read_bytes()
            for secret in (session.encode(), b"sleep", b"%d\n" % servers.server.pid, key):
                assert secret not in data
        assert [job["state"] for job in await jobs_of(wire)] == ["running"]


@requirement("durable:sandboxed")
async def test_placeholders_of_a_durable_sandbox_go_with_it(servers, tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    sandbox = workspace_write(workspace)
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        await wire.start("a", ["cat"], sandbox=sandbox, pipeStdin=True, durable=True)
        await wire.write("a", b"x", "w1")
        await wire.output_until("a", b"x")
        assert (workspace / ".git").exists()
        servers.restart()
        assert (workspace / ".git").exists()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        await wire.call("process/closeStdin", {"processId": "a"})
        await read_all(wire, "a")
        await until(lambda: not (workspace / ".git").exists())


@requirement("durable:refused")
async def test_a_managed_network_cannot_be_durable(servers):
    async with Wire(servers.url) as wire:
        await wire.initialize()
        params = {"processId": "a", "argv": ["true"], "cwd": "file:///", "env": {}, "tty": False}
        refusal = await wire.error(
            "process/start", {**params, "durable": True, "enforceManagedNetwork": True}
        )
        assert "managed network" in refusal["message"]
        assert servers.jobs == []


TRIES_TWICE = """
(: > $0/first); echo first
read line
(: > $0/first); (: > $0/second)
exit 5
"""


@requirement("durable:denials")
@on_both_backends
async def test_denials_survive_the_server_and_go_on_without_it(servers, tmp_path, backend):
    async with Wire(servers.url) as wire:
        session = (await wire.initialize())["sessionId"]
        argv = ["sh", "-c", TRIES_TWICE, str(tmp_path)]
        sandbox = read_only(backend)
        started = await wire.start(
            "a", argv, sandbox=sandbox, pipeStdin=True, durable=True, denials=True
        )
        if "denialsUnavailable" in started:
            pytest.skip(started["denialsUnavailable"])
        await wire.output_until("a", b"first")
        await wire.write("a", b"go\n", "w1")
        servers.restart()
    async with Wire(servers.url) as wire:
        await wire.initialize(resumeSessionId=session)
        _, answer = await read_all(wire, "a")
        found = await wire.call("process/denials", {"processId": "a"})
        (job,) = await jobs_of(wire)
        error = await wire.error(
            "process/grant",
            {"processId": "a", "grant": f"write={tmp_path}/first", "scope": "session"},
        )
    assert answer["exitCode"] == 5
    counts = {each["target"]: each.get("count", 1) for each in found["denials"]}
    assert counts == {f"{tmp_path}/first": 2, f"{tmp_path}/second": 1}
    assert found["total"] == job["denied"] == 3
    assert {each["rule"] for each in found["denials"]} == {"outside the writable directories"}
    assert all("grant" not in each and each["exe"] for each in found["denials"])
    assert "earlier server" in error["message"]
