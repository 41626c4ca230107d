"""Sandboxed file calls end to end: what each method may do and answers under each policy."""

from __future__ import annotations

import base64
import errno
import os
from pathlib import Path

import pytest

from tests.requirements import requirement
from tests.sandbox import policies
from tests.sandbox.files import file_calls
from tests.sandbox.files.file_calls import OK, outcome
from tests.support.files import FAILED, INVALID, NOT_FOUND, REFUSED, code, encoded, read, uri, write

pytestmark = file_calls.MARKS

LOOKS = ("fs/readFile", "fs/getMetadata", "fs/lstat", "fs/canonicalize", "fs/open")
READ_ONLY = (FAILED, errno.EROFS)
BUSY = (FAILED, errno.EBUSY)
CLOSED = (REFUSED, errno.EACCES)
MISSING = (NOT_FOUND, errno.ENOENT)


@pytest.fixture
def workspace(tmp_path):
    path: Path = tmp_path / "workspace"
    for name in ("sub", "closed", "fixed", ".git"):
        (path / name).mkdir(parents=True)
        (path / name / "file").write_text(name)
    for name in ("file", "source", "secret", "a.env"):
        (path / name).write_text(name)
    return path


async def outcomes(wire, calls, sandbox):
    return {name: await outcome(wire, name, params, sandbox) for name, params in calls.items()}


def expected(calls, *, looks, changes, **others):
    """One result for all methods that look and one for all that change, except *others*."""
    by_name = {"fs/" + name: value for name, value in others.items()}
    is_look = {*LOOKS, "fs/readDirectory", "fs/walk"}
    return {
        name: by_name.get(name.partition(" ")[0], looks if name in is_look else changes)
        for name in calls
    }


@requirement("sandbox/files:read-only")
async def test_a_read_only_sandbox_lets_every_method_look_and_none_change(wire, workspace):
    sandbox = policies.read_only()
    calls = file_calls.of_file(workspace / "file", workspace / "source")
    found = await outcomes(wire, calls, sandbox)
    assert found == expected(calls, looks=OK, changes=READ_ONLY)
    calls = file_calls.of_directory(workspace / "sub")
    assert await outcomes(wire, calls, sandbox) == expected(calls, looks=OK, changes=READ_ONLY)
    assert (workspace / "file").read_text() == "file"


@requirement("sandbox/files:workspace-write")
async def test_a_workspace_lets_every_method_change_what_is_in_it(wire, workspace):
    sandbox = policies.workspace_write(workspace)
    calls = file_calls.of_file(workspace / "file", workspace / "source")
    # The last two calls rename the file and remove it; after the rename it is not there any more.
    found = await outcomes(wire, calls, sandbox)
    assert found == {**expected(calls, looks=OK, changes=OK), "fs/remove": MISSING}
    calls = file_calls.of_directory(workspace / "sub")
    assert await outcomes(wire, calls, sandbox) == expected(calls, looks=OK, changes=OK)
    assert await outcome(wire, "fs/remove", {"path": uri(workspace / "sub")}, sandbox) == OK
    assert not (workspace / "sub").exists()


@requirement("sandbox/files:workspace-write")
async def test_nothing_beside_a_workspace_can_be_changed(wire, workspace, outside):
    sandbox = policies.workspace_write(workspace)
    calls = file_calls.of_file(outside / "file", workspace / "source")
    assert await outcomes(wire, calls, sandbox) == expected(calls, looks=OK, changes=READ_ONLY)
    calls = file_calls.of_directory(outside)
    assert await outcomes(wire, calls, sandbox) == expected(calls, looks=OK, changes=READ_ONLY)
    into = {"sourcePath": uri(outside / "file"), "destinationPath": uri(workspace / "moved")}
    out = {"sourcePath": uri(workspace / "file"), "destinationPath": uri(outside / "moved")}
    assert await outcome(wire, "fs/rename", into, sandbox) == (FAILED, errno.EXDEV)
    assert await outcome(wire, "fs/rename", out, sandbox) == (FAILED, errno.EXDEV)
    assert await outcome(wire, "fs/copy", {**into, "recursive": False}, sandbox) == OK
    assert await outcome(wire, "fs/copy", {**out, "recursive": False}, sandbox) == READ_ONLY
    assert sorted(os.listdir(outside)) == ["file", "sub"]


