"""The HTTP client of a whole server: pooled connections, proxies, certificates."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping

import aiohttp
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from exec_server.errors import InternalError
from exec_server.limits import Limits
from exec_server.outbound import tls_trust
from exec_server.outbound.aiohttp_internals import fail_body_with_connection
from exec_server.outbound.outgoing import MAX_REDIRECTS, OutgoingRequest, redirected
from exec_server.outbound.proxies import Proxies, Proxy
from exec_server.outbound.shortages import UNUSUAL, shortage
from exec_server.printable import printable

logger = logging.getLogger(__name__)

# aiohttp raises these for a target that cannot be reached or does not speak HTTP. It raises
# ValueError for a header that contradicts the body.
FAILURES = (aiohttp.ClientError, HttpProcessingError, OSError, TimeoutError, ValueError)
TIMED_OUT = "http/request failed: route-aware request timed out"

_AUTOMATIC_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
# The reference keeps an idle connection for the same time.
_KEEPALIVE_SECONDS = 90.0
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None)

# aiohttp sends some methods again if a kept connection turns out to be dead, although the target
# may have acted on the first request. So it gets this method, and `_as_asked` sets the real one.
_NEVER_REPEATED = "POST"

_Handler = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]


class Sender:
    """Sends requests from this machine. Bodies are not decoded and cookies are not kept."""

    def __init__(self, environ: Mapping[str, str], *, limits: Limits) -> None:
        self._environ = environ
        self._limits = limits
        self._proxies = Proxies(environ)
        self._session: aiohttp.ClientSession | None = None
        self._tls: asyncio.Future[ssl.SSLContext] | None = None
        self._extra_certificates: str | None = None

    async def exchange(
        self,
        outgoing: OutgoingRequest,
        *,
        follow: bool,
        deadline: float | None,
        check_host: Callable[[str], None] | None = None,
    ) -> aiohttp.ClientResponse:
        """Return the answer, after redirects; its body is not read yet.

        *deadline* is a time of the loop's clock. *check_host* is called with the host of each
        request before it is sent. Raises InternalError, and what *check_host* raises.
        """
        now = asyncio.get_running_loop().time
        redirects = 0
        while True:
            if deadline is not None and now() >= deadline:
                raise InternalError(TIMED_OUT)
            if check_host is not None:
                check_host(outgoing.url.host)
            response = await self._send_before(outgoing, deadline)
            try:
                following = _next(outgoing, response) if follow else None
            except BaseException:
                response.close()
                raise
            if following is None:
                return response
            response.release()
            redirects += 1
            if redirects > MAX_REDIRECTS:
                raise InternalError("http/request failed: too many redirects")
            outgoing = following

    async def _send_before(
        self, outgoing: OutgoingRequest, deadline: float | None
    ) -> aiohttp.ClientResponse:
        try:
            async with asyncio.timeout_at(deadline):
                response = await self._send(outgoing)
            fail_body_with_connection(response)
            return response
        except (*FAILURES, *UNUSUAL) as exc:
            missing = shortage(exc)
            if missing is None and isinstance(exc, UNUSUAL):
                raise
            # The log shows neither the URL nor the text of aiohttp, which repeats the URL.
            method = printable(outgoing.method)
            logger.warning("http/request %s failed: %s", method, type(exc).__name__)
            text = f"http/request failed: error sending request for url ({outgoing.url})"
            raise InternalError(text if missing is None else f"{text}: {missing}") from exc

    async def _send(self, outgoing: OutgoingRequest) -> aiohttp.ClientResponse:
        session = self._opened()
        url = outgoing.url
        proxy = self._proxies.for_url(url)
        headers = CIMultiDict(outgoing.headers)
        proxy_headers = _authorize(proxy, headers, is_tunnel=url.scheme == "https")
        needs_tls = "https" in (url.scheme, proxy.url.scheme if proxy is not None else "")
        is_chunked = _take_chunked(headers) and outgoing.body is not None
        if is_chunked or not headers.get("content-length", "0").isdecimal():
            headers.popall("content-length", None)
        return await session.request(
            _NEVER_REPEATED,
            URL(str(url), encoded=True),
            headers=headers,
            data=outgoing.body,
            chunked=is_chunked or None,
            allow_redirects=False,
            proxy=URL(str(proxy.url), encoded=True) if proxy is not None else None,
            proxy_headers=proxy_headers,
            ssl=await self._tls_context() if needs_tls else True,
            middlewares=(_as_asked(outgoing),),
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # An unusable file of certificates is an error for plain http, too.
            self._extra_certificates = tls_trust.extra_certificates(self._environ)
            limits = self._limits
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=_NO_TIMEOUT,
                auto_decompress=False,
                skip_auto_headers=_AUTOMATIC_HEADERS,
                read_bufsize=limits.http_read_bytes,
                max_line_size=limits.http_answer_field_bytes,
                max_field_size=limits.http_answer_field_bytes,
            )
        return self._session

    async def _tls_context(self) -> ssl.SSLContext:
        """Return the TLS context. A thread makes it once: the system's roots take time to load."""
        if self._tls is None:
            loop = asyncio.get_running_loop()
            self._tls = loop.run_in_executor(None, tls_trust.tls_context, self._extra_certificates)
        try:
            return await asyncio.shield(self._tls)
        except Exception:
            # The next request tries again.
            self._tls = None
            raise

    async def stop(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()


def _next(sent: OutgoingRequest, response: aiohttp.ClientResponse) -> OutgoingRequest | None:
    location = next((v for k, v in response.raw_headers if k.lower() == b"location"), None)
    if location is None:
        return None
    try:
        return redirected(sent, response.status, location.decode())
    except UnicodeDecodeError:
        return None


def _authorize(
    proxy: Proxy | None, headers: CIMultiDict[str], *, is_tunnel: bool
) -> dict[str, str] | None:
    """Add the proxy's credentials; return the headers that only the proxy gets."""
    if proxy is None or proxy.authorization is None:
        return None
    if is_tunnel:
        return {"proxy-authorization": proxy.authorization}
    headers["proxy-authorization"] = proxy.authorization
    return None


def _take_chunked(headers: CIMultiDict[str]) -> bool:
    """Remove the header for chunks, which aiohttp writes itself; True if it was there."""
    if headers.get("transfer-encoding", "").strip().lower() != "chunked":
        return False
    del headers["transfer-encoding"]
    return True


def _as_asked(outgoing: OutgoingRequest) -> aiohttp.ClientMiddlewareType:
    """Undo two changes of aiohttp: the method's case, and a length where there is no body."""

    async def undo(request: aiohttp.ClientRequest, send: _Handler) -> aiohttp.ClientResponse:
        request.method = outgoing.method
        if outgoing.body is None and not outgoing.has("content-length"):
            request.headers.popall("content-length", None)
        return await send(request)

    return undo
