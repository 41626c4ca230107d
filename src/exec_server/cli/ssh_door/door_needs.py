"""What a door cannot be without: its host key, and asyncssh."""

from __future__ import annotations

from pathlib import Path

from exec_server.cli.ssh_door.known_door import usual_key_dir
from exec_server.errors import ConfigurationError
from exec_server.ssh_door.host_key import HostKey


def host_key(directory: str | None = None) -> HostKey:
    """The host key of this user, or the one in *directory*."""
    return HostKey(Path(directory or usual_key_dir()))


def require_asyncssh() -> None:
    """Raise ConfigurationError if the extra is not installed."""
    from importlib.util import find_spec

    if find_spec("asyncssh") is None:
        raise ConfigurationError(
            "the package `asyncssh` is not installed: pip install 'exec-server[ssh]'"
        )
