"""The manifest of a plugin, and the files that it names."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from exec_server.discovery.scan import MANIFEST_NAMES, BoundedReader
from exec_server.protocol.environment import CapabilityFile, PluginFiles

_DEFAULT_MCP = b".mcp.json"


def read_manifest(directory: bytes, reader: BoundedReader) -> CapabilityFile | None:
    """The first readable manifest of a plugin directory."""
    for name in MANIFEST_NAMES:
        manifest = reader.read(os.path.join(directory, name))
        if manifest is not None:
            return manifest
    return None


def read_plugin(directory: bytes, manifest: CapabilityFile, reader: BoundedReader) -> PluginFiles:
    """A manifest with the files that it names, or with the default ones."""
    declared = parse_manifest(manifest) or {}
    servers = declared.get("mcpServers")
    mcp: bytes | None = None if isinstance(servers, dict) else _DEFAULT_MCP
    if isinstance(servers, str):
        mcp = _below("mcpServers", servers, manifest, reader) or _DEFAULT_MCP
    named_apps = declared.get("apps")
    apps = None
    if isinstance(named_apps, str):
        apps = _below("apps", named_apps, manifest, reader)
    return PluginFiles(
        manifest,
        reader.read(os.path.join(directory, mcp)) if mcp is not None else None,
        reader.read(os.path.join(directory, apps)) if apps is not None else None,
    )


def parse_manifest(manifest: CapabilityFile) -> dict[str, Any] | None:
    """The declarations of a manifest; None if it is not a JSON object."""
    try:
        declared = json.loads(manifest.contents)
    except (ValueError, RecursionError):
        return None
    return declared if isinstance(declared, dict) else None


def _below(name: str, text: str, manifest: CapabilityFile, reader: BoundedReader) -> bytes | None:
    """A declared path below the plugin; None and a warning if it leads out of the plugin."""
    parts = [part for part in re.split(r"[/\\]", text) if part not in ("", ".")]
    if not text.startswith("./"):
        problem = "path must start with `./`"
    elif not parts or ".." in parts or "\0" in text:
        problem = "path must remain below the capability root"
    else:
        return os.fsencode(text.removeprefix("./"))
    reader.warnings.append(f"ignoring {name} in {manifest.path}: {problem}")
    return None
