"""The file with what a user has allowed for good, by server: `grants.toml`.

    [servers.local]
    grants = ["write=/srv/cache", "socket=unix:/run/agent.sock"]

It belongs to the user who asks for sandboxes, and not to a server: what it has widens the sandboxes
of this user's command line and of no other client. A person may edit it. It is read for each
command, so a change holds from the next one on. It is changed in place: a sandbox that protects it
would end if it was replaced.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from exec_server.errors import ConfigurationError

_NAME = "grants.toml"
_FILE_BYTES = 1 << 20
_HEAD = "# What was allowed for good; `exec-server sandbox policy` lists and removes it.\n"

# The grants by server.
Grants = dict[str, list[str]]


def grant_file(env: Mapping[str, str] = os.environ) -> Path:
    """The path of the file, by the XDG standard, which says to ignore relative paths."""
    named = env.get("XDG_CONFIG_HOME", "")
    home = Path(env.get("HOME") or "/")
    base = Path(named) if named.startswith("/") else home / ".config"
    return base / "exec-server" / _NAME


def make_grant_file(path: Path) -> None:
    """Make the file, with nothing allowed, unless it exists. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(_HEAD.encode())
    except FileExistsError:
        # Another server has made it just now; a link to a file that is missing is no such file.
        if not path.exists():
            raise


def load_grants(path: Path) -> Grants:
    """What was allowed. Raises ConfigurationError if the file cannot be used."""
    try:
        with open(path, "rb") as file:
            return _parsed(path, file.read(_FILE_BYTES))
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise ConfigurationError(f"cannot read `{path}`: {exc.strerror}") from None


def add_grant(path: Path, server: str, grant: str) -> None:
    """Allow *grant* on *server* for good. Raises ConfigurationError."""

    def add(grants: Grants) -> None:
        known = grants.setdefault(server, [])
        if grant not in known:
            known.append(grant)

    _change(path, add)


def remove_grant(path: Path, grant: str, server: str | None = None) -> int:
    """Take *grant* back, on *server* or on all; how many were removed.

    Raises ConfigurationError.
    """
    removed = 0

    def remove(grants: Grants) -> None:
        nonlocal removed
        for name, known in tuple(grants.items()):
            if grant in known and server in (None, name):
                known.remove(grant)
                removed += 1
            if not known:
                del grants[name]

    if path.exists():
        _change(path, remove)
    return removed


def _change(path: Path, change: Callable[[Grants], None]) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            grants = _parsed(path, file.read(_FILE_BYTES))
            change(grants)
            data = _text(grants).encode()
            os.pwrite(file.fileno(), data, 0)
            os.ftruncate(file.fileno(), len(data))
            os.fsync(file.fileno())
    except OSError as exc:
        raise ConfigurationError(f"cannot write `{path}`: {exc.strerror}") from None


def _parsed(path: Path, data: bytes) -> Grants:
    import tomllib

    try:
        servers: Any = tomllib.loads(data.decode()).get("servers", {})
        return {
            name: [grant for grant in entry["grants"] if isinstance(grant, str)]
            for name, entry in servers.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigurationError(f"`{path}` is no file with grants") from None


def _text(grants: Grants) -> str:
    parts = [_HEAD]
    for server, known in sorted(grants.items()):
        listed = "".join(f"    {_quoted(grant)},\n" for grant in known)
        parts.append(f"\n[servers.{_quoted(server)}]\ngrants = [\n{listed}]\n")
    return "".join(parts)


def _quoted(text: str) -> str:
    import json

    # A string of JSON is one of TOML, except for this character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
