"""What the commands around a registry have in common."""

from __future__ import annotations

import argparse
import os
from typing import Any

from exec_server.cli.arguments import Parser
from exec_server.cli.connecting import read_token_file
from exec_server.errors import ConfigurationError, RegistryError
from exec_server.remote.places import state_home

TOKEN_VARIABLE = "EXEC_SERVER_REGISTRY_TOKEN"
# For URLs with passwords, which would be seen in a list of processes.
STATE_VARIABLE = "EXEC_SERVER_REGISTRY_STATE"
BUS_VARIABLE = "EXEC_SERVER_REGISTRY_BUS"
_SECONDS = 10.0


def add_state(parser: Parser) -> None:
    parser.add_argument(
        "--state",
        metavar="<FILE|URL>",
        help="the registry's SQLite file, or postgresql://USER@HOST/DATABASE; passwords are better "
        f"in PGPASSFILE, or all of it in {STATE_VARIABLE} "
        "[default: registry.sqlite3 in $XDG_STATE_HOME/exec-server]",
    )


def private_file(state: str | None) -> str:
    """Where the state is, a file or a URL; its folder is made when it is ours to choose."""
    state = state or os.environ.get(STATE_VARIABLE)
    if state:
        return state
    folder = state_home()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder / "registry.sqlite3")


def add_registry(parser: Parser, *, required: bool = True) -> None:
    parser.add_argument(
        "--registry",
        metavar="<URL>",
        required=required,
        help="https://HOST, or http:// on loopback",
    )
    parser.add_argument(
        "--token-file",
        metavar="<FILE>",
        help=f"who we are [default: the token in {TOKEN_VARIABLE}]",
    )


def token_of(values: argparse.Namespace) -> str:
    if values.token_file is None:
        return token_in_variable()
    token = read_token_file(values.token_file)
    if not token:
        raise ConfigurationError(f"`{values.token_file}` holds no token")
    return token


def token_in_variable() -> str:
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        raise ConfigurationError(f"a token is needed: --token-file, or {TOKEN_VARIABLE}")
    return token


async def ask(
    registry: str, method: str, path: str, *, token: str | None = None, body: Any = None
) -> Any:
    """The registry's JSON. Raises RegistryError with its own words."""
    from exec_server.remote.credentials import BearerToken, check_confidential
    from exec_server.remote.http import Http

    check_confidential(registry, "a token or code")
    headers = {} if token is None else BearerToken(token).headers()
    http = Http()
    try:
        answer = await http.request(
            method, registry.rstrip("/") + path, headers=headers, body=body, seconds=_SECONDS
        )
    finally:
        await http.close()
    decoded = answer.json()
    if answer.is_success:
        return decoded
    error = decoded.get("error") if isinstance(decoded, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    raise RegistryError(
        f"the registry refuses ({answer.status}): {message or 'no reason given'}",
        status=answer.status,
        error_code=error.get("code") if isinstance(error, dict) else None,
    )
