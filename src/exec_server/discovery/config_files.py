"""`environmentConfig/read`: selected parts of the executor's own configuration files."""

from __future__ import annotations

import functools
import os
import socket
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from exec_server.discovery import toml_text
from exec_server.discovery.homes import Homes, find_homes
from exec_server.discovery.toml_text import Table
from exec_server.errors import InternalError
from exec_server.limits import Limits
from exec_server.protocol import environment
from exec_server.protocol.paths import to_uri

Paths = Sequence[Sequence[str]]

_DEFAULT_ROOT_MARKERS = [".git"]
# Settings that a project cannot make for the user who opens it.
_NOT_FOR_PROJECTS = (
    "openai_base_url",
    "chatgpt_base_url",
    "apps_mcp_product_sku",
    "responses_api_metadata",
    "model_provider",
    "model_providers",
    "notify",
    "profile",
    "profiles",
    "experimental_realtime_webrtc_call_base_url",
    "experimental_realtime_ws_base_url",
    "otel",
    "features.respect_system_proxy",
    "tui.keymap.chat.previous_permission_mode",
    "tui.keymap.chat.next_permission_mode",
)


class Layer(NamedTuple):
    source: str
    directory: bytes
    table: Table


def read(
    params: environment.ConfigReadParams, environ: Mapping[str, str], *, limits: Limits
) -> environment.ConfigReadResult:
    """Read the files anew. Raises InternalError for a file that cannot be read."""
    try:
        homes = find_homes(environ)
    except InternalError as exc:
        raise InternalError(f"failed to find Codex home: {exc}") from exc
    try:
        config = _config_layers(homes, params.cwd.native, limits)
        requirements = _requirement_layers(homes, limits)
    except (OSError, ValueError) as exc:
        raise InternalError(f"failed to load executor-local config: {exc}") from exc
    return environment.ConfigReadResult(
        user_home_dir=to_uri(homes.user) if homes.user is not None else None,
        codex_home_dir=to_uri(homes.codex),
        hostname=hostname(),
        config=_selected(config, params.config_paths, homes),
        requirements=_selected(requirements, params.requirements_paths, homes),
    )


# The layers, from the lowest to the highest precedence.


def _config_layers(homes: Homes, cwd: bytes, limits: Limits) -> list[Layer]:
    load = functools.partial(_load, limits=limits)
    system = load("system", homes.system, b"config.toml")
    user = load("user", homes.codex, b"config.toml")
    managed = load("legacy managed_config.toml", homes.system, b"managed_config.toml")
    merged: Table = {}
    for layer in (*system, *user, *managed):
        _merge(merged, layer.table)
    projects = [
        layer._replace(table=_without_forbidden(layer.table))
        for directory in _project_directories(cwd, merged)
        if directory != homes.codex
        for layer in load("project", directory, b"config.toml")
    ]
    return [*system, *user, *projects, *managed]


def _requirement_layers(homes: Homes, limits: Limits) -> list[Layer]:
    required = [
        layer._replace(source=_shown(os.path.join(homes.system, b"requirements.toml")))
        for layer in _load("", homes.system, b"requirements.toml", limits=limits)
    ]
    managed = [
        layer._replace(table=_as_requirements(layer.table))
        for layer in _load(
            "legacy managed_config.toml", homes.system, b"managed_config.toml", limits=limits
        )
    ]
    return [*required, *managed]


def _as_requirements(managed: Table) -> Table:
    """The settings of an administrator, as requirements for the users' choice."""
    table: Table = {}
    if "approval_policy" in managed:
        table["allowed_approval_policies"] = [managed["approval_policy"]]
    if "sandbox_mode" in managed:
        modes = ["read-only", managed["sandbox_mode"]]
        table["allowed_sandbox_modes"] = modes[:1] if modes[0] == modes[1] else modes
    if "approvals_reviewer" in managed:
        table["allowed_approvals_reviewers"] = [managed["approvals_reviewer"]]
    return table


def _load(kind: str, directory: bytes, name: bytes, *, limits: Limits) -> list[Layer]:
    """The layer of a file, in a list that is empty if there is no such file."""
    path = os.path.join(directory, name)
    try:
        with open(path, "rb") as file:
            text = file.read(limits.config_file_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        return []
    shown = _shown(path)
    if len(text) > limits.config_file_bytes:
        raise ValueError(f"{shown} has more than {limits.config_file_bytes} bytes")
    try:
        table = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"{shown}: {exc}") from exc
    return [Layer(f"{kind} ({shown})", directory, table)]


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "replace")


