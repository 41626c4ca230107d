"""`capabilityRoots/discoverV1`: plugins and skills below directories that a client names."""

from __future__ import annotations

import os

from exec_server.discovery.plugins import read_manifest, read_plugin
from exec_server.discovery.scan import SKILL_METADATA, BoundedReader, FoundCapabilities, walk
from exec_server.errors import InvalidRequest
from exec_server.limits import Limits
from exec_server.protocol import environment
from exec_server.protocol.environment import CapabilityFile, DiscoveredRoot, SkillFiles
from exec_server.protocol.paths import to_uri


def discover(root: environment.CapabilityRoot, limits: Limits) -> DiscoveredRoot:
    """All capabilities of one root. Problems are a part of the answer."""
    result = DiscoveredRoot(root.id, root.path.text)
    result.error = _inspect(root)
    if result.error is not None:
        return result
    directory = root.path.native
    reader = BoundedReader(limits)
    found = walk(directory, limits)
    if not found.is_complete:
        reader.warnings.append(
            f"capability scan reached its traversal limit (root: {root.path.text})"
        )
    manifest = read_manifest(directory, reader)
    if manifest is not None:
        result.plugin = read_plugin(directory, manifest, reader)
    result.namespace_manifests = _namespaces(directory, manifest, found, reader)
    result.skills = _skills(found, reader)
    result.warnings = reader.warnings
    return result


def not_inspected(root: environment.CapabilityRoot, reason: Exception) -> DiscoveredRoot:
    """The answer for a root that cannot be inspected."""
    return DiscoveredRoot(root.id, root.path.text, error=_failure(root, reason))


def _failure(root: environment.CapabilityRoot, reason: object) -> str:
    return f"failed to inspect capability root {root.path.text}: {reason}"


def _inspect(root: environment.CapabilityRoot) -> str | None:
    """The reason why a root cannot be walked, or None."""
    try:
        is_directory = os.path.isdir(root.path.native) or not os.stat(root.path.native)
    except InvalidRequest as exc:
        return _failure(root, exc)
    except OSError as exc:
        return _failure(root, f"{exc.strerror} (os error {exc.errno})")
    return None if is_directory else f"capability root {root.path.text} is not a directory"


def _namespaces(
    root: bytes, manifest: CapabilityFile | None, found: FoundCapabilities, reader: BoundedReader
) -> list[CapabilityFile]:
    """The root's manifest, or the nearest one above it; then those of plugins inside."""
    above = root
    while manifest is None and above != os.path.dirname(above):
        above = os.path.dirname(above)
        manifest = read_manifest(above, reader)
    nested = (
        read_manifest(directory, reader)
        for directory in sorted(found.plugins, key=to_uri)
        if directory != root
    )
    return [each for each in (manifest, *nested) if each is not None]


def _skills(found: FoundCapabilities, reader: BoundedReader) -> list[SkillFiles]:
    skills = []
    for path in sorted(found.skills, key=to_uri):
        instructions = reader.read(path)
        if instructions is not None:
            metadata = reader.read(os.path.join(os.path.dirname(path), SKILL_METADATA))
            skills.append(SkillFiles(instructions, metadata))
    return skills
