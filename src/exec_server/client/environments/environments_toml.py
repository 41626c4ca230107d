"""The configured environments: `environments.toml` and the variables of the process.

This is the grammar. Codex knows it except for the last two ways to give a bearer token, which are
accepted with a warning, because Codex refuses the whole file; `token_places.py` has their place::

    default = "<id>" | "none"          # else `local`, when it is included
    include_local = true               # by default

    [[environments]]
    id = "<id>"                        # 1..64 of A-Z a-z 0-9 - _
    url = "wss://..."                  # exactly one of url and program
    auth_bearer_token = "..."          # at most one of these three, with url
    auth_bearer_token_env = "VARIABLE"
    auth_bearer_token_file = "path"    # a relative path starts at the home directory
    connect_timeout_sec = 10.0         # with url
    program = "ssh"
    args = ["host", "exec-server", "--listen", "stdio"]
    env = { KEY = "VALUE" }
    cwd = "dir"                        # a relative path starts at the home directory
    initialize_timeout_sec = 10.0
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from exec_server.client.environments.bearer_tokens import (
    GivenToken,
    TokenFile,
    TokenVariable,
    read_limited,
)
from exec_server.client.environments.kinds import (
    Environment,
    LocalEnvironment,
    ProgramEnvironment,
    RendezvousEnvironment,
    WebSocketEnvironment,
)
from exec_server.errors import ConfigurationError
from exec_server.limits import DEFAULT_LIMITS

FILE_NAME = "environments.toml"
LOCAL = "local"
REMOTE = "remote"
URL_VARIABLE = "CODEX_EXEC_SERVER_URL"
HOME_VARIABLE = "CODEX_HOME"
_RENDEZVOUS_VARIABLES = tuple(
    f"CODEX_EXEC_SERVER_NOISE_{name}" for name in ("REGISTRY_URL", "ENVIRONMENT_ID", "AUTH_TOKEN")
)
_ACCOUNT_VARIABLE = "CODEX_EXEC_SERVER_NOISE_CHATGPT_ACCOUNT_ID"
NONE = "none"
_ID_CHARACTERS = 64
# A longer file cannot be a list of names and addresses.
_FILE_BYTES = 1 << 20


class Configuration(msgspec.Struct, frozen=True):
    """The environments in the order of the file, and the default one."""

    environments: tuple[Environment, ...]
    default: str | None
    # Texts for people about keys that Codex refuses.
    warnings: tuple[str, ...] = ()


class _EnvironmentEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    id: str
    url: str | None = None
    auth_bearer_token: str | None = None
    auth_bearer_token_env: str | None = None
    auth_bearer_token_file: str | None = None
    # Codex finds its skills by this key; this package ignores it.
    skills: dict[str, Any] | None = None
    program: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    connect_timeout_sec: float | None = None
    initialize_timeout_sec: float | None = None

    @property
    def initialize_timeout(self) -> float:
        return _seconds(self, "initialize_timeout_sec", DEFAULT_LIMITS.initialize_timeout)

    @property
    def connect_timeout(self) -> float:
        return _seconds(self, "connect_timeout_sec", DEFAULT_LIMITS.connect_timeout)


class _EnvironmentsFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    default: str | None = None
    include_local: bool = True
    environments: list[_EnvironmentEntry] = []


def home_directory(env: Mapping[str, str]) -> Path:
    """The directory of Codex's configuration."""
    named = env.get(HOME_VARIABLE)
    return Path(named) if named else Path(env.get("HOME") or Path.home()) / ".codex"


def load(home: Path, env: Mapping[str, str]) -> Configuration:
    """The configuration of the variables and of the file in *home*.

    Raises ConfigurationError, whose text contains no secret.
    """
    rendezvous = _rendezvous(env)
    if rendezvous is not None:
        return Configuration((rendezvous,), rendezvous.id)
    path = home / FILE_NAME
    text = _read(path)
    if text is None:
        return _from_url(env.get(URL_VARIABLE, "").strip())
    try:
        return parse(text, home=home, env=env)
    except ConfigurationError as exc:
        raise ConfigurationError(f"{path}: {exc}") from None


