"""The sandbox floor: a request gets it, or what is narrower, and never more."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from exec_server.access.principal import SandboxFloor
from exec_server.protocol import sandbox
from exec_server.protocol.environment import DISCOVER, DISCOVER_ROOTS
from tests.requirements import requirement
from tests.sandbox.policies import at, managed, special
from tests.support.backends import needs_bubblewrap, needs_landlock
from tests.support.tenants import principal, serving, uri
from tests.support.wire import ENV, Wire, start_params

pytestmark = [needs_bubblewrap, pytest.mark.one_loop]
FLOOR_REFUSED = -32021
TEXT = base64.b64encode(b"text").decode()


def tenant(place: Path, **floors: Any) -> Any:
    floor = SandboxFloor(kind="workspace-write", folders=(f"{place}/app",))
    return principal(sandbox=floor, **floors)


async def refused(wire: Wire, method: str, params: Any) -> str:
    error = await wire.error(method, params)
    assert error["code"] == FLOOR_REFUSED, error
    message: str = error["message"]
    return message


@requirement("floors/sandbox:default", "floors/sandbox:narrower")
async def test_a_command_without_a_sandbox_gets_the_floor_and_a_narrower_one_its_own(
    no_leaks, place
):
    script = f"echo a > {place}/app/a; echo b > {place}/other/b; cat {place}/other/secret"
    async with serving(tenant(place)) as (running, _, refusals), Wire(running.url) as wire:
        await wire.initialize()
        found = await wire.run("1", ["sh", "-c", script])
        assert found.stdout == b"of another principal"
        assert (place / "app" / "a").exists() and not (place / "other" / "b").exists()
        narrow = sandbox.read_only().wire
        found = await wire.run("2", ["sh", "-c", f"echo c > {place}/app/c"], sandbox=narrow)
        assert found.exit_code != 0 and not (place / "app" / "c").exists()
        assert refusals == []


WIDER = {
    "no sandbox": lambda place: {"sandbox": {"permissions": {"type": "disabled"}}},
    "another's sandbox": lambda place: {
        "sandbox": {"permissions": {"type": "external", "network": "restricted"}}
    },
    "another folder": lambda place: {"sandbox": sandbox.workspace_write([f"{place}/other"]).wire},
    "the folder above": lambda place: {"sandbox": sandbox.workspace_write([place]).wire},
    "the folder above by dots": lambda place: {
        "sandbox": managed(special("root", "read"), at(f"{place}/app/../other", "write"))
    },
    "a network": lambda place: {"sandbox": sandbox.read_only(network=True).wire},
    "a managed network": lambda place: {
        "sandbox": sandbox.read_only().wire,
        "enforceManagedNetwork": True,
        "env": {**ENV, "HTTP_PROXY": "http://127.0.0.1:9"},
    },
    "protected names": lambda place: {
        "sandbox": sandbox.workspace_write([f"{place}/app"], protect_metadata=False).wire
    },
    "a protected name by a rule": lambda place: {
        "sandbox": managed(special("root", "read"), at(f"{place}/app/.git", "write"))
    },
    "a directory for temporary files": lambda place: {
        "sandbox": sandbox.workspace_write([f"{place}/app"]).wire,
        "env": {**ENV, "TMPDIR": f"{place}/other"},
    },
    "the older dialect": lambda place: {
        "sandbox": {
            "sandboxPolicy": {"type": "workspace-write", "writable_roots": [uri(place)]},
            "sandboxPolicyCwd": uri(f"{place}/app"),
        }
    },
    "the oldest dialect": lambda place: {"sandboxPolicy": {"type": "danger-full-access"}},
    "entries in place of a policy": lambda place: {
        "sandbox": {
            "sandboxPolicy": {"type": "read-only"},
            "fileSystemSandboxPolicy": {"kind": "restricted", "entries": [at("/", "write")]},
        }
    },
}


@requirement("floors/sandbox:wider", "floors/refused:hook")
async def test_a_wider_sandbox_is_refused_in_every_dialect(no_leaks, place):
    (place / "app" / ".git").mkdir()
    async with serving(tenant(place)) as (running, _, refusals), Wire(running.url) as wire:
        await wire.initialize()
        for name, members in WIDER.items():
            params = start_params(name, ["true"], **members(place))
            message = await refused(wire, "process/start", params)
            rule = f"the floor of principal `ci` is workspace-write={place}/app; "
            assert message.startswith(rule), (name, message)
        assert [(who, method) for who, method, _ in refusals] == [("ci", "process/start")] * len(
            WIDER
        )
        assert refusals[0][2].startswith("the floor of principal `ci`")
        assert (await wire.call("process/list"))["processes"] == []


@requirement("floors/sandbox:links")
async def test_a_link_inside_the_floor_widens_no_sandbox(no_leaks, place):
    (place / "app" / "link").symlink_to(place / "other")
    asked = managed(special("root", "read"), at(f"{place}/app/link", "write"))
    async with serving(tenant(place)) as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        params = start_params("1", ["touch", f"{place}/other/x"], sandbox=asked)
        assert f"to write to {place}/other" in await refused(wire, "process/start", params)
        message = await refused(
            wire,
            "fs/writeFile",
            {"path": uri(f"{place}/app/link/x"), "dataBase64": TEXT, "sandbox": asked},
        )
        assert f"to write to {place}/other" in message
        assert not (place / "other" / "x").exists()
        # The directory for temporary files of the command does not move the floor itself either.
        env = {**ENV, "TMPDIR": f"{place}/other"}
        found = await wire.run("2", ["touch", f"{place}/other/x"], env=env)
        assert found.exit_code != 0 and not (place / "other" / "x").exists()


@requirement("floors/sandbox:files")
async def test_every_file_call_stays_within_the_floor(no_leaks, place):
    app, other = f"{place}/app", f"{place}/other"
    full = {"permissions": {"type": "disabled"}}
    async with serving(tenant(place)) as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        await wire.call("fs/writeFile", {"path": uri(f"{app}/f"), "dataBase64": TEXT})
        outside: dict[str, dict[str, Any]] = {
            "fs/writeFile": {"path": uri(f"{other}/x"), "dataBase64": TEXT},
            "fs/append": {"path": uri(f"{other}/x"), "dataBase64": TEXT},
            "fs/open": {"handleId": "h", "path": uri(f"{other}/x"), "mode": "replace"},
            "fs/createDirectory": {"path": uri(f"{other}/x")},
            "fs/remove": {"path": uri(f"{other}/secret"), "force": False},
            "fs/rename": {"sourcePath": uri(f"{app}/f"), "destinationPath": uri(f"{other}/x")},
            "fs/setPermissions": {"path": uri(f"{other}/secret"), "mode": 0o777},
            "fs/symlink": {"path": uri(f"{other}/x"), "link": {"target": "f"}},
            "fs/copy": {
                "sourcePath": uri(f"{app}/f"),
                "destinationPath": uri(f"{other}/x"),
                "recursive": False,
            },
            "fs/copyRanges": {
                "sourcePath": uri(f"{app}/f"),
                "destinationPath": uri(f"{other}/secret"),
                "ranges": [[0, 0, 1]],
            },
        }
        for method, params in outside.items():
            await wire.error(method, params)
            assert "the floor of principal" in await refused(
                wire, method, {**params, "sandbox": full}
            )
        reads: dict[str, dict[str, Any]] = {
            "fs/readFile": {"path": uri(f"{other}/secret")},
            "fs/open": {"handleId": "r", "path": uri(f"{other}/secret")},
            "fs/getMetadata": {"path": uri(other)},
            "fs/readDirectory": {"path": uri(other)},
            "fs/canonicalize": {"path": uri(other)},
            "fs/signature": {"path": uri(f"{other}/secret")},
            "fs/search": {"searchId": "s", "path": uri(other), "pattern": "x"},
            "fs/watch": {"watchId": "w", "path": uri(other)},
        }
        for method, params in reads.items():
            await wire.call(method, params)
            await refused(wire, method, {**params, "sandbox": full})
        assert sorted(path.name for path in Path(other).iterdir()) == ["secret"]
        await refused(wire, "fs/walk", {"path": uri(app), "options": WALK, "sandbox": full})
        root = {"id": "r", "path": uri(app), "sandbox": full}
        await refused(wire, DISCOVER_ROOTS.name, {"roots": [root]})
        await refused(wire, DISCOVER.name, {"cwd": uri(app), "sandbox": full})


WALK = {
    "maxDepth": 2,
    "maxDirectories": 10,
    "maxEntries": 10,
    "followDirectorySymlinks": False,
    "includeHidden": True,
}


@needs_landlock
@requirement("floors/sandbox:landlock")
async def test_a_floor_holds_on_landlock(no_leaks, place):
    floor = principal(sandbox=SandboxFloor(kind="read-only"))
    narrow = {**sandbox.read_only().wire, "useLegacyLandlock": True}
    wide = {**sandbox.workspace_write([f"{place}/app"]).wire, "useLegacyLandlock": True}
    async with serving(floor) as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        started = await wire.start("1", ["touch", f"{place}/app/x"], sandbox=narrow, details=True)
        assert started["sandboxRung"] == "landlock"
        assert (await wire.event("1", "process/exited"))["exitCode"] != 0
        await refused(wire, "process/start", start_params("2", ["true"], sandbox=wide))
        assert not (place / "app" / "x").exists()


@requirement("floors/sandbox:snapshots")
async def test_a_shell_snapshot_is_taken_inside_the_floor(no_leaks, place):
    home = place / "app"
    (home / ".bash_profile").write_text(f"touch {place}/other/x {place}/app/y\nexport SEEN=yes\n")
    shell = {"scopeId": "s", "shell": {"name": "bash", "path": "/bin/bash"}}
    async with serving(tenant(place)) as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        env = {**ENV, "HOME": str(home)}
        argv = ["/bin/bash", "-lc", "echo $SEEN"]
        found = await wire.run("1", argv, env=env, shellSnapshot=shell)
        assert found.stdout == b"yes\n"
        assert (place / "app" / "y").exists() and not (place / "other" / "x").exists()
