"""Skills and plugins below directories that a client names, and installed ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from exec_server.discovery import installed, roots
from exec_server.discovery.homes import Homes
from exec_server.limits import Limits
from exec_server.protocol.environment import CapabilitiesResult, CapabilityRoot, DiscoveredRoot
from exec_server.protocol.paths import PathUri
from tests.requirements import requirement
from tests.support.files import uri as uri_of
from tests.support.wire import Wire

SKILL = "---\nname: {}\ndescription: d\n---\n"


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def discover(root: Path, **limits: Any) -> DiscoveredRoot:
    asked = CapabilityRoot("id", PathUri.of(bytes(root)))
    return roots.discover(asked, Limits(**limits))


def skills_of(found: DiscoveredRoot, root: Path) -> list[str]:
    prefix = uri_of(root) + "/"
    return [skill.instructions.path.removeprefix(prefix) for skill in found.skills]


@requirement("discover/roots:files")
def test_skills_are_found_in_order_with_their_metadata(tmp_path):
    write(tmp_path / "b" / "SKILL.md", "B")
    write(tmp_path / "a" / "SKILL.md", "A")
    write(tmp_path / "a" / "agents" / "openai.yaml", "y")
    write(tmp_path / ".hidden" / "SKILL.md", "H")
    write(tmp_path / "a b" / "SKILL.md", "S")
    found = discover(tmp_path)
    names = [".hidden/SKILL.md", "a%20b/SKILL.md", "a/SKILL.md", "b/SKILL.md"]
    assert skills_of(found, tmp_path) == names
    assert found.skills[2].metadata is not None
    assert found.skills[2].metadata.contents == "y"
    assert (found.id, found.path, found.error) == ("id", uri_of(tmp_path), None)


@requirement("discover/roots:files")
def test_the_first_readable_manifest_counts(tmp_path):
    write(tmp_path / ".codex-plugin" / "plugin.json", b"\xff")
    write(tmp_path / ".claude-plugin" / "plugin.json", "{}")
    write(tmp_path / ".mcp.json", "{}")
    write(tmp_path / "n" / ".cursor-plugin" / "plugin.json", "{}")
    found = discover(tmp_path)
    assert found.plugin is not None and found.plugin.mcp_config is not None
    assert [file.path.removeprefix(uri_of(tmp_path)) for file in found.namespace_manifests] == [
        "/.claude-plugin/plugin.json",
        "/n/.cursor-plugin/plugin.json",
    ]
    (warning,) = found.warnings
    assert "is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0" in warning


@requirement("discover/roots:files")
def test_a_root_inside_of_a_plugin_has_its_namespace(tmp_path):
    write(tmp_path / ".claude-plugin" / "plugin.json", "{}")
    write(tmp_path / "inner" / "SKILL.md", "x")
    found = discover(tmp_path / "inner")
    assert found.plugin is None
    assert [Path(file.path).parent.name for file in found.namespace_manifests] == [".claude-plugin"]


@requirement("discover/roots:declared")
@pytest.mark.parametrize(
    ("declared", "mcp", "apps", "warnings"),
    [
        ({}, ".mcp.json", None, 0),
        ({"mcpServers": "./m.json", "apps": "./a.json"}, "m.json", "a.json", 0),
        ({"mcpServers": {"inline": 1}}, None, None, 0),
        ({"mcpServers": "./missing.json"}, None, None, 0),
        ({"mcpServers": "m.json"}, ".mcp.json", None, 1),
        ({"mcpServers": "./"}, ".mcp.json", None, 1),
        ({"mcpServers": "./../m.json"}, ".mcp.json", None, 1),
        ({"apps": "./x\\..\\a.json"}, ".mcp.json", None, 1),
        ("no object", ".mcp.json", None, 0),
    ],
)
def test_declared_files_stay_below_the_plugin(tmp_path, declared, mcp, apps, warnings):
    write(tmp_path / ".codex-plugin" / "plugin.json", json.dumps(declared))
    for name in (".mcp.json", "m.json", "a.json"):
        write(tmp_path / name, "{}")
    found = discover(tmp_path)
    assert found.plugin is not None
    files = (found.plugin.mcp_config, found.plugin.apps_config)
    assert [file and file.path.rpartition("/")[2] for file in files] == [mcp, apps]
    assert len(found.warnings) == warnings


@requirement("discover/roots:links")
def test_links_to_directories_are_followed_once(tmp_path):
    outside = tmp_path / "outside"
    write(outside / "SKILL.md", "x")
    root = tmp_path / "root"
    root.mkdir()
    os.symlink(outside, root / "link")
    os.symlink(outside, root / "twice")
    os.symlink(root, root / "loop")
    (root / "file").mkdir()
    os.symlink(outside / "SKILL.md", root / "file" / "SKILL.md")
    assert skills_of(discover(root), root) == ["link/SKILL.md"]


@requirement("discover/roots:limits")
def test_a_walk_goes_six_levels_deep(tmp_path):
    write(tmp_path.joinpath(*"123456", "SKILL.md"), "x")
    write(tmp_path.joinpath(*"1234567", "SKILL.md"), "x")
    assert skills_of(discover(tmp_path), tmp_path) == ["1/2/3/4/5/6/SKILL.md"]


@requirement("discover/roots:limits")
@pytest.mark.parametrize("limits", [{"capability_directories": 2}, {"capability_entries": 2}])
def test_a_walk_that_is_too_long_is_partial(tmp_path, limits):
    for name in "abcd":
        write(tmp_path / name / "SKILL.md", "x")
    found = discover(tmp_path, **limits)
    assert len(found.skills) < 4
    assert found.warnings == [
        f"capability scan reached its traversal limit (root: {uri_of(tmp_path)})"
    ]


@requirement("discover/roots:limits")
def test_files_and_bundles_have_a_size(tmp_path):
    write(tmp_path / "a" / "SKILL.md", "x" * 11)
    write(tmp_path / "b" / "SKILL.md", "x" * 10)
    write(tmp_path / "c" / "SKILL.md", "x" * 10)
    found = discover(tmp_path, capability_file_bytes=10, capability_root_bytes=15)
    assert skills_of(found, tmp_path) == ["b/SKILL.md"]
    assert found.warnings == [
        f"capability file {uri_of(tmp_path)}/a/SKILL.md exceeds the 10-byte limit",
        "capability root bundle exceeds the 15-byte limit",
    ]


@requirement("discover/roots:errors")
async def test_what_is_wrong_with_a_root_is_its_own(wire: Wire, tmp_path):
    write(tmp_path / "SKILL.md", "x")
    paths = [f"file://{tmp_path}/", f"file://{tmp_path}/none", f"file://{tmp_path}/SKILL.md"]
    asked = [{"id": "", "path": path} for path in [*paths, "file:///C:/x"]]
    result = await wire.call("capabilityRoots/discoverV1", {"roots": asked})
    assert [root["path"] for root in result["roots"]] == [each["path"] for each in asked]
    first, *others = result["roots"]
    assert (first["error"], len(first["skills"])) == (None, 1)
    assert [
        root["error"].removeprefix("failed to inspect capability root ") for root in others
    ] == [
        f"{paths[1]}: No such file or directory (os error 2)",
        f"capability root {paths[2]} is not a directory",
        "file:///C:/x: 'file:///C:/x' is invalid on 'linux'",
    ]


@requirement("discover/roots:limits")
async def test_a_request_has_so_many_roots(wire: Wire, tmp_path):
    error = await wire.error(
        "capabilityRoots/discoverV1", {"roots": [{"id": "", "path": f"file://{tmp_path}"}] * 129}
    )
    assert error == {
        "code": -32600,
        "message": "capability root discovery accepts at most 128 roots",
    }


@requirement("discover/sandbox:refused")
async def test_a_sandbox_is_refused_rather_than_ignored(wire: Wire, tmp_path):
    root = {"id": "", "path": f"file://{tmp_path}", "sandbox": {"policy": "x"}}
    assert (await wire.error("capabilityRoots/discoverV1", {"roots": [root]}))["code"] == -32602
    params = {"cwd": "file:///", "sandbox": {"policy": "x"}}
    assert (await wire.error("capabilities/discoverV2", params))["code"] == -32602


# Installed capabilities.


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".codex").mkdir()
    return tmp_path


def everything(home: Path, **limits: Any) -> CapabilitiesResult:
    homes = Homes(bytes(home), bytes(home / ".codex"), bytes(home / "etc"))
    return installed.discover(homes, limits=Limits(**limits))


@requirement("discover/installed:skills")
def test_skills_of_all_places_are_listed(home):
    write(home / ".codex" / "skills" / "b" / "SKILL.md", SKILL.format("second"))
    write(home / ".codex" / "skills" / ".system" / "a" / "SKILL.md", "---\ndescription: d\n---")
    write(home / ".agents" / "skills" / "c" / "SKILL.md", SKILL.format("third"))
    write(home / "etc" / "skills" / "d" / "SKILL.md", SKILL.format("fourth"))
    found = everything(home)
    assert [(skill.name, skill.discovery_root.id) for skill in found.skills] == [  # type: ignore[union-attr]
        ("a", "codex-home-skills"),
        ("second", "codex-home-skills"),
        ("third", "user-agent-skills"),
        ("fourth", "system-skills"),
    ]
    assert found.warnings == []


@requirement("discover/installed:plugins")
def test_the_right_version_of_a_plugin_is_listed(home):
    cache = home / ".codex" / "plugins" / "cache" / "market"
    for version in ("2.0.0", "10.0.0"):
        manifest = {"name": "named", "interface": {"displayName": f" Shown {version} "}}
        write(cache / "plug" / version / ".codex-plugin" / "plugin.json", json.dumps(manifest))
    write(cache / "plug" / "10.0.0" / "skills" / "s" / "SKILL.md", SKILL.format("s"))
    shop = {"schema_version": 1, "remote_plugin_id": "remote"}
    write(cache / "plug" / ".codex-remote-plugin-install.json", json.dumps(shop))
    for version in ("local", "99"):
        write(cache / "other" / version / ".claude-plugin" / "plugin.json", "{}")
    other, plugin = everything(home).plugins
    assert (plugin.id, plugin.display_name, plugin.version) == (
        "plug@market",
        "Shown 10.0.0",
        "10.0.0",
    )
    assert (plugin.remote_plugin_id, [skill.name for skill in plugin.skills]) == (
        "remote",
        ["named:s"],
    )
    assert (other.id, other.version, other.display_name) == ("other@market", "local", "local")


@requirement("discover/installed:warnings")
def test_bad_metadata_is_one_warning_a_place(home):
    for name in "ab":
        write(home / ".codex" / "skills" / name / "SKILL.md", "nothing")
    write(home / ".agents" / "skills" / "c" / "SKILL.md", "nothing")
    cache = home / ".codex" / "plugins" / "cache" / "market"
    write(cache / "bad" / "1" / ".codex-plugin" / "plugin.json", "nothing")
    (cache / "empty" / "1").mkdir(parents=True)
    found = everything(home)
    assert (found.skills, found.plugins) == ([], [])
    assert found.warnings == [installed.UNLOADED] * 4
