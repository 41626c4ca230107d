"""Environments that `exec-server pair` has added: one private file each, named after it.

Codex's `environments.toml` cannot describe an environment behind a registry, and it is the user's
file, which this package does not write.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from exec_server.client.environments.environments_toml import Configuration, check_id
from exec_server.client.environments.kinds import RendezvousEnvironment
from exec_server.errors import ConfigurationError

_SUFFIX = ".json"
_FILE_BYTES = 64 << 10
# A person does not pair more environments than this; further files are ignored.
_MOST = 10_000


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """The content of such a file; its token is a secret."""

    registry: str
    environment: str
    token: str
    # The file with the key of this machine; None in files of earlier versions.
    identity: str | None = None

    def __repr__(self) -> str:
        return f"Paired({self.registry!r}, {self.environment!r})"


class PairedToken:
    """Reads the token from the file when it is needed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> str:
        return load(self._path).token


def folder(env: Mapping[str, str]) -> Path:
    """The folder of the files, by the XDG standard, which says to ignore relative paths."""
    named = env.get("XDG_STATE_HOME", "")
    home = Path(env.get("HOME") or Path.home())
    base = Path(named) if named.startswith("/") else home / ".local" / "state"
    return base / "exec-server" / "paired"


def file_of(directory: Path, name: str) -> Path:
    """The file for *name*. Raises ConfigurationError if the name is not valid."""
    check_id(name, taken=())
    return directory / f"{name}{_SUFFIX}"


def add_to(configuration: Configuration, directory: Path) -> Configuration:
    """*configuration* with the paired environments whose names it does not have already.

    A file that cannot be used is left out, so its name is not configured.
    """
    taken = [each.id for each in configuration.environments]
    added = [each for each in environments(directory) if each.id not in taken]
    if not added:
        return configuration
    environments_and_paired = (*configuration.environments, *added)
    return msgspec.structs.replace(configuration, environments=environments_and_paired)


def environments(directory: Path) -> list[RendezvousEnvironment]:
    """The paired environments, by name; files that cannot be used are left out."""
    try:
        paths = sorted(directory.glob(f"*{_SUFFIX}"))[:_MOST]
    except OSError:
        return []
    found = []
    for path in paths:
        with contextlib.suppress(ConfigurationError):
            check_id(path.stem, taken=())
            kept = load(path)
            found.append(
                RendezvousEnvironment(
                    path.stem,
                    kept.registry,
                    kept.environment,
                    token=PairedToken(path),
                    identity=kept.identity,
                )
            )
    return found


def load(path: Path) -> Paired:
    """Read a file. Raises ConfigurationError if it is not valid, or not private."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            _check_private(path, os.fstat(fd))
            return msgspec.json.decode(file.read(_FILE_BYTES), type=Paired)
    except OSError as exc:
        raise ConfigurationError(f"cannot read `{path}`: {exc.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConfigurationError(f"`{path}` is no environment that was paired") from None


def save(directory: Path, name: str, kept: Paired) -> Path:
    """Write the file for *name*, in one step. Raises ConfigurationError."""
    path = file_of(directory, name)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkstemp makes the file with mode 0600.
        fd, temporary = tempfile.mkstemp(dir=directory, prefix=".new-")
        try:
            with open(fd, "wb") as file:
                file.write(msgspec.json.encode(kept))
                file.flush()
                os.fsync(fd)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as exc:
        raise ConfigurationError(f"cannot write `{path}`: {exc.strerror}") from None
    return path


def forget(directory: Path, name: str) -> None:
    """Remove the file for *name*. Raises ConfigurationError if there is none."""
    path = file_of(directory, name)
    try:
        os.unlink(path)
    except FileNotFoundError:
        raise ConfigurationError(f"nothing was paired as `{name}`") from None
    except OSError as exc:
        raise ConfigurationError(f"cannot forget `{name}`: {exc.strerror}") from None


def _check_private(path: Path, status: os.stat_result) -> None:
    is_private = stat.S_ISREG(status.st_mode) and not status.st_mode & 0o077
    if not is_private or status.st_uid != os.geteuid():
        raise ConfigurationError(f"`{path}` is not private: others can read or change it")
