"""`http/request` for one connection, and the bodies that are being streamed to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

import aiohttp
import msgspec

from exec_server.errors import InternalError, InvalidParams, InvalidRequest
from exec_server.limits import Limits
from exec_server.outbound.aiohttp_internals import read_available
from exec_server.outbound.base64_pieces import Base64Pieces
from exec_server.outbound.outgoing import grouped, prepare
from exec_server.outbound.sender import FAILURES, TIMED_OUT, Sender
from exec_server.outbound.shortages import shortage
from exec_server.protocol import http
from exec_server.protocol.base64 import encode_base64
from exec_server.protocol.method import Encoded

logger = logging.getLogger(__name__)

Send = Callable[..., None]
# Raises an RpcError if the host of a URL must not be reached.
CheckHost = Callable[[str], None]

# A longer wait than this is too long for the clock of some event loops.
_LONGEST_WAIT = 365 * 24 * 3600.0
_BROKEN_BODY = "error decoding response body"

_encode = msgspec.json.Encoder().encode


class Outbound:
    """The HTTP client that all connections of a server share."""

    def __init__(self, environ: Mapping[str, str], *, limits: Limits) -> None:
        self._environ = environ
        self._limits = limits
        self._sender = Sender(environ, limits=limits)
        self._streams: set[asyncio.Task[None]] = set()

    def connect(
        self,
        send: Send,
        *,
        environ: Mapping[str, str] | None = None,
        check_host: CheckHost | None = None,
    ) -> Exchanges:
        """Return the Exchanges of a new connection; *send* takes a message in pieces.

        Headers may have the variables of *environ*, by default those of the server. *check_host*
        is also called for the target of each redirect.
        """
        return Exchanges(
            self._sender,
            send,
            environ=self._environ if environ is None else environ,
            check_host=check_host,
            limits=self._limits,
            streams=self._streams,
        )

    async def stop(self) -> None:
        """End all streams, and all connections to targets."""
        for stream in self._streams:
            stream.cancel()
        if self._streams:
            await asyncio.wait(self._streams, timeout=self._limits.close_timeout)
        await self._sender.stop()


class Exchanges:
    """The requests of one connection; those that are running end with it."""

    def __init__(
        self,
        sender: Sender,
        send: Send,
        *,
        environ: Mapping[str, str],
        limits: Limits,
        streams: set[asyncio.Task[None]],
        check_host: CheckHost | None = None,
    ) -> None:
        self._sender = sender
        self._send = send
        self._environ = environ
        self._check_host = check_host
        self._limits = limits
        self._all_streams = streams
        # The value is None until the headers have arrived.
        self._streams: dict[str, asyncio.Task[None] | None] = {}
        self._writable = asyncio.Event()
        self._writable.set()

    async def request(self, params: http.RequestParams) -> http.RequestResult | Encoded:
        """Make one request; with `streamResponse` the body follows the answer."""
        if not params.stream_response:
            return await self._buffered(params)
        request_id = params.request_id
        self._reserve(request_id)
        try:
            response, deadline = await self._exchange(params)
        except BaseException:
            del self._streams[request_id]
            raise
        streaming = self._stream(request_id, response, deadline)
        task = asyncio.get_running_loop().create_task(streaming, name="stream an HTTP body")
        self._streams[request_id] = task
        self._all_streams.add(task)
        task.add_done_callback(partial(self._ended, request_id, response))
        return http.RequestResult(response.status, _headers(response))

    def _reserve(self, request_id: str) -> None:
        if request_id in self._streams:
            raise InvalidParams(
                f"http/request streamResponse requestId `{request_id}` is already active"
            )
        if len(self._streams) >= self._limits.http_streams:
            raise InvalidRequest(f"more than {self._limits.http_streams} streamed responses")
        self._streams[request_id] = None

    async def _exchange(
        self, params: http.RequestParams
    ) -> tuple[aiohttp.ClientResponse, float | None]:
        outgoing = prepare(params, self._environ)
        deadline = None
        if params.timeout_ms is not None:
            if params.timeout_ms == 0:
                raise InternalError(TIMED_OUT)
            wait = min(params.timeout_ms / 1000, _LONGEST_WAIT)
            deadline = asyncio.get_running_loop().time() + wait
        follow = params.redirect_policy == "follow"
        response = await self._sender.exchange(
            outgoing, follow=follow, deadline=deadline, check_host=self._check_host
        )
        return response, deadline

    # A body in the answer.

    async def _buffered(self, params: http.RequestParams) -> Encoded:
        response, deadline = await self._exchange(params)
        try:
            async with asyncio.timeout_at(deadline):
                pieces = await self._read_all(response)
        except (*FAILURES, MemoryError) as exc:
            raise InternalError(
                f"failed to read http/request response body: {_broken(exc)}"
            ) from exc
        finally:
            # This keeps the connection open if the body was read to its end.
            response.close()
        head = _encode(_ResultHead(response.status, _headers(response)))
        return Encoded((head[:-1], b',"bodyBase64":"', *pieces, b'"}'))

    async def _read_all(self, response: aiohttp.ClientResponse) -> list[bytes]:
        """Return the base64 of the body, in pieces."""
        limit = self._limits.http_body_bytes
        body = Base64Pieces()
        while data := await read_available(response):
            body.add(data)
            if body.size > limit:
                raise InternalError(
                    f"failed to read http/request response body: it has more than {limit} bytes"
                )
        return body.finish()

    # A body that follows.

    async def _stream(
        self, request_id: str, response: aiohttp.ClientResponse, deadline: float | None
    ) -> None:
        # The answer is sent in this turn of the loop; the body must not come before it.
        await asyncio.sleep(0)
        deltas = _Deltas(request_id, self._send)
        error = None
        try:
            async with asyncio.timeout_at(deadline):
                await self._send_all(response, deltas)
        except (*FAILURES, MemoryError) as exc:
            logger.warning("the body of an HTTP answer broke off: %s", type(exc).__name__)
            error = _broken(exc)
        # The id is free before the client learns of the end.
        self._streams.pop(request_id, None)
        deltas.end(error)

    async def _send_all(self, response: aiohttp.ClientResponse, deltas: _Deltas) -> None:
        size = self._limits.http_delta_bytes
        while data := await read_available(response):
            for start in range(0, len(data), size):
                # While the client does not read, the target is not read either.
                await self._writable.wait()
                deltas.send(data[start : start + size])

    def _ended(
        self, request_id: str, response: aiohttp.ClientResponse, task: asyncio.Task[None]
    ) -> None:
        response.close()
        self._all_streams.discard(task)
        if self._streams.get(request_id) is task:
            del self._streams[request_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("streaming an HTTP body failed", exc_info=error)

    # The connection.

    def writing_paused(self) -> None:
        self._writable.clear()

    def writing_resumed(self) -> None:
        self._writable.set()

    def close(self) -> None:
        """Abort every stream; the targets see the end of their connections at once."""
        for stream in self._streams.values():
            if stream is not None:
                stream.cancel()


class _ResultHead(msgspec.Struct):
    """A result without its body."""

    status: int
    headers: list[http.Header]


class _Deltas:
    """Numbers the pieces of one body and sends each in a message."""

    def __init__(self, request_id: str, send: Send) -> None:
        event = http.BODY_DELTA.name.encode()
        self._head = b'{"method":"%b","params":{"requestId":%b,"seq":' % (
            event,
            _encode(request_id),
        )
        self._send = send
        self._seq = 0

    def send(self, data: bytes) -> None:
        # The number counts only if there is memory for the piece: no number may be missing.
        encoded = encode_base64(data)
        self._seq += 1
        self._send(
            self._head,
            b'%d,"deltaBase64":"' % self._seq,
            encoded,
            b'","done":false,"error":null}}',
        )

    def end(self, error: str | None) -> None:
        tail = b'%d,"deltaBase64":"","done":true,"error":%b}}'
        self._send(self._head, tail % (self._seq + 1, _encode(error)))


def _broken(error: BaseException) -> str:
    """Say why a body is not complete, in the words of the reference, and what has run out."""
    missing = shortage(error)
    return _BROKEN_BODY if missing is None else f"{_BROKEN_BODY}: {missing}"


def _headers(response: aiohttp.ClientResponse) -> list[http.Header]:
    """Return the headers of an answer; those with values beyond visible ASCII are left out."""
    visible = [
        (name.decode("ascii", "replace").lower(), value.decode())
        for name, value in response.raw_headers
        if all(byte == 0x09 or 0x20 <= byte < 0x7F for byte in value)
    ]
    return [http.Header(name, value) for name, value in grouped(visible)]
