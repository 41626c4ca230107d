"""Sandboxes that tests of file calls and of commands ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exec_server.protocol import sandbox

Context = dict[str, Any]


def special(kind: str, access: str, **members: str) -> dict[str, Any]:
    return {"path": {"type": "special", "value": {"kind": kind, **members}}, "access": access}


def at(path: object, access: str) -> dict[str, Any]:
    return {"path": {"type": "path", "path": f"file://{path}"}, "access": access}


def glob(pattern: str) -> dict[str, Any]:
    return {"path": {"type": "glob_pattern", "pattern": pattern}, "access": "deny"}


def managed(*entries: dict[str, Any], network: str = "restricted", **members: Any) -> Context:
    files = {"type": "restricted", "entries": list(entries)}
    permissions = {"type": "managed", "file_system": files, "network": network}
    return {"permissions": permissions, "windowsSandboxLevel": "disabled", **members}


def read_only() -> Context:
    context: Context = sandbox.read_only().wire
    return context


def workspace_write(workspace: Path) -> Context:
    context: Context = sandbox.workspace_write([workspace], exclude_tmp=True).wire
    return context


def scoped(workspace: Path) -> Context:
    """Only the workspace and what programs need exist."""
    return managed(special("minimal", "read"), at(workspace, "write"))


def closed(workspace: Path) -> Context:
    """A writable workspace with parts that are closed or read-only."""
    return managed(
        special("root", "read"),
        at(workspace, "write"),
        at(workspace / "closed", "deny"),
        at(workspace / "secret", "deny"),
        at(workspace / "fixed", "read"),
    )


def without_secrets(workspace: Path) -> Context:
    """A writable workspace whose *.env files cannot be read."""
    return managed(special("root", "read"), at(workspace, "write"), glob(f"{workspace}/**/*.env"))
