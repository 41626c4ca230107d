"""`SERVER:/PATH`: a file on a server, as the commands for files write it."""

from __future__ import annotations

import contextlib
import os
import re
from types import TracebackType
from typing import NamedTuple, Self

from exec_server.cli.server_access import environments, is_url, open_server
from exec_server.client.client import ExecServerClient
from exec_server.client.files.remote_files import RemoteFiles

# A URL ends at the first colon with a slash after it; the colon of the scheme does not count.
_REMOTE = re.compile(r"((?:wss?://|noise\+https?://|unix://|stdio:).+?):(/.*)", re.DOTALL)
# The name of an environment ends at the first colon. A path on this machine that looks like one is
# written ./NAME:...
_NAMED = re.compile(r"([A-Za-z0-9_-]{1,64}):(/.*)?", re.DOTALL)

TARGET_HELP = """\
A file on a server is written SERVER:/PATH. SERVER is a URL as `exec-server` prints it, unix://PATH,
stdio:PROGRAM for a server that is started for this command only, or the name of an environment.
`exec-server env` lists the names.
"""


class Target(NamedTuple):
    """A file on a server, or on this machine if there is no URL."""

    # A URL, or the name of an environment.
    url: str | None
    # An empty path is the directory that the server runs in.
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
        return self.path if self.url is None else f"{self.url}:{self.path}"


def parse_target(text: str) -> Target:
    """Read SERVER:/PATH or a local path.

    Raises ConfigurationError if environments.toml is wrong.
    """
    match = _REMOTE.fullmatch(text)
    if match is not None:
        return Target(match[1], match[2])
    if is_url(text):
        return Target(text.removesuffix(":"), "")
    match = _NAMED.fullmatch(text)
    if match is not None and match[1] in environments().names:
        return Target(match[1], match[2] or "")
    return Target(None, text)


class Servers:
    """One client for each server that is used; all are closed at the end of the block."""

    def __init__(self, *, token: str | None, pin: str | None = None, client_name: str) -> None:
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
        return (await files.uri(target.path or ".")).native