def parse(text: str, *, home: Path, env: Mapping[str, str]) -> Configuration:
    """The configuration in the text of a file."""
    try:
        file = msgspec.convert(tomllib.loads(text), _EnvironmentsFile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as exc:
        raise ConfigurationError(str(exc)) from None
    environments: list[Environment] = [LocalEnvironment(LOCAL)] if file.include_local else []
    for entry in file.environments:
        check_id(entry.id, taken=(each.id for each in environments))
        environments.append(_environment(entry, home, env))
    warnings = tuple(text for entry in file.environments for text in _refused_by_codex(entry))
    return Configuration(tuple(environments), _default(file, environments), warnings)


# The file.


def _read(path: Path) -> str | None:
    try:
        return read_limited(path, _FILE_BYTES)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "not UTF-8"
        raise ConfigurationError(f"cannot read `{path}`: {why}") from None


def check_id(name: str, *, taken: Iterable[str]) -> None:
    """Raise ConfigurationError unless *name* can be the name of a new environment."""
    shown = f"environment id `{name}`"
    if not name.strip():
        raise ConfigurationError("environment id cannot be empty")
    if name != name.strip():
        raise ConfigurationError(f"{shown} must not contain surrounding whitespace")
    if name == LOCAL or name.lower() == NONE:
        raise ConfigurationError(f"{shown} is reserved")
    if not re.fullmatch("[A-Za-z0-9_-]+", name):
        raise ConfigurationError(f"{shown} must contain only ASCII letters, numbers, '-' or '_'")
    if len(name) > _ID_CHARACTERS:
        raise ConfigurationError(f"{shown} cannot be longer than {_ID_CHARACTERS} characters")
    if name in taken:
        raise ConfigurationError(f"{shown} is duplicated")


def check_url(url: str) -> str:
    """*url* without blanks around it. Raises ConfigurationError unless it is a WebSocket URL."""
    url = url.strip()
    if not url:
        raise ConfigurationError("environment url cannot be empty")
    if not url.startswith(("ws://", "wss://")):
        raise ConfigurationError(f"environment url `{url}` must use ws:// or wss://")
    if not re.match("wss?://[^/?#]", url):
        raise ConfigurationError(f"environment url `{url}` is invalid: it names no host")
    if "@" in re.split("[/?#]", url)[2]:
        raise ConfigurationError("an environment url cannot carry credentials; set a bearer token")
    return url


def _environment(entry: _EnvironmentEntry, home: Path, env: Mapping[str, str]) -> Environment:
    shown = f"environment `{entry.id}`"
    if (entry.url is None) == (entry.program is None):
        raise ConfigurationError(f"{shown} must set exactly one of url or program")
    if entry.program is not None:
        return _program(entry, entry.program.strip(), home)
    assert entry.url is not None
    if any(each is not None for each in (entry.args, entry.env, entry.cwd)):
        raise ConfigurationError(f"{shown} args, env, and cwd require program")
    return WebSocketEnvironment(
        entry.id,
        check_url(entry.url),
        token=_token(entry, home, env),
        connect_timeout=entry.connect_timeout,
        initialize_timeout=entry.initialize_timeout,
    )


def _program(entry: _EnvironmentEntry, program: str, home: Path) -> ProgramEnvironment:
    shown = f"environment `{entry.id}`"
    if not program:
        raise ConfigurationError(f"{shown} program cannot be empty")
    if entry.connect_timeout_sec is not None:
        raise ConfigurationError(f"{shown} connect_timeout_sec requires url")
    if _token_keys(entry):
        raise ConfigurationError(f"{shown} {_token_keys(entry)[0]} requires url")
    return ProgramEnvironment(
        entry.id,
        (program, *(entry.args or ())),
        env=entry.env or {},
        cwd=None if entry.cwd is None else str(home / entry.cwd),
        initialize_timeout=entry.initialize_timeout,
    )


def _token_keys(entry: _EnvironmentEntry) -> list[str]:
    keys = ("auth_bearer_token", "auth_bearer_token_env", "auth_bearer_token_file")
    return [key for key in keys if getattr(entry, key) is not None]


def _refused_by_codex(entry: _EnvironmentEntry) -> list[str]:
    return [
        f"Codex refuses {FILE_NAME} because of the key `{key}` of environment `{entry.id}`; "
        "move it to exec-server.toml"
        for key in _token_keys(entry)
        if key != "auth_bearer_token"
    ]


def _token(
    entry: _EnvironmentEntry, home: Path, env: Mapping[str, str]
) -> Callable[[], str] | None:
    """The source of the token, which is read only when the environment is connected."""
    keys = _token_keys(entry)
    if len(keys) > 1:
        raise ConfigurationError(
            f"environment `{entry.id}` must set only one of {' and '.join(keys)}"
        )
    if entry.auth_bearer_token_env is not None:
        return TokenVariable(entry.auth_bearer_token_env, env)
    if entry.auth_bearer_token_file is not None:
        return TokenFile(home / entry.auth_bearer_token_file)
    if entry.auth_bearer_token is not None:
        return GivenToken(entry.auth_bearer_token)
    return None


def _seconds(entry: _EnvironmentEntry, key: str, otherwise: float) -> float:
    value: float | None = getattr(entry, key)
    if value is None:
        return otherwise
    if not math.isfinite(value) or value < 0:
        raise ConfigurationError(f"environment `{entry.id}` {key} must be a number of seconds")
    return value


def _default(file: _EnvironmentsFile, environments: Iterable[Environment]) -> str | None:
    names = [each.id for each in environments]
    if file.default is None:
        return LOCAL if LOCAL in names else None
    name = file.default.strip()
    if not name:
        raise ConfigurationError("default environment id cannot be empty")
    if name.lower() == NONE:
        return None
    if name not in names:
        raise ConfigurationError(f"default environment `{name}` is not configured")
    return name


# The variables.


def _from_url(url: str) -> Configuration:
    if not url:
        return Configuration((LocalEnvironment(LOCAL),), LOCAL)
    if url.lower() == NONE:
        return Configuration((), None)
    return Configuration((WebSocketEnvironment(REMOTE, check_url(url)),), REMOTE)


def _rendezvous(env: Mapping[str, str]) -> RendezvousEnvironment | None:
    values = [env.get(name, "").strip() for name in _RENDEZVOUS_VARIABLES]
    if not any(values):
        return None
    if not all(values):
        missing = [
            name for name, value in zip(_RENDEZVOUS_VARIABLES, values, strict=True) if not value
        ]
        raise ConfigurationError(f"{' and '.join(missing)} must be set, too, or none of them")
    registry_url, environment_id, token = values
    return RendezvousEnvironment(
        REMOTE,
        registry_url,
        environment_id,
        token=GivenToken(token),
        account_id=env.get(_ACCOUNT_VARIABLE, "").strip() or None,
    )