@requirement("sandbox/files:workspace-write")
async def test_a_fifo_outside_hears_nothing_and_one_inside_does(wire, workspace, outside):
    sandbox = policies.workspace_write(workspace)
    for folder, told, heard in ((outside, READ_ONLY, b""), (workspace, OK, b"new")):
        os.mkfifo(folder / "fifo")
        reader = os.open(folder / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        try:
            params = {"path": uri(folder / "fifo"), "dataBase64": encoded(b"new")}
            assert await outcome(wire, "fs/writeFile", params, sandbox) == told
            assert os.read(reader, 100) == heard
        finally:
            os.close(reader)


@requirement("sandbox/files:protected")
@pytest.mark.parametrize("name", [".git", ".agents", ".codex", ".aws"])
async def test_protected_names_cannot_be_made_changed_or_removed(wire, workspace, name):
    sandbox = policies.workspace_write(workspace)
    path = workspace / name
    calls = {
        "fs/writeFile": {"path": uri(path / "hook"), "dataBase64": ""},
        "fs/createDirectory": {"path": uri(path / "new"), "recursive": True},
        "fs/rename": {"sourcePath": uri(path), "destinationPath": uri(workspace / "moved")},
        "fs/rename over": {"sourcePath": uri(workspace / "sub"), "destinationPath": uri(path)},
        "fs/copy": {
            "sourcePath": uri(workspace / "sub"),
            "destinationPath": uri(path / "sub"),
            "recursive": True,
        },
        "fs/setPermissions": {"path": uri(path), "mode": 0o700},
    }
    found = await outcomes(wire, calls, sandbox)
    removed = await outcome(wire, "fs/remove", {"path": uri(path)}, sandbox)
    if name == ".git":
        assert found.pop("fs/rename") == BUSY
        assert found.pop("fs/rename over") in (BUSY, (FAILED, errno.ENOTEMPTY))
        assert set(found.values()) == {READ_ONLY}
        assert removed in (BUSY, READ_ONLY)
    else:
        # It does not exist, and no call makes it.
        assert found.pop("fs/writeFile") == found.pop("fs/setPermissions") == MISSING
        assert set(found.values()) == {READ_ONLY}
        assert removed == OK
        assert not path.exists()
    assert (workspace / ".git" / "file").read_text() == ".git"


@requirement("sandbox/files:nothing-made")
async def test_nothing_is_made_on_the_host_for_a_file_call(wire, workspace):
    before = sorted(os.listdir(workspace))
    for sandbox in (policies.workspace_write(workspace), policies.closed(workspace)):
        await write(wire, workspace / "file", b"1", sandbox=sandbox)
        assert sorted(os.listdir(workspace)) == before
        listed = await wire.call("fs/readDirectory", {"path": uri(workspace), "sandbox": sandbox})
        assert sorted(entry["fileName"] for entry in listed["entries"]) == before


@requirement("sandbox/files:nothing-made")
@pytest.mark.parametrize("name", [".codex", ".CODEX", "left-out"])
@pytest.mark.parametrize("how", ["missing", "empty"])
async def test_a_name_that_must_stay_missing_is_made_in_no_way(wire, workspace, name, how):
    entries = (policies.at(workspace, "write"), policies.at(workspace / "left-out", "read"))
    sandbox = policies.managed(policies.special("root", "read"), *entries)
    path, sub = workspace / name, workspace / "sub"
    if how == "empty":
        if name != ".codex":
            return
        # It may be the placeholder of a command that runs.
        path.mkdir()
    (workspace / "to-it").symlink_to(name)
    (workspace / "into-it").symlink_to(f"sub/../{name}/deep")
    (sub / "inside").mkdir()
    ways = {
        f"{method} {number}": {**params, **({} if "atomic" not in method else {"atomic": True})}
        for number, place in enumerate((path, workspace / "to-it", sub / ".." / name))
        for method, params in {
            **file_calls.of_file(place, workspace / "source"),
            "fs/createDirectory": {"path": uri(place), "recursive": True},
            "fs/createDirectory plain": {"path": uri(place), "recursive": False},
            "fs/append create": {"path": uri(place), "dataBase64": "", "create": True},
            "fs/copy tree": {
                **{"sourcePath": uri(sub), "destinationPath": uri(place)},
                "recursive": True,
            },
            "fs/rename onto": {
                **{"sourcePath": uri(sub / "inside"), "destinationPath": uri(place)},
                "overwrite": True,
            },
            "fs/rename new": {"sourcePath": uri(sub / "inside"), "destinationPath": uri(place)},
            "fs/writeFile below": {"path": uri(place / "x"), "dataBase64": ""},
            "fs/writeFile link": {"path": uri(workspace / "into-it"), "dataBase64": ""},
        }.items()
    }
    for way, params in ways.items():
        if params.get("path") == uri(workspace / "to-it") and way.startswith("fs/remove"):
            # That removes the link.
            continue
        await outcome(wire, way, params, sandbox)
        if how == "empty":
            assert path.is_dir() and not list(path.iterdir()), way
        else:
            assert not path.exists(), way
    assert (sub / "inside").is_dir()


@requirement("sandbox/files:scoped")
async def test_with_scoped_reads_nothing_else_exists(wire, workspace, outside):
    sandbox = policies.scoped(workspace)
    calls = file_calls.of_file(outside / "file", workspace / "source")
    found = await outcomes(wire, calls, sandbox)
    assert set(found.values()) == {MISSING}
    calls = file_calls.of_directory(outside)
    assert set((await outcomes(wire, calls, sandbox)).values()) == {MISSING}
    assert await read(wire, workspace / "file", sandbox=sandbox) == b"file"
    await write(wire, workspace / "file", b"new", sandbox=sandbox)
    # Even the root of what is shown cannot be written.
    for path in ("/new", workspace.parent / "new"):
        params = {"path": uri(path), "dataBase64": ""}
        assert await outcome(wire, "fs/writeFile", params, sandbox) == READ_ONLY


@requirement("sandbox/files:denied")
async def test_what_is_denied_is_closed_to_every_method(wire, workspace):
    sandbox = policies.closed(workspace)
    inside = file_calls.of_file(workspace / "closed" / "file", workspace / "source")
    assert set((await outcomes(wire, inside, sandbox)).values()) == {CLOSED}
    directory = file_calls.of_directory(workspace / "closed")
    found = await outcomes(wire, directory, sandbox)
    # A walk reports what it could not enter, and goes on.
    assert found.pop("fs/walk") in (OK, CLOSED)
    assert set(found.values()) <= {CLOSED, READ_ONLY}
    secret = file_calls.of_file(workspace / "secret", workspace / "source")
    found = await outcomes(wire, secret, sandbox)
    assert found["fs/readFile"] == found["fs/open"] == CLOSED
    assert found["fs/rename"] == found["fs/remove"] == BUSY
    names = ("writeFile", "append", "setPermissions", "open replace", "copy")
    assert {found[f"fs/{name}"] for name in names} <= {READ_ONLY, CLOSED}
    assert (workspace / "secret").read_text() == "secret"


@requirement("sandbox/files:denied")
async def test_a_part_that_is_read_only_can_be_read(wire, workspace):
    sandbox = policies.closed(workspace)
    calls = file_calls.of_file(workspace / "fixed" / "file", workspace / "source")
    assert await outcomes(wire, calls, sandbox) == expected(calls, looks=OK, changes=READ_ONLY)
    assert await outcome(wire, "fs/remove", {"path": uri(workspace / "fixed")}, sandbox) in (
        BUSY,
        READ_ONLY,
    )


@requirement("sandbox/files:globs")
async def test_what_matches_a_glob_now_is_closed(wire, workspace):
    sandbox = policies.without_secrets(workspace)
    assert await outcome(wire, "fs/readFile", {"path": uri(workspace / "a.env")}, sandbox) == CLOSED
    assert await read(wire, workspace / "file", sandbox=sandbox) == b"file"
    (workspace / "sub" / "late.env").write_text("late")
    late = {"path": uri(workspace / "sub" / "late.env")}
    assert await outcome(wire, "fs/readFile", late, sandbox) == CLOSED


@requirement("sandbox/files:unenforceable")
async def test_a_policy_that_cannot_be_enforced_fails_every_change(wire, workspace):
    (workspace / ".aws").symlink_to(workspace / "sub")
    sandbox = policies.workspace_write(workspace)
    calls = file_calls.of_file(workspace / "file", workspace / "source")
    found = await outcomes(wire, calls, sandbox)
    assert {found[name] for name in found if name not in LOOKS} == {FAILED}
    assert (workspace / "file").read_text() == "file"


@requirement("sandbox/files:no-op")
async def test_what_changes_nothing_succeeds_in_a_read_only_sandbox(wire, workspace):
    sandbox = policies.read_only()
    there = {"path": uri(workspace / "sub"), "recursive": True}
    assert await outcome(wire, "fs/createDirectory", there, sandbox) == OK
    missing = {"path": uri(workspace / "missing"), "force": True}
    assert await outcome(wire, "fs/remove", missing, sandbox) == OK


@requirement("sandbox/files:root-removal")
async def test_removing_a_write_root_removes_what_it_can_and_fails(wire, workspace):
    sandbox = policies.workspace_write(workspace)
    found = await outcome(wire, "fs/remove", {"path": uri(workspace)}, sandbox)
    assert found in (BUSY, READ_ONLY)
    assert (workspace / ".git" / "file").exists()
    assert workspace.exists()


@requirement("sandbox/files:own-proc")
@pytest.mark.parametrize("make", [policies.read_only, None], ids=["read-only", "workspace"])
async def test_the_servers_environment_cannot_be_read(wire, server, workspace, make):
    sandbox = make() if make else policies.workspace_write(workspace)
    for pid in ("self", "thread-self", "1", server.pid):
        params = {"path": f"file:///proc/{pid}/environ", "sandbox": sandbox}
        answer = await wire.answer(await wire.request("fs/readFile", params))
        shown = base64.b64decode(answer.get("result", {}).get("dataBase64", ""))
        assert b"only the server knows" not in shown
    # Without a sandbox it is there.
    plain = await read(wire, Path("/proc/self/environ"))
    assert b"only the server knows" in plain


@requirement("sandbox/files:open")
async def test_an_opened_file_is_read_and_written_in_blocks(wire, workspace, outside):
    sandbox = policies.workspace_write(workspace)
    opened = {"handleId": "w", "path": uri(workspace / "blocks"), "mode": "replace"}
    await wire.call("fs/open", {**opened, "sandbox": sandbox})
    for offset, chunk in ((0, b"first"), (5, b"second")):
        block = {"handleId": "w", "offset": offset, "chunk": encoded(chunk)}
        await wire.call("fs/writeBlock", block)
    await wire.call("fs/close", {"handleId": "w"})
    assert (workspace / "blocks").read_bytes() == b"firstsecond"
    # A handle that was opened for reading cannot be written.
    params = {"handleId": "r", "path": uri(outside / "file"), "sandbox": sandbox}
    await wire.call("fs/open", params)
    block = await wire.call("fs/readBlock", {"handleId": "r", "offset": 0, "len": 100})
    assert base64.b64decode(block["chunk"]) == b"outside"
    await wire.error("fs/writeBlock", {"handleId": "r", "offset": 0, "chunk": encoded(b"x")})
    assert (outside / "file").read_text() == "outside"


@requirement("sandbox/files:open")
async def test_large_content_passes_whole(wire, workspace):
    sandbox = policies.scoped(workspace)
    data = os.urandom(3 << 20)
    await write(wire, workspace / "large", data, sandbox=sandbox)
    assert await read(wire, workspace / "large", sandbox=sandbox) == data


@requirement("sandbox/files:older-dialects")
async def test_older_dialects_are_held_to_the_same(wire, workspace, outside):
    policy = {"type": "workspace-write", "exclude_slash_tmp": True, "exclude_tmpdir_env_var": True}
    anchored = {"sandboxPolicy": policy, "sandboxPolicyCwd": str(workspace)}
    await write(wire, workspace / "file", b"new", sandbox=anchored)
    for members, told in (
        ({"sandbox": anchored}, FAILED),
        ({"sandboxPolicy": {"type": "read-only"}}, FAILED),
        # There is no directory that it could refer to.
        ({"sandboxPolicy": policy}, INVALID),
    ):
        params = {"path": uri(outside / "file"), "dataBase64": "", **members}
        assert await code(wire, "fs/writeFile", params) == told
    assert (outside / "file").read_text() == "outside"
