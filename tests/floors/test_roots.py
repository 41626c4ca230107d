"""Roots: file calls, working directories and commands stay below them."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from exec_server import connect
from exec_server.access.principal import SandboxFloor
from exec_server.protocol import sandbox
from exec_server.protocol.environment import DISCOVER_ROOTS, READ_CONFIG
from tests.floors.test_sandbox_floor import TEXT, refused
from tests.requirements import requirement
from tests.support.backends import needs_bubblewrap
from tests.support.tenants import principal, serving, uri
from tests.support.wire import Wire, start_params

pytestmark = [needs_bubblewrap, pytest.mark.one_loop]


def tenant(place: Path, *, has_floor: bool = True) -> Any:
    floor = SandboxFloor(kind="workspace-write", folders=(f"{place}/app",))
    return principal(roots=(f"{place}/app/",), sandbox=floor if has_floor else None)


async def read(wire: Wire, path: object) -> bytes:
    found = await wire.call("fs/readFile", {"path": uri(path)})
    return base64.b64decode(found["dataBase64"])


@requirement("floors/roots:files")
async def test_file_calls_outside_of_the_roots_are_refused(no_leaks, place):
    app, other = f"{place}/app", f"{place}/other"
    async with (
        serving(tenant(place, has_floor=False)) as (running, _, _),
        Wire(running.url) as wire,
    ):
        await wire.initialize()
        await wire.call("fs/writeFile", {"path": uri(f"{app}/f"), "dataBase64": TEXT})
        assert await read(wire, f"{app}/f") == b"text"
        # No sandbox floor protects names.
        await wire.call("fs/createDirectory", {"path": uri(f"{app}/.git/objects")})
        spellings = [
            f"{other}/secret",
            f"{app}/../other/secret",
            f"{app}/%2e%2e/other/secret",
            f"{app}/x/../../other/secret",
            f"{app}2/secret",
            f"/proc/self/root{other}/secret",
            "/etc/passwd",
            "/",
        ]
        rule = f"the roots of principal `ci` are {place}/app/; "
        for spelling in spellings:
            message = await refused(wire, "fs/readFile", {"path": uri(spelling)})
            assert message.startswith(rule), message
        both = {"sourcePath": uri(f"{other}/secret"), "destinationPath": uri(f"{app}/g")}
        await refused(wire, "fs/copy", {**both, "recursive": False})
        await refused(wire, "fs/rename", both)
        both = {"sourcePath": uri(f"{app}/f"), "destinationPath": uri(f"{other}/g")}
        await refused(wire, "fs/copy", {**both, "recursive": False})
        await refused(wire, "fs/open", {"handleId": "h", "path": uri(f"{other}/secret")})
        await refused(wire, DISCOVER_ROOTS.name, {"roots": [{"id": "r", "path": uri(other)}]})
        config = {"cwd": uri(app), "configPaths": [["model"]], "requirementsPaths": []}
        await refused(wire, READ_CONFIG.name, config)
        watch = {"watchId": 1, "missing": [uri(f"{other}/x")]}
        assert await wire.call("fs/watchMissing", watch) == {"watching": False}


@requirement("floors/roots:links")
async def test_links_lead_nowhere_outside_of_the_roots(no_leaks, place):
    app, other = place / "app", place / "other"
    (app / "file").symlink_to(other / "secret")
    (app / "folder").symlink_to(other)
    (app / "users").symlink_to("/etc/passwd")
    (app / "magic").symlink_to(f"/proc/self/root{other}/secret")
    (app / "server").symlink_to(f"/proc/{os.getpid()}/root{other}/secret")
    async with (
        serving(tenant(place, has_floor=False)) as (running, _, _),
        Wire(running.url) as wire,
    ):
        await wire.initialize()
        for name in ("file", "folder/secret", "users", "magic", "server"):
            await wire.error("fs/readFile", {"path": uri(app / name)})
            await wire.error("fs/open", {"handleId": "h", "path": uri(app / name)})
            await wire.error("fs/getMetadata", {"path": uri(app / name)})
        await wire.error("fs/writeFile", {"path": uri(app / "folder/new"), "dataBase64": TEXT})
        await wire.error("fs/readDirectory", {"path": uri(app / "folder")})
        copy = {"sourcePath": uri(app / "folder"), "destinationPath": uri(app / "copy")}
        await wire.call("fs/copy", {**copy, "recursive": True})
        assert (app / "copy").is_symlink()
        assert sorted(path.name for path in other.iterdir()) == ["secret"]


@requirement("floors/roots:races")
async def test_a_link_that_is_swapped_during_calls_never_leads_outside(no_leaks, place):
    app, other = place / "app", place / "other"
    (app / "real").mkdir()
    (app / "real" / "secret").write_text("mine")
    (app / "now").symlink_to("real")
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            for target in (other, "real"):
                (app / "next").symlink_to(target)
                (app / "next").rename(app / "now")

    swapping = threading.Thread(target=swap)
    async with (
        serving(tenant(place, has_floor=False)) as (running, _, _),
        Wire(running.url) as wire,
    ):
        await wire.initialize()
        swapping.start()
        try:
            seen = set()
            for _ in range(200):
                answer = await wire.answer(
                    await wire.request("fs/readFile", {"path": uri(app / "now/secret")})
                )
                seen.add(answer.get("result", {}).get("dataBase64"))
        finally:
            is_over.set()
            await asyncio.to_thread(swapping.join)
    assert seen <= {base64.b64encode(b"mine").decode(), None}


@requirement("floors/roots:commands")
async def test_commands_see_the_roots_and_what_programs_need(no_leaks, place):
    app, other = place / "app", place / "other"
    (app / "link").symlink_to(other)
    async with serving(tenant(place)) as (running, _, _), Wire(running.url) as wire:
        await wire.initialize()
        inside = {"cwd": uri(app)}
        script = f"echo a > a; cat {other}/secret link/secret; ls {place}; ls /"
        found = await wire.run("1", ["sh", "-c", script], **inside)
        assert b"of another" not in found.stdout and b"other" not in found.stdout
        assert (app / "a").exists()
        stock = sandbox.workspace_write([app]).wire
        found = await wire.run("2", ["cat", f"{other}/secret"], sandbox=stock, **inside)
        assert found.exit_code != 0 and found.stdout == b""
        message = await refused(wire, "process/start", start_params("3", ["true"]))
        assert "the working directory /tmp is outside of them" in message
        # The kernel refuses a directory that only looks like one of the roots'.
        found = await wire.run("4", ["cat", "secret"], cwd=uri(app / "link"))
        assert b"of another" not in found.stdout


@requirement("floors/roots:info")
async def test_clients_begin_in_the_first_root(no_leaks, place):
    async with serving(tenant(place)) as (running, _, _):
        async with connect(running.url) as client:
            assert (await client.run(["pwd"])).stdout == f"{place}/app\n".encode()
            assert not await client.offers("environmentConfigRead")
        async with Wire(running.url) as wire:
            told = (await wire.initialize())["environmentInfo"]
            assert (await wire.call("environment/info"))["cwd"] == told["cwd"] == uri(place / "app")


@requirement("floors/roots:need-a-sandbox")
async def test_roots_without_a_sandbox_floor_hold_no_command(no_leaks, place):
    async with (
        serving(tenant(place, has_floor=False)) as (running, _, _),
        Wire(running.url) as wire,
    ):
        await wire.initialize()
        params = start_params("1", ["true"], cwd=uri(place / "app"))
        message = await refused(wire, "process/start", params)
        assert "roots without a sandbox floor hold no command" in message
