"""The file of known executors, like that of ssh: one key for each environment.

A line holds the registry, the environment and the fingerprint; the first line for an environment
counts. Lines are only added or turned into comments, each in one step, so that programs need no
lock between them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from exec_server.errors import ConfigurationError

_FILE_BYTES = 1 << 20
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Known(NamedTuple):
    """The entry of an environment, and its place in the file."""

    fingerprint: str
    path: Path
    line: int


class KnownExecutors:
    """The file at *path*; a missing file is like an empty one.

    All methods raise ConfigurationError if other users can write to it, or it is malformed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, registry_url: str, environment_id: str) -> Known | None:
        name = _name(registry_url, environment_id)
        for number, line in enumerate(self._read().splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 3:
                raise self._unusable(f"line {number} is not `REGISTRY ENVIRONMENT FINGERPRINT`")
            if (words[0], words[1]) == name:
                return Known(words[2], self._path, number)
        return None

    def add(self, registry_url: str, environment_id: str, fingerprint: str) -> Known:
        """Store *fingerprint* and return the entry that counts.

        If another program has stored one in the meantime, that one counts.
        """
        line = " ".join((*_name(registry_url, environment_id), fingerprint))
        try:
            self._append(line)
        except OSError as exc:
            raise self._unusable(exc.strerror or str(exc)) from None
        found = self.find(registry_url, environment_id)
        if found is None:
            raise self._unusable("the new line is gone")
        return found

    def forget(self, registry_url: str, environment_id: str) -> bool:
        """Turn the lines of the environment into comments; True if there was one."""
        name = _name(registry_url, environment_id)
        self._read()
        try:
            with self._path.open("r+b", buffering=0) as file:
                starts = _starts_of(file.read(_FILE_BYTES), name)
                for start in starts:
                    os.pwrite(file.fileno(), b"#", start)
                os.fsync(file.fileno())
        except FileNotFoundError:
            return False
        except OSError as exc:
            raise self._unusable(exc.strerror or str(exc)) from None
        return bool(starts)

    def _append(self, line: str) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # An editor may have left the last line without a newline.
        text = self._read()
        start = "" if not text or text.endswith("\n") else "\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o600)
        try:
            os.write(fd, f"{start}{line}\n".encode())
            os.fsync(fd)
        finally:
            os.close(fd)

    def _read(self) -> str:
        try:
            with self._path.open("rb") as file:
                self._check(os.fstat(file.fileno()))
                data = file.read(_FILE_BYTES + 1)
        except FileNotFoundError:
            return ""
        except OSError as exc:
            raise self._unusable(exc.strerror or str(exc)) from None
        if len(data) > _FILE_BYTES:
            raise self._unusable("it is too long")
        return data.decode("utf-8", "replace")

    def _check(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise self._unusable("it is not a regular file that you own")
        if status.st_mode & 0o022:
            raise self._unusable("others can write to it: chmod 600 it")

    def _unusable(self, why: str) -> ConfigurationError:
        return ConfigurationError(f"cannot use the known executors in `{self._path}`: {why}")


def _starts_of(data: bytes, name: tuple[str, str]) -> list[int]:
    """Return the offsets of the lines of an environment; a `#` there makes each a comment."""
    starts, offset = [], 0
    for line in data.splitlines(keepends=True):
        words = line.decode("utf-8", "replace").split()
        if tuple(words[:2]) == name:
            starts.append(offset + len(line) - len(line.lstrip()))
        offset += len(line)
    return starts


def _name(registry_url: str, environment_id: str) -> tuple[str, str]:
    """Return registry and environment without blanks, in one spelling."""
    parts = urlsplit(registry_url.strip())
    host = parts.netloc.lower().removesuffix(_DEFAULT_PORTS.get(parts.scheme, ""))
    base = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
    return quote(base, safe=":/[]@%"), quote(environment_id.strip(), safe="")
