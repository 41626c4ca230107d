"""Older releases of Codex, where `scripts/interop.sh` could install them."""

from __future__ import annotations

from pathlib import Path

from tests.support.servers import ROOT


def older_binary(version: str) -> Path | None:
    """The command of release *version*, whichever way it was packed then."""
    folder = ROOT / ".reference" / version / "node_modules" / "@openai"
    for pattern in ("codex-*/vendor/*/bin/codex", "codex-*/vendor/*/codex/codex"):
        for found in sorted(folder.glob(pattern)):
            return found
    return None
