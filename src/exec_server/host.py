"""Facts about this machine for `environment/info`: shell, directories and identity."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Mapping

from msgspec import UNSET

from exec_server.protocol.environment import EnvironmentInfo, Shell
from exec_server.protocol.paths import to_uri

# The shells that clients can use, by file name, and their names in the protocol.
_SHELL_KINDS = {
    "bash": "bash",
    "cmd": "cmd",
    "powershell": "powershell",
    "pwsh": "powershell",
    "sh": "sh",
    "zsh": "zsh",
}
_FALLBACK_SHELLS = ("bash", "zsh")
_LAST_SHELL = "/bin/sh"

_TEMP_DIR = b"/tmp"
_MACHINE_ID_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
# machine-id(5) asks programs to hash the id with a salt before they show it.
_PROVIDER_SALT = b"exec-server environment/info providerId\0"


def environment_info(*, version: str, capabilities: dict[str, bool]) -> EnvironmentInfo:
    """The facts as the server's process sees them now. Never raises."""
    cwd = _working_directory()
    named = _named_temp_dir(cwd)
    home = home_directory(os.environ)
    return EnvironmentInfo(
        shell=login_shell(),
        executor_version=version,
        provider_id=_provider_id(),
        cwd=to_uri(cwd) if cwd is not None else None,
        user_home_dir=to_uri(home) if home is not None else UNSET,
        platform_os="macos" if sys.platform == "darwin" else sys.platform,
        prepend_path_dirs=[],
        temporary_directories=[to_uri(named)] if named is not None else [],
        temp_dir=to_uri(named or _default_temp_dir(cwd)),
        capabilities=capabilities,
    )


def login_shell() -> Shell:
    """The account's shell, or else bash, zsh or ``/bin/sh``, the first that exists.

    SHELL is not used, because it belongs to the user who started the server.
    """
    account = _account()
    preferred = account.pw_shell if account is not None else ""
    own_name = _stem(preferred)
    for name in (own_name, *_FALLBACK_SHELLS):
        if name in _SHELL_KINDS:
            path = preferred if name == own_name and _is_shell(preferred) else _find_shell(name)
            if path is not None:
                return Shell(_SHELL_KINDS[name], path)
    return Shell("sh", _LAST_SHELL)


def tty_shell() -> str:
    """The value of SHELL for a child on a terminal: the account's shell of any kind."""
    account = _account()
    path = account.pw_shell if account is not None else ""
    return path if os.path.isabs(path) and os.access(path, os.X_OK) else _LAST_SHELL


def _account() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:
        return None


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _find_shell(name: str) -> str | None:
    """The shell called *name* on PATH or in the usual places."""
    for directory in (*os.get_exec_path(), "/bin", "/usr/bin"):
        path = os.path.join(directory, name)
        if _is_shell(path) and os.access(path, os.X_OK):
            return path
    return None


def _is_shell(path: str) -> bool:
    # A path that is not Unicode does not fit into JSON, and a relative one helps no client.
    return os.path.isabs(path) and _is_unicode(path) and os.path.isfile(path)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _working_directory() -> bytes | None:
    """The working directory without symbolic links; None if it was removed."""
    try:
        return os.getcwdb()
    except OSError:
        return None


def home_directory(environ: Mapping[str, str]) -> bytes | None:
    """HOME, or the account's directory if HOME is empty; None if it is not absolute."""
    home = os.fsencode(environ.get("HOME", ""))
    if not home:
        account = _account()
        home = os.fsencode(account.pw_dir) if account is not None else b""
    return home if os.path.isabs(home) else None


def _named_temp_dir(cwd: bytes | None) -> bytes | None:
    """The directory of TMPDIR, which need not exist; None if the variable is empty."""
    path = os.environb.get(b"TMPDIR", b"")
    if not path or (cwd is None and not os.path.isabs(path)):
        return None
    return os.path.join(cwd or b"/", path)


def _default_temp_dir(cwd: bytes | None) -> bytes:
    """The directory if TMPDIR names none. If it is empty, that is the working directory."""
    return cwd if cwd is not None and os.environb.get(b"TMPDIR") == b"" else _TEMP_DIR


def _provider_id() -> str:
    from exec_server.small_digests import sha256

    return f"sha256:{sha256(_PROVIDER_SALT + _machine_id()).hexdigest()}"


def _machine_id() -> bytes:
    for name in _MACHINE_ID_FILES:
        try:
            with open(name, "rb") as file:
                machine_id = file.read(64).strip()
        except OSError:
            continue
        # systemd writes `uninitialized` until the first boot has finished.
        if machine_id not in (b"", b"uninitialized"):
            return machine_id
    return os.uname().nodename.encode("utf-8", "surrogateescape")
