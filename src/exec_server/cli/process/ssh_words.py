"""The command line of `exec-server ssh`, which is that of OpenSSH's `ssh`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence

import msgspec

from exec_server.errors import ConfigurationError

# Options of `ssh` with a value, and without one; the first pattern of each is refused, because the
# caller would count on what it does.
_WITH_VALUE = "BbcDEeFIiJLlmOopPQRSWw"
_FLAGS = "1246AaCfGgKkMNnqsTtVvXxYy"
_FORWARDING = "DLRWw"
_REFUSED_FLAGS = "fN"


class SshWords(msgspec.Struct, kw_only=True):
    """What a caller of `ssh` asks for, as far as it matters here."""

    server: str = ""
    command: list[str] = []
    # How often `-t` was given; `-T` is None.
    terminals: int | None = 0
    has_input: bool = True
    is_quiet: bool = False
    is_subsystem: bool = False
    # `-G` asks for the configuration and `-V` for the version; neither connects.
    asks_configuration: bool = False
    asks_version: bool = False
    # `SendEnv` and `SetEnv`.
    sent: list[str] = []
    env: dict[str, str] = {}

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables for the command: those of `SetEnv`, and of *environ* those of `SendEnv`."""
        sent = {
            name: value
            for name, value in environ.items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.sent)
        }
        return sent | self.env


def parse_ssh(words: Sequence[str]) -> SshWords:
    """Read the words after ``ssh``. Raises ConfigurationError for what cannot be done."""
    found = SshWords()
    rest = _take_options(found, list(words))
    if rest:
        # The user before @ is that of the server, whichever is named.
        found.server = rest.pop(0).removeprefix("ssh://").rpartition("@")[2]
        found.command = _take_options(found, rest)
    if not found.server and not found.asks_version:
        raise ConfigurationError("no server was named: exec-server ssh [OPTIONS] SERVER [COMMAND]")
    return found


def _take_options(found: SshWords, words: list[str]) -> list[str]:
    """Read options up to the first other word; returns the words from there on."""
    while words and words[0].startswith("-") and words[0] != "-":
        letters = words.pop(0)[1:]
        if letters == "-":
            break
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in _WITH_VALUE:
                if not letters and not words:
                    raise ConfigurationError(f"option -{letter} needs a value")
                _take_value(found, letter, letters or words.pop(0))
                break
            _take_flag(found, letter)
    return words


def _take_value(found: SshWords, letter: str, value: str) -> None:
    if letter in _FORWARDING:
        raise ConfigurationError(f"option -{letter}: ports are not forwarded")
    if letter != "o":
        return
    # `-o Name=value` and `-o "Name value"` are the same.
    name, text = [*re.split(r"\s*[=\s]\s*", value.strip(), maxsplit=1), ""][:2]
    match name.lower():
        case "sendenv":
            found.sent = [*found.sent, *text.split()]
        case "setenv":
            pairs = (word.partition("=") for word in text.split())
            found.env = {**found.env, **{key: part for key, _, part in pairs}}
        case "requesttty":
            choice = {"no": None, "yes": 1, "force": 2}
            found.terminals = choice.get(text.strip().lower(), found.terminals)


def _take_flag(found: SshWords, letter: str) -> None:
    if letter not in _FLAGS:
        raise ConfigurationError(f"unknown option -{letter}")
    if letter in _REFUSED_FLAGS:
        raise ConfigurationError(f"option -{letter} is not supported")
    match letter:
        case "t":
            found.terminals = (found.terminals or 0) + 1
        case "T":
            found.terminals = None
        case "n":
            found.has_input = False
        case "q":
            found.is_quiet = True
        case "s":
            found.is_subsystem = True
        case "G":
            found.asks_configuration = True
        case "V":
            found.asks_version = True
