"""The file of harness keys that an executor serves, like `authorized_keys` of ssh.

Each line begins with the fingerprint of a harness's key; the rest of the line is a comment. A line
that begins with `#` is a comment. The file is read for each handshake, so changes apply at once.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path

from exec_server.errors import ConfigurationError

logger = logging.getLogger(__name__)

_FILE_BYTES = 1 << 20
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


class AuthorizedHarnesses:
    """The file at *path*.

    `check` and `add` raise ConfigurationError if the file cannot be read, is malformed, or can be
    changed by another user.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self) -> None:
        """Read the file once, so that an unusable file is reported at the start."""
        self._read()

    def admits(self, fingerprint: str) -> bool:
        """True if the file has this key. A file that has become unusable admits no key."""
        try:
            return fingerprint in self._read()
        except ConfigurationError as exc:
            logger.error("every harness is refused: %s", exc)
            return False

    def add(self, fingerprint: str, comment: str) -> None:
        """Append a key, unless the file has it; a missing file is made with mode 0600."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(self.path, flags, 0o600), "r+b", buffering=0) as file:
                text = self._text(file.fileno())
                if fingerprint in self._fingerprints(text):
                    return
                # An editor may have left the last line without a newline.
                start = "" if not text or text.endswith("\n") else "\n"
                words = " ".join(comment.split())
                file.write(f"{start}{fingerprint} {words}\n".encode())
                os.fsync(file.fileno())
        except OSError as exc:
            raise self._unusable(exc.strerror or str(exc)) from None

    def _read(self) -> frozenset[str]:
        try:
            # O_NONBLOCK avoids waiting for the other end of a FIFO.
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return self._fingerprints(self._text(fd))
            finally:
                os.close(fd)
        except OSError as exc:
            raise self._unusable(exc.strerror or str(exc)) from None

    def _text(self, fd: int) -> str:
        self._check_owner(os.fstat(fd))
        data = os.pread(fd, _FILE_BYTES + 1, 0)
        if len(data) > _FILE_BYTES:
            raise self._unusable("it is longer than 1 MiB")
        return data.decode("utf-8", "replace")

    def _check_owner(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise self._unusable("it is not a regular file")
        folder = os.stat(self.path.parent)
        for what, found in (("the file", status), ("its directory", folder)):
            if found.st_uid not in (os.geteuid(), 0):
                raise self._unusable(f"{what} belongs to another user")
        # In a directory such as /tmp, other users can write but cannot replace the file.
        is_sticky = bool(folder.st_mode & stat.S_ISVTX)
        if status.st_mode & 0o022 or (folder.st_mode & 0o022 and not is_sticky):
            raise self._unusable("others can write to it or to its directory: chmod go-w both")

    def _fingerprints(self, text: str) -> frozenset[str]:
        found = set()
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if not _FINGERPRINT.fullmatch(words[0]):
                raise self._unusable(
                    f"line {number} does not begin with a fingerprint (SHA256:...), as "
                    "`exec-server fingerprint` prints it"
                )
            found.add(words[0])
        return frozenset(found)

    def _unusable(self, why: str) -> ConfigurationError:
        return ConfigurationError(f"cannot use the authorized harnesses in `{self.path}`: {why}")
