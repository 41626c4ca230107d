"""Small HTTP requests: one JSON answer, bounded in size and time, without redirects."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from exec_server.errors import ConfigurationError, RegistryError
from exec_server.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from ssl import SSLContext

    from aiohttp import ClientSession

_JSON = "application/json"


class RegistryAnswer(msgspec.Struct, frozen=True):
    """An HTTP answer with its whole body."""

    status: int
    body: bytes
    # The `Link` header, which names the next page of a list.
    link: str = ""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        """Return the decoded body; None if it is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def __repr__(self) -> str:
        # The body is not shown: it may contain a token.
        return f"RegistryAnswer({self.status}, {len(self.body)} bytes)"


class Http:
    """An HTTP client, to be closed after use. It uses the proxies that the environment names."""

    def __init__(
        self, *, limits: Limits = DEFAULT_LIMITS, ssl_context: SSLContext | None = None
    ) -> None:
        self._limits = limits
        self._ssl = ssl_context
        self._session: ClientSession | None = None

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: Any = None,
        seconds: float,
    ) -> RegistryAnswer:
        """Send a request and return the answer, whatever its status.

        *body* is sent as JSON unless it is None. Raises RegistryError without a status if there is
        no answer within *seconds*, and ConfigurationError for an invalid URL.
        """
        import aiohttp

        sent = dict(headers)
        data = None
        if body is not None:
            sent["content-type"] = _JSON
            data = msgspec.json.encode(body)
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(method, url, sent, data)
        except TimeoutError:
            raise RegistryError(f"no answer within {seconds:g} s") from None
        except aiohttp.InvalidURL:
            raise ConfigurationError(f"invalid URL `{_shown(url)}`") from None
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise RegistryError(_reason(exc)) from exc

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], data: bytes | None
    ) -> RegistryAnswer:
        session = self._open()
        async with session.request(
            method, url, headers=headers, data=data, allow_redirects=False
        ) as response:
            most = self._limits.registry_answer_bytes
            body = bytearray()
            async for piece in response.content.iter_chunked(64 * 1024):
                body += piece
                if len(body) > most:
                    raise RegistryError(f"an answer of more than {most} bytes")
            link = response.headers.get("link", "")
            return RegistryAnswer(response.status, bytes(body), link)

    def _open(self) -> ClientSession:
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._ssl if self._ssl is not None else True),
                trust_env=True,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                skip_auto_headers=("User-Agent", "Accept-Encoding", "Content-Type"),
            )
        return self._session

    async def close(self) -> None:
        """Close all connections; a later request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _reason(exc: Exception) -> str:
    """Why there is no answer, in words for people; aiohttp describes its own objects."""
    import aiohttp

    if isinstance(exc, aiohttp.ClientConnectorCertificateError):
        error = exc.certificate_error
        why = getattr(error, "verify_message", "") or str(error)
        return f"the certificate of {exc.host} is not trusted: {why}"
    if isinstance(exc, aiohttp.ClientConnectorError):
        error = exc.os_error
        # The text for a refused connection is a tuple; that of a failed lookup has no number.
        is_lookup = isinstance(error, socket.gaierror) or not error.errno or error.errno < 0
        why = error.strerror if is_lookup else os.strerror(error.errno or 0)
        return f"cannot connect to {exc.host}:{exc.port}: {why or error}"
    if isinstance(exc, aiohttp.ServerDisconnectedError):
        return "the connection was closed without an answer"
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return str(exc) or type(exc).__name__


def _shown(url: str) -> str:
    """Return *url* without its query, which may be secret."""
    return url.partition("?")[0]
