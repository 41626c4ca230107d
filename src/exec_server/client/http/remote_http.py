"""`client.http`: requests that the server's machine makes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from exec_server.client.http.response_body import Budget, HttpBody
from exec_server.errors import ConnectionClosed, ProtocolError
from exec_server.protocol import http
from exec_server.protocol.base64 import Blob

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient

DEFAULT_TIMEOUT = 60.0
_BUFFERED_ID = "buffered-request"


class FromEnvironment(NamedTuple):
    """A header's value that only the server's machine knows: *prefix* and a variable there."""

    variable: str
    prefix: str = ""


HeaderValue = str | FromEnvironment
AnyHeaders = Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]]


class HttpHeaders:
    """The headers of an answer; names are in lower case, and may occur several times."""

    def __init__(self, headers: Iterable[http.Header]) -> None:
        self.pairs = [(header.name, header.value) for header in headers]

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of a name, written in any case."""
        return next(iter(self.get_all(name)), default)

    def get_all(self, name: str) -> list[str]:
        return [value for key, value in self.pairs if key == name.lower()]

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: str) -> bool:
        return bool(self.get_all(name))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def __repr__(self) -> str:
        # Values may be credentials.
        return f"HttpHeaders({', '.join(name for name, _ in self.pairs)})"


class HttpResponse(NamedTuple):
    """A whole answer. Every status is one, and its body is as it came: nothing is decoded."""

    status: int
    headers: HttpHeaders
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        return msgspec.json.decode(self.content)

    def __repr__(self) -> str:
        return f"HttpResponse({self.status}, {len(self.content)} bytes)"


class StreamedHttpResponse:
    """An answer whose body is still to come: iterate over it, or `read` it."""

    def __init__(self, result: http.RequestResult, body: HttpBody) -> None:
        self.status = result.status
        self.headers = HttpHeaders(result.headers)
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self._body.take():
            yield piece

    async def read(self) -> bytes:
        """The rest of the body."""
        return b"".join([piece async for piece in self])

    def __repr__(self) -> str:
        return f"StreamedHttpResponse({self.status})"


class RemoteHttp:
    """Makes HTTP requests from the server's machine, with its network and its environment.

    No request is ever repeated: when the connection to the server is lost, ConnectionClosed says
    that it may have been made. What the target or the way to it refuses is an RpcError.
    """

    def __init__(self, client: ExecServerClient) -> None:
        self._client = client
        limits = client._limits
        self._budget = Budget(limits.untaken_body_bytes)
        self._bodies: dict[str, HttpBody] = {}
        self._last_id = 0

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: AnyHeaders = (),
        content: bytes | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,  # noqa: ASYNC109 (as HTTP libraries have it)
        follow_redirects: bool = True,
    ) -> HttpResponse:
        """Make a request and wait for the whole answer.

        *timeout*, in seconds, is for everything from the connection to the end of the body; None
        waits for ever. A header's value may be a `FromEnvironment`.
        """
        params = _params(method, url, headers, content, timeout, follow_redirects=follow_redirects)
        # The server keeps the time; ours is for a server that does not answer.
        patience = self._client._options.call_timeout
        seconds = None if timeout is None or patience is None else timeout + patience
        result = await self._client._call(http.REQUEST, params, seconds=seconds)
        return HttpResponse(result.status, HttpHeaders(result.headers), result.body_base64.data)

    async def get(self, url: str, **options: Any) -> HttpResponse:
        return await self.request("GET", url, **options)

    async def post(self, url: str, **options: Any) -> HttpResponse:
        return await self.request("POST", url, **options)

    @contextlib.asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: AnyHeaders = (),
        content: bytes | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (as HTTP libraries have it)
        answer_timeout: float | None = DEFAULT_TIMEOUT,
        follow_redirects: bool = True,
    ) -> AsyncIterator[StreamedHttpResponse]:
        """Make a request for the length of a block; its body can be read as it comes.

        *timeout* is for everything, body included, and *answer_timeout* for the wait until the
        body begins, after which CallTimeout is raised; None waits for ever.

        Leaving the block early drops the rest, which the server still fetches and sends: the
        protocol has no word to stop it.
        """
        params = _params(method, url, headers, content, timeout, follow_redirects=follow_redirects)
        response = await self._open(params, answer_timeout)
        try:
            yield response
        finally:
            self._drop(response)

    async def _open(
        self, params: http.RequestParams, seconds: float | None
    ) -> StreamedHttpResponse:
        # Whoever waits for a connection first is not among those that lose it.
        await self._client._lifeline.connected_link()
        params.request_id = self._next_id()
        params.stream_response = True
        body = HttpBody(
            params.request_id,
            budget=self._budget,
            flow=self._client._flow,
            behind_bytes=self._client._limits.untaken_bytes,
            on_settled=self._settled,
        )
        # Before the request leaves: the body may overtake whoever waits for the answer.
        self._bodies[params.request_id] = body
        try:
            result = await self._client._call(http.REQUEST, params, seconds=seconds)
        except BaseException:
            self._bodies.pop(params.request_id, None)
            body.drop()
            raise
        return StreamedHttpResponse(result, body)

    def _next_id(self) -> str:
        self._last_id += 1
        return f"http-{self._last_id}"

    def _drop(self, response: StreamedHttpResponse) -> None:
        self._bodies.pop(response._body.request_id, None)
        response._body.drop()

    def _settled(self, body: HttpBody) -> None:
        self._bodies.pop(body.request_id, None)

    # What the client reports.

    def delta_received(self, delta: http.BodyDelta) -> None:
        """Part of a body; that of one which nobody wants any more is ignored."""
        limit = self._client._limits.http_delta_bytes
        if len(delta.delta_base64.data) > limit:
            raise ProtocolError(f"{http.BODY_DELTA.name} of more than {limit} bytes")
        body = self._bodies.get(delta.request_id)
        if body is not None:
            body.receive(delta)

    def connection_lost(self, error: ConnectionClosed) -> None:
        for body in tuple(self._bodies.values()):
            body.fail(type(error)(str(error)))


def _params(
    method: str,
    url: str,
    headers: AnyHeaders,
    content: bytes | None,
    seconds: float | None,
    *,
    follow_redirects: bool,
) -> http.RequestParams:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return http.RequestParams(
        method=method,
        url=url,
        headers=[_header(name, value) for name, value in pairs],
        body_base64=Blob(content) if content is not None else None,
        timeout_ms=None if seconds is None else max(1, round(seconds * 1000)),
        redirect_policy="follow" if follow_redirects else "stop",
        request_id=_BUFFERED_ID,
    )


def _header(name: str, value: HeaderValue) -> http.RequestHeader:
    if isinstance(value, FromEnvironment):
        return http.RequestHeader(name, value.prefix, value.variable)
    return http.RequestHeader(name, value)
