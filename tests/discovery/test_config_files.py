"""environmentConfig/read: layers of the executor's own configuration."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from exec_server.discovery import config_files
from exec_server.discovery.homes import Homes
from exec_server.errors import InternalError, InvalidParams
from exec_server.limits import Limits
from exec_server.protocol.environment import ConfigReadParams, ConfigReadResult
from exec_server.protocol.paths import PathUri
from tests.requirements import requirement
from tests.support.files import uri as uri_of


class Machine:
    """A home and a system directory for one test."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.system = root / "home", root / "etc"
        self.codex = self.home / ".codex"
        for folder in (self.codex, self.system):
            folder.mkdir(parents=True)
        homes = Homes(bytes(self.home), bytes(self.codex), bytes(self.system))
        monkeypatch.setattr(config_files, "find_homes", lambda environ: homes)

    def read(self, *paths: str, cwd: Path | None = None, required: Any = ()) -> ConfigReadResult:
        params = ConfigReadParams(
            PathUri.of(bytes(cwd or self.home)),
            [path.split(".") for path in paths],
            [[name] for name in required],
        )
        return config_files.read(params, {}, limits=Limits())

    def project(self, name: str = "project", *, is_trusted: bool = True) -> Path:
        root = self.home.parent / name
        (root / ".git").mkdir(parents=True)
        (root / ".git" / "HEAD").touch()
        if is_trusted:
            with (self.codex / "config.toml").open("a") as file:
                file.write(f'\n[projects."{root}"]\ntrust_level = "trusted"\n')
        return root


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Machine:
    return Machine(tmp_path.resolve(), monkeypatch)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@requirement("config/read:select")
@pytest.mark.parametrize(
    ("paths", "kept"),
    [
        ([["a"]], "a = 1"),
        ([["a", "x"]], "a = 1"),
        ([["t", "x"]], "[t]\nx = 1"),
        ([["t"], ["t", "x"]], "[t]\nx = 1\ny = 2"),
        ([["t", "none"]], "[t]"),
        ([["l", "x"]], "l = [{x = 1}]"),
        ([["none"]], ""),
        ([["t", "y"], ["a"]], "a = 1\n[t]\ny = 2"),
    ],
)
def test_paths_select(paths, kept):
    table = tomllib.loads("a = 1\nl = [{x = 1}]\n[t]\nx = 1\ny = 2\n")
    selected = config_files.select(table, paths)
    assert selected == tomllib.loads(kept)
    assert list(selected) == [key for key in table if key in selected]


@requirement("config/read:layers", "config/read:index")
def test_layers_come_from_the_lowest_to_the_highest(machine):
    project = machine.project()
    write(machine.system / "config.toml", "m = 'system'")
    write(machine.system / "managed_config.toml", "m = 'managed'")
    user = machine.codex / "config.toml"
    user.write_text("m = 'user'\n" + user.read_text())
    write(project / ".codex" / "config.toml", "m = 'root'")
    write(project / "a" / "b" / ".codex" / "config.toml", "m = 'inner'")
    layers = machine.read("m", cwd=project / "a" / "b").config
    assert [tomllib.loads(layer.toml)["m"] for layer in layers.layers] == [
        "system", "user", "root", "inner", "managed",
    ]  # fmt: skip
    assert layers.cloud_insertion_index == 1
    assert layers.layers[0].source == f"system ({machine.system}/config.toml)"
    assert layers.layers[2].source == f"project ({project}/.codex/config.toml)"
    assert layers.layers[2].base_dir == uri_of(project / ".codex")
    assert layers.layers[4].source == (
        f"legacy managed_config.toml ({machine.system}/managed_config.toml)"
    )


@requirement("config/read:index")
def test_a_layer_without_a_selection_is_left_out(machine):
    write(machine.system / "config.toml", "x = 1")
    write(machine.system / "managed_config.toml", "m = 1")
    layers = machine.read("m").config
    assert [layer.toml for layer in layers.layers] == ["m = 1\n"]
    assert layers.cloud_insertion_index == 0


@requirement("config/read:trust")
def test_a_project_counts_only_when_it_is_trusted(machine):
    project = machine.project(is_trusted=False)
    write(project / ".codex" / "config.toml", "not even [TOML")
    assert machine.read("m", cwd=project).config.layers == []


@requirement("config/read:trust")
def test_a_project_does_not_decide_everything(machine):
    project = machine.project()
    text = (
        "notify = ['x']\nm = 1\n[features]\nrespect_system_proxy = true\nother = 1\n[profiles.p]\n"
    )
    write(project / ".codex" / "config.toml", text)
    (layer,) = machine.read("notify", "m", "features", "profiles", cwd=project).config.layers
    assert tomllib.loads(layer.toml) == {"m": 1, "features": {"other": 1}}


@requirement("config/read:trust")
def test_the_root_of_a_project_has_a_marker(machine):
    project = machine.project()
    inner = project / "inner"
    (inner / ".git").mkdir(parents=True)  # A .git directory without HEAD is no repository.
    write(project / ".codex" / "config.toml", "m = 1")
    assert len(machine.read("m", cwd=inner).config.layers) == 1
    with (machine.codex / "config.toml").open("r+") as file:
        text = file.read()
        file.seek(0)
        file.write("project_root_markers = []\n" + text)
    assert machine.read("m", cwd=inner).config.layers == []
    assert len(machine.read("m", cwd=project).config.layers) == 1


@requirement("config/read:requirements")
def test_requirements_are_read_and_translated(machine):
    write(machine.system / "requirements.toml", "x = 1\ny = 2")
    text = "approval_policy = 'never'\nsandbox_mode = 'workspace-write'\napprovals_reviewer = 'a'"
    write(machine.system / "managed_config.toml", text)
    required = ["x", "allowed_approval_policies", "allowed_sandbox_modes"]
    layers = machine.read(required=required).requirements
    assert [tomllib.loads(layer.toml) for layer in layers.layers] == [
        {"x": 1},
        {
            "allowed_approval_policies": ["never"],
            "allowed_sandbox_modes": ["read-only", "workspace-write"],
        },
    ]
    assert layers.layers[0].source == f"{machine.system}/requirements.toml"
    assert layers.cloud_insertion_index == 1


@requirement("config/read:failures")
@pytest.mark.parametrize("text", ["[x", "project_root_markers = 1", "x = '\0'"])
def test_a_file_that_cannot_be_used_is_an_error(machine, text):
    write(machine.codex / "config.toml", text)
    with pytest.raises(InternalError, match=r"^failed to load executor-local config: "):
        machine.read("m")


@requirement("config/read:failures")
def test_a_home_that_is_not_there_is_an_error(tmp_path):
    params = ConfigReadParams(PathUri.of("/"), [["a"]], [])
    home = tmp_path / "none"
    with pytest.raises(InternalError) as caught:
        config_files.read(params, {"CODEX_HOME": str(home)}, limits=Limits())
    assert str(caught.value) == (
        f'failed to find Codex home: CODEX_HOME points to "{home}", but that path does not exist'
    )


@requirement("config/read:params")
@pytest.mark.parametrize("paths", [([], []), ([[]], [["a"]]), ([["a"]], [[]])])
def test_paths_have_keys(paths):
    with pytest.raises(InvalidParams):
        ConfigReadParams(PathUri.of("/"), *paths)


def test_a_host_has_a_name():
    name = config_files.hostname()
    assert name is None or name == name.lower()
