"""Keeps the forwards of `exec-server port`, also when the session is lost."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from time import monotonic
from typing import Any

from exec_server.cli.port.port_specs import ForwardSpec
from exec_server.client.client import ExecServerClient
from exec_server.client.streams.forwards import PortForward, listening_socket
from exec_server.client.streams.helper_streams import HELPER_WORDS
from exec_server.client.streams.preview_front import PreviewFront, host_label
from exec_server.client.streams.stream_place import StreamPlace
from exec_server.client.streams.stream_server import RemoteServer
from exec_server.errors import ConnectionClosed, ConnectionRejected, ExecServerError, MethodNotFound

# The same complaint about a connection is told once in so many seconds.
_COMPLAINT_SECONDS = 1.0
# A laptop may sleep for so long, and the streams go on.
_RETAINED_SECONDS = 3600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0

OpenClient = Callable[[], AbstractAsyncContextManager[ExecServerClient]]


class PortRunner:
    """Opens *specs* over clients of *open_client*, one after the other, until it is stopped.

    `on_ready` is called with the facts of all forwards once all of them listen, and `say` with what
    a person should know.
    """

    def __init__(
        self,
        open_client: OpenClient,
        specs: list[ForwardSpec],
        *,
        server: str,
        say: Callable[[str], None],
        on_ready: Callable[[list[dict[str, str]]], Any],
        preview_port: int = 0,
        as_localhost: bool = False,
        allow_other_users: bool = False,
    ) -> None:
        self._open_client = open_client
        self._specs = specs
        self._remote = [spec for spec in specs if spec.kind == "remote"]
        self._server = server
        self._say = say
        self._on_ready = on_ready
        self._preview_port = preview_port
        self._as_localhost = as_localhost
        self._allow_other_users = allow_other_users
        self._local: list[PortForward] = []
        self._front: PreviewFront | None = None
        self._is_ready = False
        # The last complaint, and when it may be told again.
        self._complaint, self._again_at = "", 0.0

    async def run(self) -> None:
        """Forward until the task is cancelled. Raises what the first connection raises."""
        pause = _FIRST_PAUSE
        try:
            while True:
                try:
                    async with self._open_client() as client:
                        await self._serve(client)
                    pause = _FIRST_PAUSE
                except ConnectionRejected:
                    raise
                except ExecServerError as exc:
                    if not self._is_ready or not exc.retryable:
                        raise
                    self._say(str(exc))
                self._say(
                    f"the session is lost with its streams; connecting again to {self._server}"
                )
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            await self._close()

    async def _serve(self, client: ExecServerClient) -> None:
        """Forward over *client* until its session is lost."""
        with contextlib.suppress(MethodNotFound):
            await client.retain(_RETAINED_SECONDS)
        if self._is_ready:
            for forward in self._local:
                client.adopt_forward(forward)
            remote = [(spec, await self._listen_again(client, spec)) for spec in self._remote]
            self._say(f"connected again to {self._server}")
        else:
            if not await client.offers("streams"):
                self._say(f"{self._server}: {HELPER_WORDS}")
            local = await self._open_local(client)
            servers = [await self._listen_there(client, spec) for spec in self._remote]
            facts = [
                _facts("remote", server.address, spec.to)
                for spec, server in zip(self._remote, servers, strict=True)
            ]
            # A port that the system has chosen stays the same.
            self._remote = [
                spec._replace(listen=server.place)
                for spec, server in zip(self._remote, servers, strict=True)
            ]
            remote = list(zip(self._remote, servers, strict=True))
            self._is_ready = True
            self._on_ready([*local, *facts])
        await self._keep_all(client, remote)

    async def _keep_all(
        self, client: ExecServerClient, remote: Sequence[tuple[ForwardSpec, RemoteServer | None]]
    ) -> None:
        """Keep what listens there until the session of *client* is lost."""
        async with asyncio.TaskGroup() as tasks:
            keeping = [
                tasks.create_task(self._keep_listening(client, spec, server))
                for spec, server in remote
            ]
            await client.wait_closed()
            for task in keeping:
                task.cancel()

    async def _open_local(self, client: ExecServerClient) -> list[dict[str, str]]:
        facts = []
        for spec in self._specs:
            if spec.kind == "local":
                assert spec.to is not None
                forward = await client.forward(
                    place_of(spec.listen),
                    place_of(spec.to),
                    on_error=self._complain,
                    allow_other_users=self._allow_other_users,
                )
            elif spec.kind == "socks":
                forward = await client.forward_socks(
                    place_of(spec.listen),
                    on_error=self._complain,
                    allow_other_users=self._allow_other_users,
                )
            else:
                continue
            self._local.append(forward)
            facts.append(_facts(spec.kind, forward.address, spec.to))
        return [*facts, *await self._open_previews(client)]

    async def _open_previews(self, client: ExecServerClient) -> list[dict[str, str]]:
        ports = {spec.to.port or 0 for spec in self._specs if spec.kind == "preview" and spec.to}
        if not ports:
            return []
        sock = await listening_socket(StreamPlace("127.0.0.1", self._preview_port))
        front = client.forward_with(
            lambda owner: PreviewFront(
                owner,
                sock,
                host_label(self._server),
                ports,
                self._complain,
                as_localhost=self._as_localhost,
                allow_other_users=self._allow_other_users,
            )
        )
        self._local.append(front)
        return [
            _facts("preview", front.address, StreamPlace("localhost", port))
            | {"url": front.url(port)}
            for port in sorted(ports)
        ]

    async def _listen_there(self, client: ExecServerClient, spec: ForwardSpec) -> RemoteServer:
        assert spec.to is not None
        return await client.forward_back(
            place_of(spec.listen), place_of(spec.to), on_error=self._complain
        )

    async def _listen_again(
        self, client: ExecServerClient, spec: ForwardSpec
    ) -> RemoteServer | None:
        """Listen there once more; if that fails, say so: the other forwards go on."""
        try:
            return await self._listen_there(client, spec)
        except ConnectionClosed:
            # The next session does it.
            return None
        except (ExecServerError, OSError) as exc:
            self._say(f"-R {spec.listen}: {exc}; trying again")
            return None

    async def _keep_listening(
        self, client: ExecServerClient, spec: ForwardSpec, server: RemoteServer | None
    ) -> None:
        """Replace a listener of the server that is lost, until the task is cancelled."""
        pause = _FIRST_PAUSE
        while True:
            if server is not None:
                pause = _FIRST_PAUSE
                await server.wait_closed()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            server = await self._listen_again(client, spec)
            if server is not None:
                self._say(f"-R {spec.listen}: listens again")

    def _complain(self, text: str) -> None:
        """Tell why a connection failed. A program that tries again and again is told of once."""
        now = monotonic()
        if text != self._complaint or now >= self._again_at:
            self._complaint, self._again_at = text, now + _COMPLAINT_SECONDS
            self._say(text)

    async def _close(self) -> None:
        for forward in self._local:
            forward.close()
        for forward in self._local:
            await forward.wait_closed()


def place_of(place: StreamPlace) -> tuple[str, int] | str:
    """A place as the calls of a client take it."""
    return place.path if place.path is not None else (place.host or "localhost", place.port or 0)


def _facts(kind: str, address: tuple[str, int] | str, to: StreamPlace | None) -> dict[str, str]:
    listen = address if isinstance(address, str) else str(StreamPlace(*address))
    return {"kind": kind, "listen": listen} | ({} if to is None else {"to": str(to)})


@contextlib.contextmanager
def ended_by_signals(task: asyncio.Task[Any]) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM cancel *task* during a block."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for each in signals:
        loop.add_signal_handler(each, task.cancel)
    try:
        yield
    finally:
        for each in signals:
            loop.remove_signal_handler(each)
