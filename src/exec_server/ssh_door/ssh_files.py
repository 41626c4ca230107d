"""The files of OpenSSH in the user's home: our stanza in a file of its own, and its Include."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

FILE = "exec-server.conf"
_NOTE = "# Hosts of exec-server; `exec-server ssh-config --remove` takes this out.\n"


class SshFiles:
    """`~/.ssh/config` and the file that it includes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.included = directory / FILE
        self._config = directory / "config"
        # OpenSSH looks for a relative name in the home of the account, whatever HOME says.
        self._include = f'Include "{self.included}"\n'

    def install(self, stanza: str) -> bool:
        """Write the stanza and include it; False if both were there already. Raises OSError."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        changed = _read(self.included) != stanza
        if changed:
            _write(self.included, stanza)
        config = _read(self._config)
        if self._include not in config.splitlines(keepends=True):
            # An Include after a Host line would belong to that host.
            rest = f"\n{config}" if config else ""
            _write(self._config, f"{_NOTE}{self._include}{rest}")
            changed = True
        return changed

    def remove(self) -> bool:
        """Undo `install`; False if there was nothing to undo. Raises OSError."""
        had_file = self.included.exists()
        self.included.unlink(missing_ok=True)
        config = _read(self._config)
        kept = [
            line for line in config.splitlines(keepends=True) if line not in (_NOTE, self._include)
        ]
        text = "".join(kept)
        if text == config:
            return had_file
        if config.startswith(f"{_NOTE}{self._include}\n"):
            text = text.removeprefix("\n")
        if text:
            _write(self._config, text)
        else:
            self._config.unlink()
        return True


def _read(path: Path) -> str:
    try:
        # Bytes that are not UTF-8 stay as they are, and so do ends of lines.
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _write(path: Path, text: str) -> None:
    """Replace a file in one step. A link stays a link, and the mode stays."""
    target = Path(os.path.realpath(path))
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    fd, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(fd, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
