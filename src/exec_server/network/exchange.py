"""One HTTP request passed on, and its answer passed back."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

import h11

from exec_server.limits import Limits
from exec_server.network import http_heads
from exec_server.network.hang_up import watch_end
from exec_server.network.http_heads import Framing, Headers, RequestTarget
from exec_server.network.http_reader import HttpReader
from exec_server.network.upstream import Unreachable, UpstreamProxy

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# The Host header is not passed on: we write our own.
_HOST = frozenset((b"host",))


async def forward(
    request: h11.Request,
    client: HttpReader,
    other: socket.socket,
    aim: RequestTarget,
    proxy: UpstreamProxy | None,
    *,
    limits: Limits,
) -> bool:
    """Pass *request* of *client* on over *other*; True if the client may send another one.

    Raises Unreachable before anything was answered, and OSError or relay.Idle after that.
    """
    loop = asyncio.get_running_loop()
    await _send_request(loop, request, other, aim, proxy)
    framing = http_heads.framing(request, method=request.method)
    upload = loop.create_task(_upload(loop, request, client, other, framing), name="upload")
    watch = _HangUpWatch(client.sock, other, limits)
    upload.add_done_callback(watch.uploaded)
    try:
        is_next = await _download(loop, request, client.sock, other, limits)
        return is_next and upload.done() and upload.exception() is None
    finally:
        watch.stop()
        upload.cancel()
        await asyncio.wait({upload})


class _HangUpWatch:
    """Ends the exchange when the process hangs up, or when its body ends before it should."""

    def __init__(self, client: socket.socket, other: socket.socket, limits: Limits) -> None:
        self._client = client
        self._other = other
        self._limits = limits
        self._timer: asyncio.TimerHandle | None = None
        self._stop_watching: Callable[[], None] | None = None
        self._is_over = False

    def uploaded(self, upload: asyncio.Task[None]) -> None:
        if self._is_over or upload.cancelled():
            return
        if upload.exception() is None:
            # Nothing else reads from the process now.
            self._stop_watching = watch_end(self._client, self._end)
        else:
            # A server that wants no more of the body may still send an answer.
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._limits.close_timeout, self._end)

    def _end(self) -> None:
        # The download that waits for the server now sees the end of file.
        if self._other.fileno() >= 0:
            with contextlib.suppress(OSError):
                self._other.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._stop_watching is not None:
            self._stop_watching()


async def _send_request(
    loop: asyncio.AbstractEventLoop,
    request: h11.Request,
    other: socket.socket,
    aim: RequestTarget,
    proxy: UpstreamProxy | None,
) -> None:
    authority = http_heads.authority(aim.host, aim.port, default=80).encode()
    headers = http_heads.onward(request.headers, drop=_HOST)
    if http_heads.framing(request, method=request.method).is_chunked:
        headers.append((b"Transfer-Encoding", b"chunked"))
    line = aim.path
    if proxy is not None:
        line = b"http://%b%b" % (authority, aim.path)
        if proxy.authorization is not None:
            headers.append((b"Proxy-Authorization", proxy.authorization.encode()))
    # The Host header names the host that was decided about; each connection carries one request.
    headers = [(b"Host", authority), *headers, (b"Connection", b"close")]
    try:
        await loop.sock_sendall(
            other, http_heads.head(b"%b %b HTTP/1.1" % (request.method, line), headers)
        )
    except OSError as exc:
        raise Unreachable(exc.errno) from exc


async def _upload(
    loop: asyncio.AbstractEventLoop,
    request: h11.Request,
    client: HttpReader,
    other: socket.socket,
    framing: Framing,
) -> None:
    if framing.is_empty:
        client.keep_rest()
        return
    if http_heads.header(request.headers, b"expect") is not None:
        await loop.sock_sendall(client.sock, _CONTINUE)
    await client.pass_on(framing, other, as_chunks=True)


async def _download(
    loop: asyncio.AbstractEventLoop,
    request: h11.Request,
    client: socket.socket,
    other: socket.socket,
    limits: Limits,
) -> bool:
    answering = HttpReader(other, limits=limits)
    try:
        response = await answering.response(request.method)
    except (OSError, TimeoutError, h11.RemoteProtocolError) as exc:
        raise Unreachable from exc
    if response is None:
        raise Unreachable
    framing = http_heads.framing(response, method=request.method)
    speaks_chunks = request.http_version != b"1.0"
    is_chunked = framing.is_chunked and speaks_chunks
    is_last = not speaks_chunks or (framing.length is None and not is_chunked)
    await loop.sock_sendall(
        client, _response_head(request, response, is_chunked=is_chunked, is_last=is_last)
    )
    if not framing.is_empty:
        await answering.pass_on(framing, client, as_chunks=is_chunked)
    return not is_last


def _response_head(
    request: h11.Request, response: h11.Response, *, is_chunked: bool, is_last: bool
) -> bytes:
    headers: Headers = http_heads.onward(response.headers)
    if http_heads.header(response.headers, b"date") is None:
        headers.append((b"date", http_heads.date()))
    if is_chunked:
        headers.append((b"transfer-encoding", b"chunked"))
    if is_last and request.http_version != b"1.0":
        headers.append((b"connection", b"close"))
    version = request.http_version
    line = b"HTTP/%b %d %b" % (version, response.status_code, bytes(response.reason))
    return http_heads.head(line, headers)
