"""`capabilities/discoverV2`: the skills and plugins that are installed on the executor."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from exec_server.discovery.homes import Homes
from exec_server.discovery.plugins import parse_manifest, read_manifest, read_plugin
from exec_server.discovery.scan import SKILL_METADATA, BoundedReader, walk
from exec_server.discovery.skills import SkillError, agent_metadata, front_matter
from exec_server.limits import Limits
from exec_server.protocol.environment import (
    CapabilitiesResult,
    DiscoveryRoot,
    Plugin,
    Skill,
)
from exec_server.protocol.paths import to_uri

UNRESOLVED = "some capability locations could not be resolved; discovery may be incomplete"
UNLOADED = "some capability metadata could not be loaded; discovery may be incomplete"

_INSTALLATION = b".codex-remote-plugin-install.json"
_LOCAL_VERSION = b"local"


def discover(homes: Homes, *, limits: Limits) -> CapabilitiesResult:
    """Read all capabilities anew from the files."""
    return _InstalledScan(homes, limits).result()


class _InstalledScan:
    def __init__(self, homes: Homes, limits: Limits) -> None:
        self._homes = homes
        self._limits = limits
        self._warnings: list[str] = []

    def result(self) -> CapabilitiesResult:
        homes = self._homes
        skills = self._root("codex-home-skills", os.path.join(homes.codex, b"skills"))
        if homes.user is not None:
            directory = os.path.join(homes.user, b".agents", b"skills")
            skills += self._root("user-agent-skills", directory)
        skills += self._root("system-skills", os.path.join(homes.system, b"skills"))
        return CapabilitiesResult(self._plugins(), skills, self._warnings)

    def _root(self, name: str, directory: bytes) -> list[Skill]:
        skills = self._skills(directory, BoundedReader(self._limits))
        root = DiscoveryRoot(name, to_uri(directory))
        for skill in skills:
            skill.discovery_root = root
        return skills

    def _skills(
        self, directory: bytes, reader: BoundedReader, *, namespace: str = ""
    ) -> list[Skill]:
        if not os.path.isdir(directory):
            return []
        found = walk(directory, self._limits)
        if not found.is_complete:
            self._warnings.append(UNRESOLVED)
        skills = [_skill(path, reader, namespace) for path in sorted(found.skills, key=to_uri)]
        if None in skills:
            # There is one warning for all of them.
            self._warnings.append(UNLOADED)
        return [skill for skill in skills if skill is not None]

    # Plugins.

    def _plugins(self) -> list[Plugin]:
        cache = os.path.join(self._homes.codex, b"plugins", b"cache")
        plugins = [
            self._plugin(market, os.path.join(cache, market, name))
            for market in _folders(cache)
            for name in _folders(os.path.join(cache, market))
        ]
        found = [plugin for plugin in plugins if plugin is not None]
        return sorted(found, key=lambda plugin: plugin.id)

    def _plugin(self, market: bytes, directory: bytes) -> Plugin | None:
        """An installed plugin, in the version that is in use."""
        version = _version_in_use(_folders(directory))
        if version is None:
            return None
        root = os.path.join(directory, version)
        reader = BoundedReader(self._limits)
        manifest = read_manifest(root, reader)
        declared = parse_manifest(manifest) if manifest is not None else None
        if manifest is None or declared is None:
            self._warnings.append(UNLOADED)
            return None
        name = _stripped(declared.get("name")) or _shown(version)
        interface = declared.get("interface")
        title = _stripped(interface.get("displayName")) if isinstance(interface, dict) else None
        files = read_plugin(root, manifest, reader)
        return Plugin(
            id=f"{_shown(os.path.basename(directory))}@{_shown(market)}",
            display_name=title or name,
            remote_plugin_id=_remote_id(directory, reader),
            version=_shown(version),
            root=to_uri(root),
            files=files,
            skills=self._skills(root, reader, namespace=f"{name}:"),
        )


def _skill(path: bytes, reader: BoundedReader, namespace: str) -> Skill | None:
    """The skill of the file *path*; None if the file describes none."""
    folder = os.path.dirname(path)
    instructions = reader.read(path)
    if instructions is None:
        return None
    try:
        name, description, short = front_matter(instructions.contents)
    except SkillError:
        return None
    metadata = reader.read(os.path.join(folder, SKILL_METADATA))
    dependencies, policy = agent_metadata(metadata.contents if metadata is not None else None)
    return Skill(
        name=namespace + (name or _shown(os.path.basename(folder))),
        description=description,
        short_description=short,
        path=instructions.path,
        dependencies=dependencies,
        policy=policy,
    )


def _folders(directory: bytes) -> list[bytes]:
    try:
        with os.scandir(directory) as listing:
            return sorted(entry.name for entry in listing if entry.is_dir())
    except OSError:
        return []


def _version_in_use(versions: list[bytes]) -> bytes | None:
    if _LOCAL_VERSION in versions:
        return _LOCAL_VERSION
    return max(versions, key=_version_key, default=None)


def _version_key(version: bytes) -> tuple[list[int], bytes]:
    # Longer numbers are not versions, and are slow to compare.
    return [int(digits[:18]) for digits in re.findall(rb"[0-9]+", version)], version


def _remote_id(directory: bytes, reader: BoundedReader) -> str | None:
    """The marketplace's id of the plugin that is installed here."""
    file = reader.read(os.path.join(directory, _INSTALLATION))
    try:
        installed: Any = json.loads(file.contents) if file is not None else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(installed, dict) or installed.get("schema_version") != 1:
        return None
    remote_id = installed.get("remote_plugin_id")
    return remote_id if isinstance(remote_id, str) else None


def _stripped(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "replace")
