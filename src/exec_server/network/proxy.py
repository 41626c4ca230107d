"""The proxy of one process: its listeners and connections, from its start to its close."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping

from exec_server.limits import Limits
from exec_server.network import proxy_environment, rules, upstream
from exec_server.network.decider import Decider, PolicyClient, Resolver
from exec_server.network.http_proxy import HttpConnection
from exec_server.network.socks import SocksConnection
from exec_server.network.upstream import Upstreams
from exec_server.protocol.network import NetworkProxy

logger = logging.getLogger(__name__)

Serve = Callable[[socket.socket, str], Awaitable[None]]

# A burst of connections longer than this waits for a second: TCP tries again after that.
_BACKLOG = 1024
_FAREWELL_SECONDS = 0.1


class ProxyListener:
    """Accepts on a listening socket, a bounded number of connections at a time."""

    def __init__(self, sock: socket.socket, serve: Serve, *, max_connections: int) -> None:
        self._sock = sock
        self._serve = serve
        self._max = max_connections
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        sock.setblocking(False)
        self._loop.add_reader(sock, self._accept)

    def _accept(self) -> None:
        try:
            sock, address = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError:
            # No descriptors are left: new connections wait until another one ends.
            logger.exception("a proxy cannot accept a connection")
            self._pause()
            self._loop.call_later(1.0, self._resume)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._run(sock, address), name="proxied connection")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if len(self._tasks) >= self._max:
            # Further connections wait in the kernel's queue.
            self._pause()

    async def _run(self, sock: socket.socket, address: tuple[str, int]) -> None:
        with sock:
            try:
                upstream.served_connection.set((sock.getsockname(), address))
                await self._serve(sock, f"{address[0]}:{address[1]}")
            except Exception:
                logger.exception("a proxied connection failed")

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if len(self._tasks) == self._max - 1:
            self._resume()

    def _pause(self) -> None:
        if not self._is_closed:
            self._loop.remove_reader(self._sock)

    def _resume(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._sock, self._accept)

    def close(self, *, after: float = 0.0) -> None:
        """Stop listening at once, and end every connection *after* that many seconds."""
        if self._is_closed:
            return
        self._loop.remove_reader(self._sock)
        self._is_closed = True
        self._sock.close()
        for task in self._tasks:
            if after:
                self._loop.call_later(after, task.cancel)
            else:
                task.cancel()


class ManagedProxy:
    """The proxy of one process; the variables of `environment` point the process at it.

    *allows_host* is the operator's rule about hosts, which neither the other rules nor an answer of
    the client override. Raises InvalidParams for a configuration without meaning, OSError when
    there are no ports.
    """

    def __init__(
        self,
        process_id: str,
        wanted: NetworkProxy,
        *,
        client: PolicyClient,
        limits: Limits,
        server_env: Mapping[str, str],
        reaches_private: bool = False,
        allows_host: Callable[[str], bool] | None = None,
        resolver: Resolver | None = None,
    ) -> None:
        self._config = wanted.proxy
        self._limits = limits
        self._decider = Decider(
            process_id,
            rules.check(process_id, wanted),
            client=client,
            limits=limits,
            timeout_ms=wanted.policy_decision_timeout_ms,
            allows_host=allows_host,
            resolver=resolver,
        )
        self._upstreams = (
            Upstreams(server_env, reaches_private=reaches_private)
            if self._config.allow_upstream_proxy
            else None
        )
        self._asks = wanted.policy_decision_timeout_ms is not None
        self._listeners: list[ProxyListener] = []

    @property
    def services(self) -> list[Serve]:
        """HTTP, and SOCKS5 if enabled; `environment` takes their ports in this order."""
        services: list[Serve] = [self._serve_http]
        if self._config.enable_socks5:
            services.append(self._serve_socks)
        return services

    def listen(self) -> dict[str, str]:
        """Listen on free ports of the loopback; return the variables that name them."""
        sockets = [listen_on_loopback() for _ in self.services]
        self.serve(sockets)
        return self.environment([sock.getsockname()[1] for sock in sockets])

    def serve(self, sockets: list[socket.socket]) -> None:
        """Serve listening *sockets*, one for each of the `services`; they are ours from then on."""
        for sock, serve in zip(sockets, self.services, strict=True):
            self._listeners.append(
                ProxyListener(sock, serve, max_connections=self._limits.proxy_connections)
            )

    def environment(self, ports: list[int]) -> dict[str, str]:
        """The variables for a process that finds the `services` at *ports* of its loopback."""
        return proxy_environment.variables(
            http_port=ports[0],
            socks_port=ports[1] if len(ports) > 1 else None,
            allows_local=self._config.allow_local_binding,
        )

    def hold(self, on_failure: Callable[[str], object]) -> None:
        """Does nothing: this proxy listens before the process is made."""

    def started(self) -> None:
        """Does nothing: no process is held."""

    def stop_asking(self) -> None:
        """The process is being ended: refuse everything that the client is still asked about."""
        self._decider.stop_asking()

    def close(self) -> None:
        """The process is over: end its listeners and connections. Idempotent."""
        self._decider.stop_asking()
        # A connection that waited for the client's answer is told about the refusal before it ends.
        after = _FAREWELL_SECONDS if self._asks else 0.0
        for listener in self._listeners:
            listener.close(after=after)

    async def _serve_http(self, sock: socket.socket, client: str) -> None:
        connection = HttpConnection(
            sock, client, decider=self._decider, upstreams=self._upstreams, limits=self._limits
        )
        await connection.serve()

    async def _serve_socks(self, sock: socket.socket, client: str) -> None:
        connection = SocksConnection(
            sock,
            client,
            decider=self._decider,
            with_datagrams=self._config.enable_socks5_udp,
            limits=self._limits,
        )
        await connection.serve()


def listen_on_loopback(port: int = 0) -> socket.socket:
    """A socket that listens on 127.0.0.1."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with contextlib.ExitStack() as undo:
        undo.callback(sock.close)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen(_BACKLOG)
        undo.pop_all()
    return sock
