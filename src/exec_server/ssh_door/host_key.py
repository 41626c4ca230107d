"""The host key of the ssh door on this machine, and the known_hosts file that pins it."""

from __future__ import annotations

import os
from pathlib import Path

from exec_server.errors import ConfigurationError

# The name under which known_hosts has the key, for every environment: the ssh server is always a
# program of this user on this machine.
ALIAS = "exec-server"
_KEY_FILE = "ssh_host_ed25519_key"
_KNOWN_HOSTS_FILE = "known_hosts"


class HostKey:
    """The files of the key in a private directory. They are made when they are first needed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def known_hosts(self) -> Path:
        """The file that OpenSSH compares the key with."""
        return self._directory / _KNOWN_HOSTS_FILE

    def private_key(self) -> bytes:
        """The key in OpenSSH's format. Raises OSError, and ConfigurationError as `ensure` does."""
        self._check_directory()
        try:
            return (self._directory / _KEY_FILE).read_bytes()
        except FileNotFoundError:
            self.ensure()
            return (self._directory / _KEY_FILE).read_bytes()

    def ensure(self) -> None:
        """Make the key if there is none, and let known_hosts agree with it.

        Raises OSError, and ConfigurationError if another user could have put the key there.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check_directory()
        path = self._directory / _KEY_FILE
        if not path.exists():
            _write_new(path, _made_key())
        # Of several programs that make one at a time, the first one has won.
        pinned = f"{ALIAS} {_public_text(path.read_bytes())}\n".encode()
        if not self.known_hosts.exists() or self.known_hosts.read_bytes() != pinned:
            _replace(self.known_hosts, pinned)

    def _check_directory(self) -> None:
        try:
            found = self._directory.stat()
        except FileNotFoundError:
            return
        if found.st_uid not in (os.geteuid(), 0) or found.st_mode & 0o022:
            raise ConfigurationError(
                f"{self._directory} is not used, because other users can write to it: "
                f"give it the mode 0700 and your own user, or set XDG_STATE_HOME"
            )


def _made_key() -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )


def _public_text(private: bytes) -> str:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_ssh_private_key(private, password=None).public_key()
    encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return key.public_bytes(encoding, form).decode()


def _temporary(path: Path, content: bytes) -> str:
    # This is done once, and each connection reads the key.
    import tempfile

    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with open(fd, "wb") as file:
        file.write(content)
    return name


def _replace(path: Path, content: bytes) -> None:
    os.replace(_temporary(path, content), path)


def _write_new(path: Path, content: bytes) -> None:
    """Write a whole file, unless another program was faster."""
    name = _temporary(path, content)
    try:
        os.link(name, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(name)
