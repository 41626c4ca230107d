"""The only way out of a sandbox: listeners in its network namespace, served by this process.

A network namespace without a network still has a loopback of its own. A socket belongs to the
namespace in which it was made, whichever process holds it. So listeners are made inside, before the
command may run, and handed to this process, whose proxy serves them like any other. Nothing of ours
runs inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence

from exec_server.errors import ExecServerError
from exec_server.limits import Limits
from exec_server.network import namespace_listener, proxy_environment, relay, upstream
from exec_server.network.addresses import is_loopback
from exec_server.network.proxy import ManagedProxy, ProxyListener, Serve
from exec_server.network.proxy_environment import Endpoint
from exec_server.network.upstream import Unreachable
from exec_server.printable import printable

logger = logging.getLogger(__name__)

_CHILD_PID = re.compile(rb'"child-pid":\s*([0-9]+)')
# These ports are above the range from which the kernel draws, and no program listens there by
# default.
_FIRST_PORT = 61_080
_MESSAGE_BYTES = 4096
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class BridgeFailed(ExecServerError):
    """There is no way out of this sandbox; the command that waits in it must not run."""


class Bridge:
    """What a confined process may reach: its *proxy*, or the loopback proxies that *env* names.

    Raises proxy_environment.NoProxy when there is neither. Lay `environment` over *env* before the
    process is made, and call `open` before it may run.
    """

    def __init__(
        self, proxy: ManagedProxy | None, env: Mapping[str, str], *, limits: Limits
    ) -> None:
        self._proxy = proxy
        self._limits = limits
        self._listeners: list[ProxyListener] = []
        self._services: list[Serve] = []
        self._hold: _Hold | None = None
        if proxy is not None:
            self.ports = _ports(len(proxy.services))
            self.environment = proxy.environment(self.ports)
            return
        named = proxy_environment.named_proxies(env)
        endpoints = list(dict.fromkeys(named.values()))
        self.ports = _ports(len(endpoints))
        self._services = [Forward(endpoint, limits=limits) for endpoint in endpoints]
        port_of = dict(zip(endpoints, self.ports, strict=True))
        self.environment = {
            name: proxy_environment.moved(env[name], port_of[endpoint])
            for name, endpoint in named.items()
        }

    def listen(self) -> dict[str, str]:
        """The variables that point the process at its listeners; these exist before it runs."""
        return self.environment

    def hold(self, on_failure: Callable[[str], object]) -> tuple[int, int]:
        """Descriptors for bubblewrap's `--block-fd` and `--json-status-fd`; they stay ours.

        The sandbox that is started with copies of them runs its command once there is a way out. If
        there will be none, *on_failure* is called with the reason, and has to end the sandbox.
        """
        self._hold = _Hold(self.open, on_failure, seconds=self._limits.proxy_connect_timeout)
        return self._hold.fds

    def started(self) -> None:
        """The held sandbox runs; from now on it has a limited time to report."""
        if self._hold is not None:
            self._hold.expect_status()

    async def open(self, pid: int) -> None:
        """Listen in the network namespace of *pid* and serve. Raises BridgeFailed."""
        sockets = await listen_inside(pid, self.ports, seconds=self._limits.proxy_connect_timeout)
        if self._proxy is not None:
            self._proxy.serve(sockets)
            return
        for sock, serve in zip(sockets, self._services, strict=True):
            self._listeners.append(
                ProxyListener(sock, serve, max_connections=self._limits.proxy_connections)
            )

    def stop_asking(self) -> None:
        if self._proxy is not None:
            self._proxy.stop_asking()

    def close(self) -> None:
        """End every listener and connection. Idempotent."""
        if self._hold is not None:
            self._hold.close()
        if self._proxy is not None:
            self._proxy.close()
        for listener in self._listeners:
            listener.close()


class _Hold:
    """A sandbox that waits: learns its first process, and releases it when *prepare* is done.

    The sandbox has to report the process within *seconds* of `expect_status`.
    """

    def __init__(
        self,
        prepare: Callable[[int], Awaitable[None]],
        on_failure: Callable[[str], object],
        *,
        seconds: float,
    ) -> None:
        self._prepare = prepare
        self._on_failure = on_failure
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._gate = _endless_pipe()
        self._status, self._told = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.fds = (self._gate, self._told)
        self._task: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_told = self._is_closed = False
        self._loop.add_reader(self._status, self._on_status)

    def expect_status(self) -> None:
        if not (self._is_told or self._is_closed):
            late = "the sandbox did not report its network in time"
            self._deadline = self._loop.call_later(self._seconds, self._fail, late)

    def _on_status(self) -> None:
        self._stop_expecting()
        # bubblewrap writes {"child-pid": 123, ...} at once when the namespaces exist.
        found = _CHILD_PID.search(os.read(self._status, _MESSAGE_BYTES))
        if found is None:
            self._fail("the sandbox did not report its network")
            return
        self._task = self._loop.create_task(self._let_go(int(found[1])), name="bridge a sandbox")

    def _stop_expecting(self) -> None:
        self._is_told = True
        self._loop.remove_reader(self._status)
        if self._deadline is not None:
            self._deadline.cancel()

    async def _let_go(self, pid: int) -> None:
        try:
            await self._prepare(pid)
        except (BridgeFailed, OSError) as exc:
            self._fail(str(exc))
            return
        if not self._is_closed:
            os.write(self._gate, b"go")

    def _fail(self, reason: str) -> None:
        self._stop_expecting()
        logger.error(
            "a sandboxed process cannot reach its proxy and is ended: %s", printable(reason)
        )
        self._on_failure(f"failed to prepare host proxy routing bridge: {reason}")

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        self._stop_expecting()
        for fd in (self._gate, self._status, self._told):
            os.close(fd)


def _endless_pipe() -> int:
    """Both ends of a pipe as one descriptor, so that a reader of a copy never sees the end of file.

    To bubblewrap the end of file is as good as a byte. With a pipe of two ends, a server that is
    killed would release the command that it holds.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        return os.open(f"/proc/self/fd/{reader}", os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(reader)
        os.close(writer)


class Forward:
    """Passes connections on to a proxy on the host's loopback."""

    def __init__(self, endpoint: Endpoint, *, limits: Limits) -> None:
        self._endpoint = endpoint
        self._limits = limits

    async def __call__(self, sock: socket.socket, client: str) -> None:
        found = await upstream.resolve(
            self._endpoint.host, seconds=self._limits.proxy_resolve_timeout
        )
        # The host is on the loopback by its name; what the resolver says must agree.
        addresses = [address for address in found.addresses if is_loopback(address)]
        with contextlib.suppress(Unreachable, OSError, relay.Idle):
            other = await upstream.connect(addresses, self._endpoint.port, limits=self._limits)
            with other:
                await relay.tunnel(sock, other, idle=self._limits.proxy_idle_timeout)


def _ports(count: int) -> list[int]:
    return list(range(_FIRST_PORT, _FIRST_PORT + count))


async def listen_inside(pid: int, ports: Sequence[int], *, seconds: float) -> list[socket.socket]:
    """Sockets that listen on *ports* of 127.0.0.1 in the network namespace of *pid*.

    Raises BridgeFailed.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours:
        with theirs:
            helper = _start_helper(theirs, pid, ports)
        try:
            async with asyncio.timeout(seconds):
                await upstream.readable(ours)
            message, sockets = _receive(ours, len(ports))
        except (TimeoutError, OSError) as exc:
            raise BridgeFailed("the sandbox's network could not be entered in time") from exc
        finally:
            helper.kill()
            helper.wait()
    if len(sockets) != len(ports):
        for sock in sockets:
            sock.close()
        raise BridgeFailed(f"the sandbox's network could not be entered: {message}")
    return sockets


def _start_helper(
    answers: socket.socket, pid: int, ports: Sequence[int]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", namespace_listener.__file__, str(pid), *map(str, ports)],
            stdin=answers.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            start_new_session=True,
        )
    except OSError as exc:
        raise BridgeFailed(f"the sandbox's network could not be entered: {exc}") from exc


def _receive(sock: socket.socket, count: int) -> tuple[str, list[socket.socket]]:
    # `socket.recv_fds` of 3.11 does not pass the flag on.
    room = socket.CMSG_SPACE(count * 4)
    message, ancillary, *_ = sock.recvmsg(_MESSAGE_BYTES, room, _CLOEXEC)
    sockets = [
        socket.socket(fileno=int.from_bytes(raw[index : index + 4], sys.byteorder))
        for *_, raw in ancillary
        for index in range(0, len(raw) - 3, 4)
    ]
    return message.decode(errors="replace") or "it ended at once", sockets
