"""An httpx transport whose requests the server's machine makes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from exec_server.client.http.remote_http import StreamedHttpResponse
from exec_server.errors import ExecServerError, InvalidParams

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient


class HttpxCarrier:
    """The work of a transport; *library* is the module whose requests it carries.

    The library handles redirects, cookies, content encodings and the deadline of a whole request.
    Its `connect` and `read` timeouts together limit the wait for an answer, and `read` alone
    limits the wait for each piece of a body.
    """

    def __init__(self, client: ExecServerClient, library: ModuleType) -> None:
        self._client = client
        self._library = library

    async def handle_async_request(self, request: Any) -> Any:
        library = self._library
        timeouts = request.extensions.get("timeout", {})
        wait = _sum(timeouts.get("connect"), timeouts.get("read"))
        exchange = contextlib.AsyncExitStack()
        with _translated(library, request):
            async with asyncio.timeout(wait):
                content = b"".join([piece async for piece in request.stream])
                response = await exchange.enter_async_context(
                    self._client.http.stream(
                        request.method,
                        str(request.url),
                        headers=[(k.decode("ascii"), _text(v)) for k, v in request.headers.raw],
                        content=content,
                        answer_timeout=None,
                        follow_redirects=False,
                    )
                )
        kind = type("Body", (_HttpxBody, library.AsyncByteStream), {})
        body = kind(response, exchange, library, request, timeouts.get("read"))
        headers = [(k.encode(), v.encode()) for k, v in response.headers.pairs]
        return library.Response(response.status, headers=headers, stream=body, request=request)


class _HttpxBody:
    """The body of a response, as the library reads it."""

    def __init__(
        self,
        response: StreamedHttpResponse,
        exchange: contextlib.AsyncExitStack,
        library: ModuleType,
        request: Any,
        wait: float | None,
    ) -> None:
        self._pieces = aiter(response)
        self._exchange = exchange
        self._library = library
        self._request = request
        self._wait = wait

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            with _translated(self._library, self._request):
                async with asyncio.timeout(self._wait):
                    piece = await anext(self._pieces, b"")
            if not piece:
                return
            yield piece

    async def aclose(self) -> None:
        await self._exchange.aclose()


def executor_transport(client: ExecServerClient, library: ModuleType) -> Any:
    """A transport for `library.AsyncClient`, where *library* is httpx or has its interface."""
    kind = type("ExecutorTransport", (HttpxCarrier, library.AsyncBaseTransport), {})
    return kind(client, library)


@contextlib.contextmanager
def _translated(library: ModuleType, request: Any) -> Iterator[None]:
    """Raise errors as the exceptions of the library."""
    try:
        yield
    except TimeoutError as exc:
        raise library.ReadTimeout("the executor did not answer in time", request=request) from exc
    except InvalidParams as exc:
        raise library.LocalProtocolError(str(exc), request=request) from exc
    except ExecServerError as exc:
        raise library.NetworkError(str(exc), request=request) from exc


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
