"""`exec-server.toml`: the tokens and TLS files of environments, in a file that Codex ignores.

Codex refuses an `environments.toml` with a key that it does not know, so a token that is in a file
or in a variable, and the files for TLS, have their place here, beside that file::

    [environments.build]                         # the id in environments.toml, or `remote`
    auth_bearer_token_file = "build.token"       # a relative path starts at the home directory
    # auth_bearer_token_env = "VARIABLE"         # at most one of the two
    ca_file = "ca.pem"                           # also client_cert and client_key

It is preferred to the token in `environments.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from exec_server.client.environments.bearer_tokens import TokenFile, TokenVariable, read_limited
from exec_server.client.environments.environments_toml import FILE_NAME as NAMES_FILE
from exec_server.client.environments.environments_toml import Configuration
from exec_server.client.environments.kinds import (
    Environment,
    RendezvousEnvironment,
    WebSocketEnvironment,
)
from exec_server.errors import ConfigurationError

FILE_NAME = "exec-server.toml"
# A longer file cannot be a list of names and paths.
_FILE_BYTES = 1 << 20


class _TokenPlace(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    auth_bearer_token_env: str | None = None
    auth_bearer_token_file: str | None = None
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None

    @property
    def has_token(self) -> bool:
        return self.auth_bearer_token_env is not None or self.auth_bearer_token_file is not None

    def tls_files(self, home: Path) -> dict[str, str]:
        named = {name: getattr(self, name) for name in ("ca_file", "client_cert", "client_key")}
        return {name: str(home / path) for name, path in named.items() if path is not None}


class _TokenPlaces(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    environments: dict[str, _TokenPlace] = {}


def add_to(configuration: Configuration, home: Path, env: Mapping[str, str]) -> Configuration:
    """*configuration* with the tokens of the file in *home*.

    A name that is not configured is a warning, unless the variables have taken the place of the
    file that has the names. Raises ConfigurationError.
    """
    path = home / FILE_NAME
    try:
        places = msgspec.convert(tomllib.loads(read_limited(path, _FILE_BYTES)), _TokenPlaces)
    except FileNotFoundError:
        return configuration
    except OSError as exc:
        raise ConfigurationError(f"cannot read `{path}`: {exc.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as exc:
        raise ConfigurationError(f"{path}: {exc}") from None
    environments = tuple(
        _with_token(each, places.environments.get(each.id), path, env)
        for each in configuration.environments
    )
    warnings = (*configuration.warnings, *_unknown_names(configuration, places, path))
    return msgspec.structs.replace(configuration, environments=environments, warnings=warnings)


def _unknown_names(configuration: Configuration, places: _TokenPlaces, path: Path) -> list[str]:
    is_of_variables = any(
        isinstance(each, RendezvousEnvironment) for each in configuration.environments
    )
    if is_of_variables or not path.with_name(NAMES_FILE).exists():
        return []
    known = {each.id for each in configuration.environments}
    return [
        f"{path}: [environments.{name}] has no effect, because {NAMES_FILE} has no such environment"
        for name in places.environments
        if name not in known
    ]


def _with_token(
    environment: Environment, place: _TokenPlace | None, path: Path, env: Mapping[str, str]
) -> Environment:
    if place is None:
        return environment
    shown = f"{path}: environment `{environment.id}`"
    if not isinstance(environment, WebSocketEnvironment):
        raise ConfigurationError(f"{shown} has no url, so it has no bearer token")
    files = place.tls_files(path.parent)
    if files and not place.has_token:
        return msgspec.structs.replace(environment, **files)
    if (place.auth_bearer_token_env is None) == (place.auth_bearer_token_file is None):
        raise ConfigurationError(
            f"{shown} must set exactly one of auth_bearer_token_env and auth_bearer_token_file"
        )
    token: Callable[[], str]
    if place.auth_bearer_token_file is not None:
        token = TokenFile(path.parent / place.auth_bearer_token_file)
    else:
        assert place.auth_bearer_token_env is not None
        token = TokenVariable(place.auth_bearer_token_env, env)
    return msgspec.structs.replace(environment, token=token, **files)
