"""`SERVER:/PATH`: a file on a server, as the commands for files write it."""

from __future__ import annotations

import contextlib
import os
import re
from types import TracebackType
from typing import NamedTuple, Self

from exec_server.cli.options import Token
from exec_server.cli.server_access import environments, is_url, open_server
from exec_server.client.client import ExecServerClient
from exec_server.client.files.remote_files import RemoteFiles
from exec_server.errors import InvalidRequest, RpcError
from exec_server.protocol.paths import from_uri

# A URL ends at the first colon with a slash after it; the colon of the scheme does not count.
_REMOTE = re.compile(r"((?:wss?://|noise\+https?://|unix://|stdio:).+?):(/.*)", re.DOTALL)
# A relative path follows the colon after the host and the port, if there is one.
_RELATIVE = re.compile(
    r"((?:wss?|noise\+https?)://(?:\[[^\]]*\]|[^:/?#\[\]]*)(?::\d+(?![^:/?#]))?+(?:[/?#][^:]*)?):(.+)",
    re.DOTALL,
)
# A relative path follows the first colon after the path of a socket.
_RELATIVE_UNIX = re.compile(r"(unix://[^:]+):(.+)", re.DOTALL)
# The name of an environment ends at the first colon. A path on this machine that looks like one is
# written ./NAME:...
_NAMED = re.compile(r"([A-Za-z0-9_-]{1,64}):(.*)", re.DOTALL)

TARGET_HELP = """\
A file on a server is written SERVER:/PATH. A path without the slash begins in the directory that
the server runs in, and ~/ is the home directory of its user. SERVER is a URL as `exec-server`
prints it, unix://PATH, stdio:PROGRAM for a server that is started for this command only, or the
name of an environment. `exec-server env` lists the names.
"""


class Target(NamedTuple):
    """A file on a server, or on this machine if there is no URL."""

    # A URL, or the name of an environment.
    url: str | None
    # A relative path on a server begins in the directory that the server runs in; an empty path
    # is this directory.
    path: str

    @property
    def is_remote(self) -> bool:
        return self.url is not None

    @property
    def name(self) -> str:
        return os.path.basename(self.path.rstrip("/"))

    def below(self, name: str) -> Target:
        return Target(self.url, os.path.join(self.path, name))

    def __str__(self) -> str:
        if self.url is None:
            return self.path
        return f"{self.url}:{self.path}" if self.path else self.url


def parse_target(text: str) -> Target:
    """Read SERVER:/PATH, SERVER:PATH or a local path.

    Raises ConfigurationError if environments.toml is wrong.
    """
    match = _REMOTE.fullmatch(text)
    if match is None and not _is_socket(text):
        match = _RELATIVE.fullmatch(text) or _RELATIVE_UNIX.fullmatch(text)
    if match is not None:
        return Target(match[1], match[2])
    if is_url(text):
        return Target(text.removesuffix(":"), "")
    match = _NAMED.fullmatch(text)
    if match is not None and match[1] in environments().names:
        return Target(match[1], match[2])
    return Target(None, text)


def parse_remote(text: str) -> Target | None:
    """Read SERVER:/PATH, or SERVER alone; None if *text* names no server.

    Raises ConfigurationError if environments.toml is wrong.
    """
    target = parse_target(text)
    if target.is_remote:
        return target
    return Target(text, "") if text in environments().names else None


def is_like_remote(text: str) -> bool:
    """True if *text* has the form NAME:PATH or is a server's name, and is no file on this machine.

    Raises ConfigurationError if environments.toml is wrong.
    """
    if os.path.lexists(text):
        return False
    return _NAMED.fullmatch(text) is not None or text in environments().names


def not_remote(text: str) -> str:
    """The reason why *text* does not name a file on a server."""
    if text in environments().names:
        return f"`{text}` is the name of a server: write `{text}:PATH` for a file there"
    name = _NAMED.fullmatch(text)
    if name is None:
        return f"'{text}' is not on a server: expected SERVER:/PATH"
    return f"there is no environment `{name[1]}`; `exec-server env` lists the names"


def _is_socket(text: str) -> bool:
    """True if *text* is the URL of a Unix socket whose name has a colon."""
    return text.startswith("unix://") and os.path.exists(text.removeprefix("unix://"))


class Servers:
    """One client for each server that is used; all are closed at the end of the block."""

    def __init__(self, *, token: Token | None, pin: str | None = None, client_name: str) -> None:
        self._token = token
        self._pin = pin
        self._client_name = client_name
        self._clients: dict[str, ExecServerClient] = {}
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def files(self, target: Target) -> RemoteFiles:
        """The files of a target's server."""
        assert target.url is not None
        client = self._clients.get(target.url)
        if client is None:
            opening = open_server(
                target.url, token=self._token, pin=self._pin, client_name=self._client_name
            )
            client = self._clients[target.url] = await self._stack.enter_async_context(opening)
        return client.fs

    async def path(self, target: Target) -> bytes:
        """A target's native path."""
        files = await self.files(target)
        return (await files.uri((await self.expanded(target)).path or ".")).native

    async def expanded(self, target: Target) -> Target:
        """The target with the home directory of the server's user in place of ~."""
        if not target.is_remote or not target.path.startswith("~"):
            return target
        tilde, _, rest = target.path.partition("/")
        home = await self._home(target) if tilde == "~" else None
        if home is None:
            raise InvalidRequest(f"the server does not tell what {tilde} is: use an absolute path")
        return Target(target.url, os.path.join(home, rest) if rest else home)

    async def _home(self, target: Target) -> str | None:
        await self.files(target)
        assert target.url is not None
        try:
            home = (await self._clients[target.url].environment_info()).user_home_dir
        except RpcError:
            # Old servers do not have this method.
            return None
        return os.fsdecode(from_uri(home)) if home else None
