"""The environments that this machine is enrolled as: a private record and a token for each."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from exec_server.errors import ConfigurationError
from exec_server.remote.state_dir import state_home

_FILE_BYTES = 64 << 10
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


def check_name(name: str) -> str:
    """Return *name* if it is valid for an environment. Raises ConfigurationError if not."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"invalid environment name `{name}`; expected up to 128 letters, digits, `-`, `_` "
            "and `.`"
        )
    return name


class Enrolled(msgspec.Struct, frozen=True, kw_only=True):
    """How this machine serves an environment."""

    registry: str
    environment: str
    # The file with the key of the executor.
    identity: str
    # The file with the token; None if the token is in an environment variable.
    token_file: str | None
    # True if the token was made for this machine alone, and is revoked with the enrolment.
    is_own: bool


class Enrolments:
    """The files in this user's state directory. All methods raise ConfigurationError."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._folder = state_home(environ) / "enrolled"

    def own_token_file(self, name: str) -> Path:
        """Return the path of the token that was made for this machine."""
        return self._folder / f"{check_name(name)}.token"

    def harness_file(self, name: str) -> Path:
        """Return the path of the keys that the environment serves; the file may be missing."""
        return self._folder / f"{check_name(name)}.harnesses"

    def find(self, name: str) -> Enrolled | None:
        path = self._record(name)
        try:
            data = path.read_bytes()[:_FILE_BYTES]
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _failed("read", path, exc) from None
        try:
            return msgspec.json.decode(data, type=Enrolled)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ConfigurationError(f"`{path}` is not a record of an enrolment") from None

    def save(self, enrolled: Enrolled, token: str | None = None) -> None:
        """Write the record, and the *token* that was made for it."""
        name = enrolled.environment
        if token is not None:
            _write(self.own_token_file(name), f"{token}\n".encode())
        _write(self._record(name), msgspec.json.encode(enrolled))

    def forget(self, name: str) -> None:
        for path in (self._record(name), self.own_token_file(name), self.harness_file(name)):
            try:
                path.unlink(missing_ok=True)
            except OSError as exc:
                raise _failed("remove", path, exc) from None

    def _record(self, name: str) -> Path:
        return self._folder / f"{check_name(name)}.json"


def _write(path: Path, data: bytes) -> None:
    """Write the whole file or nothing, readable by its owner alone."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkstemp makes it with mode 0600.
        fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with open(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as exc:
        raise _failed("write", path, exc) from None


def _failed(what: str, path: Path, exc: OSError) -> ConfigurationError:
    return ConfigurationError(f"cannot {what} `{path}`: {exc.strerror}")
