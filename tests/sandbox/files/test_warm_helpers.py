"""Warm helpers: never confused; replaced when they die, hang or lose a mount; gone at the end."""

from __future__ import annotations

import os
import random
import shutil
import signal
from pathlib import Path

import pytest

from tests.requirements import requirement
from tests.sandbox import policies
from tests.sandbox.files import file_calls
from tests.support.files import FAILED, NOT_FOUND, REFUSED, encoded, read, until, uri, write
from tests.support.local import connected, wire_with

pytestmark = file_calls.MARKS

SERVER_OPTIONS = ("--concurrent-requests", "16")
CALLS = 400
PROTECTED = (".git", ".agents", ".codex", ".aws")


@pytest.fixture
def workspaces(tmp_path):
    """Two workspaces: each policy gives only one of them."""
    found = [tmp_path / "one", tmp_path / "two"]
    for path in found:
        for name in ("closed", "fixed"):
            (path / name).mkdir(parents=True)
            (path / name / "file").write_text("content")
        for name in ("file", "secret"):
            (path / name).write_text("content")
    return found


def _judged(one: Path, two: Path):
    """Policies, and the answer of each to a write to, and a read of, each place."""
    places = [one / "file", one / "fixed" / "file", one / "closed" / "file", one / "secret"]
    places += [two / "file"]
    ok, fixed, shut, gone = "ok", FAILED, REFUSED, NOT_FOUND
    return places, {
        "read-only": (policies.read_only(), [fixed] * 5, [ok] * 5),
        "one": (policies.workspace_write(one), [ok, ok, ok, ok, fixed], [ok] * 5),
        "two": (policies.workspace_write(two), [fixed, fixed, fixed, fixed, ok], [ok] * 5),
        "scoped": (policies.scoped(two), [gone, gone, gone, gone, ok], [gone] * 4 + [ok]),
        "closed": (
            policies.closed(one),
            [ok, fixed, shut, fixed, fixed],
            [ok, ok, shut, shut, ok],
        ),
        "none": (None, [ok] * 5, [ok] * 5),
    }


@requirement("sandbox/files:no-confusion")
async def test_mixed_policies_are_never_confused(wire, workspaces):
    places, judged = _judged(*workspaces)
    chance = random.Random(4)
    waiting = []
    for number in range(CALLS):
        name = chance.choice(sorted(judged))
        sandbox, writes, reads = judged[name]
        index = chance.randrange(len(places))
        params = {"path": uri(places[index]), "sandbox": sandbox}
        if chance.random() < 0.5:
            data = encoded(b"%d" % number)
            request = await wire.request("fs/writeFile", {**params, "dataBase64": data})
            waiting.append((request, name, "write", places[index], writes[index]))
        else:
            request = await wire.request("fs/readFile", params)
            waiting.append((request, name, "read", places[index], reads[index]))
    for request, *what, expected in waiting:
        answer = await wire.answer(request)
        assert answer.get("error", {}).get("code", "ok") == expected, what


@requirement("sandbox/files:no-confusion")
async def test_equal_policies_of_several_connections_share_a_helper(server, workspaces):
    sandbox = policies.workspace_write(workspaces[0])
    async with connected(server.url) as first, connected(server.url) as second:
        await write(first, workspaces[0] / "file", b"1", sandbox=sandbox)
        before = file_calls.helpers(server.pid)
        await write(second, workspaces[0] / "file", b"2", sandbox=sandbox)
        assert file_calls.helpers(server.pid) == before


@requirement("sandbox/files:crash")
async def test_a_helper_that_is_killed_is_replaced_by_one_as_confined(server, wire, workspaces):
    one, two = workspaces
    sandbox = policies.workspace_write(one)
    before = file_calls.helpers(server.pid)
    await write(wire, one / "file", b"1", sandbox=sandbox)
    [helper] = file_calls.helpers(server.pid) - before
    os.kill(helper, signal.SIGKILL)
    # Whether the server notices it before or after this call is sent, no call is lost silently.
    params = {"path": uri(one / "file"), "dataBase64": encoded(b"2"), "sandbox": sandbox}
    answer = await wire.answer(await wire.request("fs/writeFile", params))
    if "error" in answer:
        assert answer["error"]["code"] == FAILED
        assert answer["error"]["message"].startswith("fs sandbox helper failed")
    await write(wire, one / "file", b"3", sandbox=sandbox)
    assert (one / "file").read_bytes() == b"3"
    params = {"path": uri(two / "file"), "dataBase64": "", "sandbox": sandbox}
    assert (await wire.error("fs/writeFile", params))["code"] == FAILED
    assert (two / "file").read_text() == "content"