def _merge(into: Table, table: Table) -> None:
    for key, value in table.items():
        inner = into.get(key)
        if isinstance(value, dict) and isinstance(inner, dict):
            _merge(inner, value)
        else:
            into[key] = _copied(value)


def _copied(value: Any) -> Any:
    return {key: _copied(inner) for key, inner in value.items()} if type(value) is dict else value


# Projects.


def _project_directories(cwd: bytes, merged: Table) -> list[bytes]:
    """The `.codex` of each directory from a trusted project's root down to *cwd*."""
    root = _project_root(cwd, merged.get("project_root_markers", _DEFAULT_ROOT_MARKERS))
    if not _is_trusted(root, merged.get("projects")):
        return []
    chain = [cwd, *_ancestors(cwd)]
    below_root = chain[: chain.index(root) + 1]
    return [os.path.join(directory, b".codex") for directory in reversed(below_root)]


def _project_root(cwd: bytes, markers: Any) -> bytes:
    if not isinstance(markers, list) or not all(isinstance(each, str) for each in markers):
        raise ValueError("project_root_markers must be an array of strings")
    for directory in (cwd, *_ancestors(cwd)):
        if any(_has_marker(directory, os.fsencode(marker)) for marker in markers):
            return directory
    return cwd


def _ancestors(path: bytes) -> Iterator[bytes]:
    while path != (parent := os.path.dirname(path)):
        yield parent
        path = parent


def _has_marker(directory: bytes, marker: bytes) -> bool:
    path = os.path.join(directory, marker)
    if marker == b".git" and os.path.isdir(path):
        # An empty directory with this name is not a repository.
        return os.path.exists(os.path.join(path, b"HEAD"))
    return os.path.exists(path)


def _is_trusted(root: bytes, projects: Any) -> bool:
    if not isinstance(projects, dict):
        return False
    for path in (os.path.realpath(root), root):
        project = projects.get(os.fsdecode(path))
        if isinstance(project, dict):
            return bool(project.get("trust_level") == "trusted")
    return False


def _without_forbidden(table: Table) -> Table:
    table = _copied(table)
    for name in _NOT_FOR_PROJECTS:
        *parents, key = name.split(".")
        inner: Any = table
        for parent in parents:
            inner = inner.get(parent) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner.pop(key, None)
    return table


# Selection.


def _selected(layers: list[Layer], paths: Paths, homes: Homes) -> environment.ConfigLayers:
    """The layers with the parts that *paths* select, without empty layers."""
    kept = [layer._replace(table=select(layer.table, paths)) for layer in layers]
    kept = [layer for layer in kept if layer.table]
    # Layers from other sources belong between the system's layer and all others.
    has_system = bool(kept) and kept[0].directory == homes.system and _is_first(kept[0])
    return environment.ConfigLayers(
        [
            environment.ConfigLayer(
                each.source, to_uri(each.directory), toml_text.dumps(each.table)
            )
            for each in kept
        ],
        int(has_system),
    )


def _is_first(layer: Layer) -> bool:
    return not layer.source.startswith("legacy")


def select(table: Table, paths: Paths) -> Table:
    """The parts of *table* at *paths*, in its own order.

    If a value on the way of a path is not a table, the whole value is kept. If it is a table, it is
    kept even if no part of it is selected.
    """
    chosen: Table = {}
    for key, value in table.items():
        tails = [path[1:] for path in paths if path[0] == key]
        if not tails:
            continue
        is_way = isinstance(value, dict) and all(tails)
        chosen[key] = select(value, tails) if is_way else value
    return chosen


@functools.cache
def hostname() -> str | None:
    """The full name of this host if the resolver knows one. It is asked only once."""
    name = socket.gethostname()
    try:
        found = socket.getaddrinfo(name, None, flags=socket.AI_CANONNAME)
    except OSError:
        found = []
    full = next((canonical for *_, canonical, _ in found if "." in canonical), name)
    return full.lower().rstrip(".") or None
