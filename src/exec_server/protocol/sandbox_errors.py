"""Errors in a sandbox context, in the words of the reference."""

from __future__ import annotations

import re

_MISSING = r"Object missing required field (`[^`]*`)"
_UNKNOWN = r"(?s)Invalid (?:enum )?value '(.*)' - at `(.*)`"
# The keys are the ends of paths in the member.
_VARIANTS = {
    "permissions.type": ("managed", "disabled", "external"),
    "file_system.type": ("restricted", "unrestricted"),
    "path.type": ("path", "glob_pattern", "special"),
    "value.kind": (
        "root",
        "minimal",
        "current_working_directory",
        "project_roots",
        "tmpdir",
        "slash_tmp",
        "unknown",
    ),
    ".access": ("read", "write", "deny", "none"),
    ".network": ("restricted", "enabled"),
    ".missing_path_behavior": ("skip",),
    ".windowsSandboxLevel": ("disabled", "restricted-token", "elevated", "mxc"),
    ".windowsSandboxProxySettingsMode": ("reconcile", "preserve"),
    ".sandboxOverride": (
        "noOverride",
        "escalatedSandboxWithRestrictions",
        "bypassSandboxFirstAttempt",
    ),
    "sandboxPolicy.type": (
        "danger-full-access",
        "read-only",
        "external-sandbox",
        "workspace-write",
    ),
}


def in_reference_words(text: str) -> str:
    """The error of msgspec in the words of the reference."""
    missing = re.match(_MISSING, text)
    if missing is not None:
        return f"missing field {missing[1]}"
    unknown = re.match(_UNKNOWN, text)
    if unknown is None:
        return text
    for where, variants in _VARIANTS.items():
        if unknown[2].endswith(where):
            return f"unknown variant `{unknown[1]}`, expected {_any_of(variants)}"
    return text


def _any_of(variants: tuple[str, ...]) -> str:
    quoted = [f"`{name}`" for name in variants]
    return " or ".join(quoted) if len(quoted) < 3 else f"one of {', '.join(quoted)}"
