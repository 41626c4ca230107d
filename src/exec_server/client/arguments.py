"""Checks of what callers pass in: a wrong type is a TypeError that names the parameter.

Nothing is sent before these checks. A text where bytes are wanted is refused, because it could
otherwise be taken for base64 that is encoded already.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterable, Mapping
from typing import Any

from exec_server.client.files.remote_path import RemotePath
from exec_server.errors import InvalidParams

# A word of a command, or a path, as callers may write it.
Word = str | bytes | os.PathLike[str] | os.PathLike[bytes] | RemotePath
BytesLike = bytes | bytearray | memoryview


def as_bytes(value: object, name: str) -> bytes:
    """*value*, the argument of parameter *name*, as bytes."""
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        raise TypeError(f"{name} must be bytes, not str; encode the text first: {name}.encode()")
    try:
        # A number would become that many zeros.
        return bytes(memoryview(value))  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be bytes, not {_kind(value)}") from None


def as_text(value: object, name: str) -> str:
    """A text, a path or UTF-8 bytes as the text that the protocol can carry."""
    raw = _path_text(value, name)
    if isinstance(raw, bytes):
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{name} is not UTF-8, and messages are: {raw!r}") from None
    # A subclass of str, such as an enumeration, counts as the text that it contains.
    text = str.__str__(raw)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{name} is not UTF-8, and messages are: {text!r}") from None
    return text


def as_path(value: object, name: str) -> str:
    """A path on the server; its bytes that are not UTF-8 are kept, as `os.fsdecode` does it."""
    return os.fsdecode(_path_text(value, name))


def _path_text(value: object, name: str) -> str | bytes:
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, RemotePath):
        return str(value)
    if isinstance(value, os.PathLike):
        raw: str | bytes = os.fspath(value)
        return raw
    raise TypeError(f"{name} must be str, bytes or os.PathLike, not {_kind(value)}")


def as_argv(argv: object) -> list[str]:
    """The words of a command."""
    if isinstance(argv, str | bytes | os.PathLike | RemotePath):
        raise TypeError(
            'argv must be a sequence of words, such as ["ls", "-l"], not a single text; '
            'for a shell command use ["sh", "-c", command]'
        )
    if not isinstance(argv, Iterable) or isinstance(argv, Mapping | bytearray | memoryview):
        raise TypeError(f"argv must be a sequence of words, not {_kind(argv)}")
    return [_argument(word, f"argv[{index}]") for index, word in enumerate(argv)]


def as_env(env: object) -> dict[str, str]:
    """The variables of an environment."""
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise TypeError(f"env must be a mapping of names to values, not {_kind(env)}")
    found: dict[str, str] = {}
    for name, value in env.items():
        if not isinstance(name, str | bytes):
            raise TypeError(f"a name in env must be str, not {_kind(name)}: {name!r}")
        text = _argument(name, "a name in env")
        if not text or "=" in text:
            raise ValueError(f"a name in env must not be empty or contain `=`: {text!r}")
        found[text] = _argument(value, f"env[{text!r}]")
    return found


def _argument(value: object, name: str) -> str:
    text = as_text(value, name)
    if "\0" in text:
        raise ValueError(f"{name} has a NUL character, which no program can be given: {text!r}")
    return text


def check_seconds(value: object, name: str) -> None:
    """Raise TypeError or ValueError unless *value* is a number of seconds or None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds or None, not {_kind(value)}")
    if math.isnan(value):
        raise ValueError(f"{name} must be a number of seconds or None, not {value}")


def check_size(value: object, name: str) -> None:
    """Raise TypeError or ValueError unless *value* is a number of bytes or None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a number of bytes or None, not {_kind(value)}")
    if value < 0:
        raise ValueError(f"{name} must not be negative: {value}")


def signal_name(signum: object) -> str:
    """The name of a signal on the wire: `interrupt`, which every server knows, or POSIX's.

    *signum* is a number, or a name in upper or lower case, with or without `SIG`. An unknown number
    raises ValueError, and an unknown name InvalidParams, as a server would.
    """
    if isinstance(signum, bool) or not isinstance(signum, int | str):
        raise TypeError(f"signum must be a signal's name or number, not {_kind(signum)}")
    if signum == "interrupt":
        return signum
    try:
        name = signal.Signals(signum).name if isinstance(signum, int) else signum.upper()
        found = signal.Signals[f"SIG{name.removeprefix('SIG')}"]
    except (KeyError, ValueError):
        names = ", ".join(each.name for each in signal.Signals)
        kind = ValueError if isinstance(signum, int) else InvalidParams
        raise kind(f"there is no signal {signum!r}; the signals are {names}") from None
    return "interrupt" if found == signal.SIGINT else name


def as_signal(number: object) -> int | None:
    """The signal of a *number* that a server has sent: a `signal.Signals` if it has a name here."""
    if not isinstance(number, int):
        return None
    try:
        return signal.Signals(number)
    except ValueError:
        return number


def _kind(value: Any) -> str:
    return type(value).__name__
