"""Discovery in a sandbox: a confined helper does the same scans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import exec_server
from tests.requirements import requirement
from tests.support.backends import needs_bubblewrap, needs_some_backend
from tests.support.files import uri
from tests.support.wire import Wire

V1, V2 = "capabilityRoots/discoverV1", "capabilities/discoverV2"
ROOT_READ = {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}
PROJECT = {"path": {"type": "special", "value": {"kind": "project_roots"}}, "access": "write"}


def at(path: Path | str, access: str) -> dict[str, Any]:
    text = path if isinstance(path, str) else uri(path)
    return {"path": {"type": "path", "path": text}, "access": access}


def managed(*entries: dict[str, Any]) -> dict[str, Any]:
    files = {"type": "restricted", "entries": list(entries)}
    permissions = {"type": "managed", "file_system": files, "network": "restricted"}
    return {"permissions": permissions, "windowsSandboxLevel": "disabled"}


def write_skill(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\ndescription: d\n---\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        write_skill(tmp_path / name)
    return tmp_path


async def found(wire: Wire, *roots: dict[str, Any]) -> Any:
    return (await wire.call(V1, {"roots": list(roots)}))["roots"]


@requirement("discover/sandbox:confined")
@needs_some_backend
async def test_a_sandbox_that_hides_nothing_changes_nothing(wire: Wire, root):
    plain = {"id": "1", "path": uri(root)}
    one, other = await found(wire, plain, plain | {"sandbox": managed(ROOT_READ)})
    assert one == other and len(one["skills"]) == 2
    (free,) = await found(wire, plain | {"sandbox": {"permissions": {"type": "disabled"}}})
    assert free == one


@requirement("discover/sandbox:confined")
@needs_bubblewrap
async def test_what_is_denied_is_not_found(wire: Wire, root):
    sandbox = managed(ROOT_READ, at(root / "a", "deny"))
    (one,) = await found(wire, {"id": "1", "path": uri(root), "sandbox": sandbox})
    assert [skill["instructions"]["path"] for skill in one["skills"]] == [uri(root / "b/SKILL.md")]
    scoped = managed(at("file:///usr", "read"))
    (one,) = await found(wire, {"id": "2", "path": uri(root), "sandbox": scoped})
    assert one["skills"] == [] and "No such file or directory" in one["error"]


@requirement("discover/sandbox:confined")
@needs_bubblewrap
async def test_installed_skills_are_found_as_far_as_they_may_be_seen(tmp_path, monkeypatch):
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    for name in ("one", "two"):
        write_skill(tmp_path / "skills" / name)
    async with exec_server.local() as box:
        everything = await box.discovery.discover()
        seen = await box.discovery.discover(sandbox=managed(ROOT_READ))
        assert [skill.name for skill in seen.skills] == ["one", "two"]
        assert seen == everything
        hidden = managed(ROOT_READ, at(tmp_path / "skills" / "one", "deny"))
        seen = await box.discovery.discover(sandbox=hidden)
        assert [skill.name for skill in seen.skills] == ["two"]
        roots = await box.discovery.discover_roots({"r": tmp_path}, sandbox=hidden)
        assert len(roots["r"].skills) == 1


@requirement("discover/sandbox:local-failure")
async def test_what_is_wrong_with_a_sandbox_is_told_for_its_root(wire: Wire, root):
    foreign = managed(ROOT_READ, at("file:///C:/x", "read"))
    plain = {"id": "1", "path": uri(root)}
    wrong, right = await found(wire, plain | {"sandbox": foreign}, plain)
    assert wrong["error"] == (
        f"failed to inspect capability root {uri(root)}: "
        "invalid sandbox permission path URI: 'file:///C:/x' is invalid on 'linux'"
    )
    assert (right["error"], len(right["skills"])) == (None, 2)


@requirement("discover/sandbox:local-failure")
@pytest.mark.parametrize("sandbox", [{"policy": "x"}, managed(PROJECT)])
async def test_a_context_without_sense_is_refused(wire: Wire, root, sandbox):
    plain = {"id": "1", "path": uri(root)}
    params = {"roots": [plain, plain | {"sandbox": sandbox}]}
    assert (await wire.error(V1, params))["code"] == -32602
    assert (await wire.error(V2, {"cwd": uri(root), "sandbox": sandbox}))["code"] == -32602
