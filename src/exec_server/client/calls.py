"""The calls of a session, over whichever connection it has now."""

from __future__ import annotations

import asyncio
import os
import posixpath
from typing import TypeVar

from exec_server.client import tracing
from exec_server.client.connect_options import ExecServerClientConnectOptions
from exec_server.client.connection_link import ConnectionLink
from exec_server.client.flow.pacing import Flow
from exec_server.client.session_link import SessionLink
from exec_server.errors import CallTimeout, ConnectionClosed, MethodNotFound, RpcError
from exec_server.limits import Limits
from exec_server.protocol import environment
from exec_server.protocol.method import NOTHING, Method
from exec_server.protocol.paths import from_uri, to_uri

P = TypeVar("P")
R = TypeVar("R")

StrPath = str | os.PathLike[str]


class _Default:
    """The deadline that the options give to every call."""


_DEFAULT = _Default()


class Calls:
    """What every part of a client asks the server with, and what the server says of itself."""

    def __init__(self, options: ExecServerClientConnectOptions, *, limits: Limits) -> None:
        # How many calls the server runs at once for us.
        self.concurrency = 1
        self._options = options
        self._limits = limits
        self._flow = Flow(patience=limits.reader_patience)
        self._lifeline: SessionLink
        self._info: environment.EnvironmentInfo | None = None
        self._uses_uris = True

    @property
    def _link(self) -> ConnectionLink | None:
        return self._lifeline.link

    async def environment_info(self) -> environment.EnvironmentInfo:
        """What the server says of its machine; asked at most once."""
        if self._info is None:
            seconds = self._limits.info_timeout
            self._info = await self._call(environment.INFO, NOTHING, seconds=seconds)
        return self._info

    async def sandbox_info(self) -> environment.SandboxInfo | None:
        """How the server enforces sandboxes; None from one that does not tell."""
        info = await self.environment_info()
        if not info.sandbox:
            # What comes with the handshake may be from before it was known.
            seconds = self._limits.info_timeout
            self._info = info = await self._call(environment.INFO, NOTHING, seconds=seconds)
        return info.sandbox or None

    async def environment_status(self) -> str:
        """`ready`, from a server that is."""
        seconds = self._limits.status_timeout
        return (await self._call(environment.STATUS, NOTHING, seconds=seconds)).status

    async def _call(
        self,
        method: Method[P, R],
        params: P,
        *,
        seconds: float | _Default | None = _DEFAULT,
        repeat: bool = False,
    ) -> R:
        """The answer to a request, which waits for a connection when there is none.

        When the connection is lost before the answer, *repeat* has it made again.
        """
        if isinstance(seconds, _Default):
            seconds = self._options.call_timeout
        with tracing.calling(method.name, params) as trace:
            return await self._ask(method, params, seconds=seconds, repeat=repeat, trace=trace)

    async def _ask(
        self,
        method: Method[P, R],
        params: P,
        *,
        seconds: float | None,
        repeat: bool,
        trace: bytes | None,
    ) -> R:
        is_sent = False
        try:
            with self._flow.calling():
                async with asyncio.timeout(seconds):
                    while True:
                        link = await self._lifeline.connected_link()
                        is_sent = True
                        try:
                            return await link.call(method, params, seconds=None, trace=trace)
                        except ConnectionClosed:
                            if not repeat:
                                raise
        except TimeoutError:
            text = f"{method.name} was not answered within {seconds:g} s"
            raise CallTimeout(text, may_have_run=is_sent) from None
        except ConnectionClosed as exc:
            if not is_sent:
                raise
            text = f"{exc}: {method.name} may have been carried out"
            raise type(exc)(text, may_have_run=True) from exc

    def _send(self, method: Method[P, R], params: P) -> None:
        """Make a request whose outcome nobody waits for, if there is a connection."""
        if self._link is not None and not self._link.is_lost:
            self._link.send(method, params)

    async def _offers(self, capability: str) -> bool:
        """Whether the server says that it can do something."""
        try:
            return bool((await self.environment_info()).capabilities.get(capability))
        except RpcError:
            return False

    async def _require(self, capability: str, otherwise: str) -> None:
        """Raise MethodNotFound when the server says what it can do, and this is not among it."""
        try:
            info = await self.environment_info()
        except RpcError:
            return
        if not info.capabilities.get(capability):
            raise MethodNotFound(f"the server does not offer {capability}: {otherwise}")

    async def _resolve(self, cwd: StrPath | None) -> str:
        """A working directory as the server wants it."""
        text = "" if cwd is None else os.fspath(cwd)
        if text.startswith("file:"):
            return text
        if not text.startswith("/"):
            text = posixpath.join(await self._server_cwd(), text)
        return to_uri(text) if self._uses_uris else text

    async def _server_cwd(self) -> str:
        try:
            info = await self.environment_info()
        except RpcError:
            # Old servers know no such question.
            return "/"
        return os.fsdecode(from_uri(info.cwd)) if info.cwd else "/"
