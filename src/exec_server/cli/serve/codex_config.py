"""Codex's `config.toml`, which `--strict-config` checks. No setting of it has an effect here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from exec_server.errors import ConfigurationError


def check_config(environ: Mapping[str, str]) -> None:
    """Raise ConfigurationError if the file exists and is not TOML.

    The names of settings are not checked: only Codex knows them all.
    """
    import tomllib

    home = environ.get("CODEX_HOME")
    path = (
        Path(home) if home else Path(environ.get("HOME") or Path.home()) / ".codex"
    ) / "config.toml"
    try:
        tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as exc:
        raise ConfigurationError(f"{path}: {exc}") from exc
