"""Files that hold a token or a shared secret."""

from __future__ import annotations

import os
import stat

from exec_server.errors import ConfigurationError

# The characters of Unicode White_Space. `str.strip()` also removes U+001C to U+001F.
_WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


def trim(text: str) -> str:
    """*text* without the white space around it."""
    return text.strip(_WHITE_SPACE)


def read_secret(path: str) -> str:
    """The trimmed content of a file, which must be UTF-8 and not blank."""
    try:
        with open(path, "rb") as file:
            _check_mode(path, os.fstat(file.fileno()).st_mode)
            secret = trim(file.read().decode())
    except UnicodeDecodeError:
        raise _unreadable(path, "stream did not contain valid UTF-8") from None
    except OSError as exc:
        raise _unreadable(path, f"{exc.strerror} (os error {exc.errno})") from exc
    if not secret:
        raise ConfigurationError(f"websocket auth secret {path} must not be empty")
    return secret


def _check_mode(path: str, mode: int) -> None:
    """Refuse a secret that every user can change, and warn of one that others can read.

    The reference reads a file of any mode, and usual ones have 0644.
    """
    if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
        raise ConfigurationError(
            f"websocket auth secret {path} can be changed by every user: run `chmod 600 {path}`"
        )
    if stat.S_ISREG(mode) and mode & 0o077:
        # Logging takes milliseconds to load, which a server without secrets can save.
        import logging

        logger = logging.getLogger(__name__)
        logger.warning(
            "%s holds a secret, and other users can read it: use mode 0600",
            path,
            extra={"notice": f"readable {path}"},
        )


def _unreadable(path: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"failed to read websocket auth secret {path}: {why}")


def absolute(path: str) -> str:
    """The absolute path, with a leading ``~/`` expanded; ``~name`` is an ordinary name."""
    if path == "~" or path.startswith("~/"):
        path = _home() + path[1:]
    return os.path.abspath(path)


def _home() -> str:
    if home := os.environ.get("HOME"):
        return home
    import pwd

    return pwd.getpwuid(os.getuid()).pw_dir
