"""The options that the commands of a registry share, and requests to a running registry."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from exec_server.cli.options import read_token_file
from exec_server.cli.parser import Parser
from exec_server.cli.secret_environment import environment
from exec_server.errors import ConfigurationError, RegistryError
from exec_server.protocol.registry import REGISTRY_STATE_VARIABLE, REGISTRY_TOKEN_VARIABLE
from exec_server.remote.state_dir import state_home

if TYPE_CHECKING:
    from exec_server.remote.registry_http import RegistryAnswer

    _Request = Callable[[str, str, Any], Awaitable[RegistryAnswer]]

_SECONDS = 10.0
# The next page, in a `Link` header.
_NEXT = re.compile(r'<[^>?]*\?([^>]*)>; rel="next"')


def add_state(parser: Parser) -> None:
    parser.add_argument(
        "--state",
        metavar="<FILE|URL>",
        help="the registry's SQLite file, or postgresql://USER@HOST/DATABASE; put a password into "
        f"PGPASSFILE, or the whole URL into {REGISTRY_STATE_VARIABLE} "
        "[default: registry.sqlite3 in $XDG_STATE_HOME/exec-server]",
    )


def private_file(state: str | None) -> str:
    """The file or URL of the state; the directory of the default file is created."""
    state = state or os.environ.get(REGISTRY_STATE_VARIABLE)
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
        help="file with the token for the registry "
        f"[default: the token in {REGISTRY_TOKEN_VARIABLE}]",
    )


def registry_token(values: argparse.Namespace) -> str:
    """The token for a registry: from --token-file, else from the variable."""
    if values.token_file is None:
        return token_in_variable()
    token = read_token_file(values.token_file)
    if not token:
        raise ConfigurationError(f"`{values.token_file}` holds no token")
    return token


def token_in_variable() -> str:
    token = environment().get(REGISTRY_TOKEN_VARIABLE, "").strip()
    if not token:
        raise ConfigurationError(f"a token is needed: --token-file, or {REGISTRY_TOKEN_VARIABLE}")
    return token


async def ask(
    registry: str, method: str, path: str, *, token: str | None = None, body: Any = None
) -> Any:
    """Send a request; the registry's JSON. Raises RegistryError with the registry's message."""
    async with _asking(registry, token) as request:
        return _content(await request(method, path, body))


async def pages(registry: str, path: str, *, token: str) -> AsyncGenerator[list[Any], None]:
    """A list of the registry, page by page. Raises RegistryError with the registry's message.

    *path* may have a query. A caller that stops early must close the generator.
    """
    after = ""
    async with _asking(registry, token) as request:
        while True:
            answer = await request("GET", path, None)
            found = _content(answer)
            if not isinstance(found, list):
                raise RegistryError("the registry's answer is not a list")
            yield found
            # Only the query of the link is used, so that no other host gets the token.
            following = _NEXT.search(answer.link)
            if following is None:
                return
            path = f"{path.partition('?')[0]}?{following[1]}"
            before, after = after, parse_qs(following[1]).get("after", [""])[-1]
            if after <= before:
                raise RegistryError("the registry's pages do not advance")


@asynccontextmanager
async def _asking(registry: str, token: str | None) -> AsyncIterator[_Request]:
    from exec_server.remote.credentials.credentials import BearerToken, check_confidential
    from exec_server.remote.registry_http import Http

    check_confidential(registry, "a token or code")
    headers = {} if token is None else BearerToken(token).headers()
    http = Http()

    async def request(method: str, path: str, body: Any) -> RegistryAnswer:
        url = registry.rstrip("/") + path
        return await http.request(method, url, headers=headers, body=body, seconds=_SECONDS)

    try:
        yield request
    finally:
        await http.close()


def _content(answer: RegistryAnswer) -> Any:
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
