"""Sources of bearer tokens: they are read when they are needed, and no repr shows them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from exec_server.errors import ConfigurationError

logger = logging.getLogger(__name__)

_TOKEN_BYTES = 64 << 10


class GivenToken:
    """A token that is given as text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self) -> str:
        return self._text


class TokenVariable:
    """A token in an environment variable."""

    def __init__(self, name: str, env: Mapping[str, str]) -> None:
        self._name, self._env = name, env

    def __call__(self) -> str:
        token = self._env.get(self._name, "").strip()
        if not token:
            raise ConfigurationError(f"the bearer token is missing: {self._name} is not set")
        return token


class TokenFile:
    """A token in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> str:
        try:
            return read_limited(self._path, _TOKEN_BYTES).strip()
        except (OSError, UnicodeDecodeError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else "not UTF-8"
            raise ConfigurationError(f"cannot read the token in `{self._path}`: {why}") from None


class RenewedToken:
    """A token for one connection after another: its source is asked for each.

    A source that fails later than for the first time may be about to change, and the last token is
    used meanwhile. Raises ConfigurationError if it fails at once.
    """

    def __init__(self, token: str | Callable[[], str]) -> None:
        self._source = token if callable(token) else GivenToken(token)
        self._last = self._source()

    def __call__(self) -> str:
        try:
            self._last = self._source() or self._last
        except ConfigurationError as exc:
            logger.warning("the last token is used again: %s", exc)
        return self._last


def read_limited(path: Path, most: int) -> str:
    """The content of a file.

    Raises OSError, UnicodeDecodeError, and ConfigurationError if it has more than *most* bytes.
    """
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ConfigurationError(f"`{path}` is longer than {most} bytes")
    return data.decode()