@requirement("sandbox/files:crash")
async def test_calls_under_way_fail_with_a_helper_that_is_killed(server, wire, workspaces):
    sandbox = policies.workspace_write(workspaces[0])
    before = file_calls.helpers(server.pid)
    await write(wire, workspaces[0] / "file", b"1", sandbox=sandbox)
    [helper] = file_calls.helpers(server.pid) - before
    os.kill(helper, signal.SIGSTOP)
    params = {"path": uri(workspaces[0] / "file"), "dataBase64": "", "sandbox": sandbox}
    requests = [await wire.request("fs/writeFile", params) for _ in range(5)]
    # Meanwhile all other calls are answered.
    assert await read(wire, workspaces[0] / "file", sandbox=policies.read_only()) == b"1"
    assert await read(wire, workspaces[0] / "file") == b"1"
    os.kill(helper, signal.SIGKILL)
    for request in requests:
        error = (await wire.answer(request))["error"]
        assert error["code"] == FAILED
        assert error["message"].startswith("fs sandbox helper failed")
    await write(wire, workspaces[0] / "file", b"2", sandbox=sandbox)


@requirement("sandbox/files:crash")
async def test_a_helper_that_is_stopped_is_ended_and_replaced(workspaces):
    sandbox = policies.workspace_write(workspaces[0])
    async with wire_with(sandbox_call=0.3) as wire:
        before = file_calls.helpers(os.getpid())
        await write(wire, workspaces[0] / "file", b"1", sandbox=sandbox)
        [helper] = file_calls.helpers(os.getpid()) - before
        os.kill(helper, signal.SIGSTOP)
        params = {"path": uri(workspaces[0] / "file"), "dataBase64": "", "sandbox": sandbox}
        error = await wire.error("fs/writeFile", params)
        assert error["code"] == FAILED
        assert "no answer within" in error["message"]
        await until(lambda: not file_calls.is_helper(helper))
        await write(wire, workspaces[0] / "file", b"2", sandbox=sandbox)


@requirement("sandbox/files:walls")
@pytest.mark.parametrize("how", ["replaced", "recreated"])
async def test_a_warm_helper_does_not_outlive_its_walls(wire, workspaces, how):
    one = workspaces[0]
    (one / ".git").mkdir()
    (one / ".git" / "HEAD").write_text("ref")
    sandbox = policies.closed(one)

    async def is_closed() -> bool:
        places = ("fixed/new", ".git/new", "closed/new", "secret", ".codex/new")
        writes = [
            await file_calls.outcome(
                wire, "fs/writeFile", {"path": uri(one / place), "dataBase64": ""}, sandbox
            )
            for place in places
        ]
        secret = {"path": uri(one / "secret")}
        return "ok" not in (*writes, await file_calls.outcome(wire, "fs/readFile", secret, sandbox))

    await write(wire, one / "file", b"1", sandbox=sandbox)
    assert await is_closed()
    for name in ("fixed", ".git", "closed", "secret"):
        _put_anew(one / name, how)
        assert await is_closed(), name
        await write(wire, one / "file", b"2", sandbox=sandbox)


def _put_anew(path: Path, how: str) -> None:
    """Replace a file or directory by one with the same name and content, as editors and git do."""
    spare = path.with_name("spare")
    if path.is_dir():
        shutil.copytree(path, spare)
        shutil.rmtree(path)
        if how == "recreated":
            shutil.copytree(spare, path)
            shutil.rmtree(spare)
        else:
            spare.rename(path)
        return
    content = path.read_bytes()
    if how == "recreated":
        path.unlink()
        path.write_bytes(content)
    else:
        spare.write_bytes(content)
        spare.rename(path)


@requirement("sandbox/files:walls")
async def test_a_workspace_that_is_made_anew_can_be_written(wire, workspaces):
    one = workspaces[0]
    sandbox = policies.managed(policies.special("root", "read"), policies.at(one, "write"))
    for name in PROTECTED:
        # This way nothing has to be mounted on what the server makes.
        (one / name).mkdir(exist_ok=True)
        (one / name / "kept").touch()
    await write(wire, one / "file", b"1", sandbox=sandbox)
    _put_anew(one, "recreated")
    await write(wire, one / "file", b"2", sandbox=sandbox)
    assert (one / "file").read_bytes() == b"2"


@requirement("sandbox/files:placeholders")
async def test_no_placeholder_is_left_when_the_server_is_gone(workspaces):
    one = workspaces[0]
    sandbox = policies.workspace_write(one)
    with file_calls.confining_server() as server:
        async with connected(server.url) as wire:
            await write(wire, one / "file", b"1", sandbox=sandbox)
            assert not [name for name in PROTECTED if (one / name).exists()]
    assert not [name for name in PROTECTED if (one / name).exists()]


@requirement("sandbox/files:placeholders")
async def test_file_calls_and_commands_of_one_workspace_do_not_disturb_each_other(wire, workspaces):
    # A command makes placeholders and removes them while helpers run and are started.
    one = workspaces[0]
    sandbox = policies.workspace_write(one)
    for number in range(10):
        await wire.start(f"p{number}", ["true"], sandbox=sandbox)
        for _ in range(5):
            await write(wire, one / "file", b"1", sandbox=sandbox)
        await wire.events_until_closed(f"p{number}")
        await write(wire, one / "file", b"2", sandbox=sandbox)
        assert not [name for name in PROTECTED if (one / name).exists()]
