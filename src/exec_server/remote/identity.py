"""The keys of an executor in a private file, so that they outlive the process."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from exec_server.errors import ConfigurationError
from exec_server.protocol.registry import HARNESS_IDENTITY_VARIABLE
from exec_server.relay.keys import SEED_BYTES, KeyPair

_BEGIN = "-----BEGIN EXEC-SERVER IDENTITY-----"
_END = "-----END EXEC-SERVER IDENTITY-----"
_FILE_BYTES = 4096


def create_identity(path: Path, *, may_replace: bool = False) -> KeyPair:
    """Make new keys, and write them to a file of mode 0600 in one step.

    Raises ConfigurationError if the file cannot be written, or exists and may not be replaced.
    """
    seed = os.urandom(SEED_BYTES)
    text = f"{_BEGIN}\n{base64.b64encode(seed).decode()}\n{_END}\n"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path, text.encode(), may_replace=may_replace)
    except FileExistsError:
        raise ConfigurationError(
            f"`{path}` exists already; clients that know the old key would refuse this executor "
            f"with a new one (--force replaces the file)"
        ) from None
    except OSError as exc:
        raise ConfigurationError(f"cannot write `{path}`: {exc.strerror}") from None
    return KeyPair(seed)


def _write(path: Path, data: bytes, *, may_replace: bool) -> None:
    # mkstemp makes it with mode 0600.
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        # Unlike a rename, a link never replaces an existing file.
        (os.replace if may_replace else os.link)(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def load_or_create_identity(path: Path) -> KeyPair:
    """Read the keys in the file; a missing file is made. Raises ConfigurationError."""
    if path.exists():
        return load_identity(path)
    try:
        return create_identity(path)
    except ConfigurationError:
        # Another program may have made it in the meantime.
        return load_identity(path)


def load_identity(path: Path) -> KeyPair:
    """Read the keys in a file of `create_identity`.

    Raises ConfigurationError if it is not one, or if other users can read or change it.
    """
    try:
        # O_NONBLOCK avoids waiting for the other end of a FIFO.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            _check_private(path, os.fstat(fd))
            data = file.read(_FILE_BYTES)
    except OSError as exc:
        raise ConfigurationError(f"cannot read `{path}`: {exc.strerror}") from None
    return KeyPair(_seed(path, data))


def harness_identity(environ: Mapping[str, str], path: str | None = None) -> KeyPair | None:
    """Read the keys of a harness: in the file that the variable names, else in *path*.

    Returns None if neither is given. Raises ConfigurationError if the file cannot be used.
    """
    named = environ.get(HARNESS_IDENTITY_VARIABLE) or path
    return None if named is None else load_identity(Path(named))


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ConfigurationError(f"`{path}` is not a regular file")
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o077:
        raise ConfigurationError(
            f"the identity in `{path}` is not secret, because others can read or change it: "
            f"chmod 600 it"
        )


def _seed(path: Path, data: bytes) -> bytes:
    try:
        begin, body, end = data.decode("ascii").splitlines()
        seed = base64.b64decode(body, validate=True)
    except (ValueError, binascii.Error):
        raise ConfigurationError(f"`{path}` holds no identity") from None
    if (begin, end) != (_BEGIN, _END) or len(seed) != SEED_BYTES:
        raise ConfigurationError(f"`{path}` holds no identity")
    return seed
