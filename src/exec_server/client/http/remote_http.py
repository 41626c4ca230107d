"""`client.http`: HTTP requests that the server's machine makes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from exec_server.client.arguments import as_bytes
from exec_server.client.http.response_body import HttpBody
from exec_server.protocol import http
from exec_server.protocol.base64 import Blob

if TYPE_CHECKING:
    from exec_server.client.client_session import ClientSession

DEFAULT_TIMEOUT = 60.0
_BUFFERED_ID = "buffered-request"


class FromEnvironment(NamedTuple):
    """The value of a header that only the server's machine knows.

    It is *prefix* and the value of an environment variable there.
    """

    variable: str
    prefix: str = ""


HeaderValue = str | FromEnvironment
AnyHeaders = Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]]


class HttpHeaders:
    """The headers of an answer; names are in lower case and may occur several times."""

    def __init__(self, headers: Iterable[http.Header]) -> None:
        # All headers, in their order.
        self.pairs = [(header.name, header.value) for header in headers]

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of a name, in upper or lower case; *default* if there is none."""
        return next(iter(self.get_all(name)), default)

    def get_all(self, name: str) -> list[str]:
        """All values of a name."""
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
    """A whole answer, whatever its status. The body is as it was sent: nothing is decoded."""

    status: int
    headers: HttpHeaders
    content: bytes

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.content)

    def __repr__(self) -> str:
        return f"HttpResponse({self.status}, {len(self.content)} bytes)"


class StreamedHttpResponse:
    """An answer whose body has not arrived yet: iterate over it, or `read` it."""

    def __init__(self, result: http.RequestResult, body: HttpBody) -> None:
        self._status = result.status
        self._headers = HttpHeaders(result.headers)
        self._body = body

    @property
    def status(self) -> int:
        """The status code; every status is an answer."""
        return self._status

    @property
    def headers(self) -> HttpHeaders:
        """The headers of the answer."""
        return self._headers

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

    No request is repeated: if the connection to the server is lost, ConnectionClosed says that the
    request may have been made. If the target cannot be reached, RpcError is raised.
    """

    def __init__(self, session: ClientSession) -> None:
        self._session = session

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

        *timeout*, in seconds, covers everything from the connection to the end of the body; None
        waits for ever. The value of a header may be a `FromEnvironment`.
        """
        params = _params(method, url, headers, content, timeout, follow_redirects=follow_redirects)
        # The server enforces the timeout; this deadline is for a server that does not answer.
        patience = self._session.options.call_timeout
        seconds = None if timeout is None or patience is None else timeout + patience
        result = await self._session.call(http.REQUEST, params, seconds=seconds)
        return HttpResponse(result.status, HttpHeaders(result.headers), result.body_base64.data)

    async def get(self, url: str, **options: Any) -> HttpResponse:
        """Make a GET request; *options* are those of `request`."""
        return await self.request("GET", url, **options)

    async def post(self, url: str, **options: Any) -> HttpResponse:
        """Make a POST request; *options* are those of `request`."""
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
        """Make a request whose body is read inside of the block, as it arrives.

        *timeout* covers everything including the body. *answer_timeout* covers the wait until the
        body begins; after that CallTimeout is raised. None waits for ever.

        Leaving the block early drops the rest of the body. The server still fetches and sends it,
        because the protocol has no method to stop it.
        """
        params = _params(method, url, headers, content, timeout, follow_redirects=follow_redirects)
        # A request that waits for a connection is not among those that fail when one is lost.
        await self._session.link.connected_link()
        body = self._session.bodies.open()
        params.request_id = body.request_id
        params.stream_response = True
        try:
            result = await self._session.call(http.REQUEST, params, seconds=answer_timeout)
            yield StreamedHttpResponse(result, body)
        finally:
            self._session.bodies.drop(body)


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
        body_base64=None if content is None else Blob(as_bytes(content, "content")),
        timeout_ms=None if seconds is None else max(1, round(seconds * 1000)),
        redirect_policy="follow" if follow_redirects else "stop",
        request_id=_BUFFERED_ID,
    )


def _header(name: str, value: HeaderValue) -> http.RequestHeader:
    if isinstance(value, FromEnvironment):
        return http.RequestHeader(name, value.prefix, value.variable)
    return http.RequestHeader(name, value)
