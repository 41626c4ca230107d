"""Small requests over HTTP: one answer in JSON, bounded in size and time, no redirects."""

from __future__ import annotations

import asyncio
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
    status: int
    body: bytes
    # The header of that name, which says where to go on.
    link: str = ""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        """The decoded body; None when it is no JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def __repr__(self) -> str:
        # Tokens come in answers, too.
        return f"RegistryAnswer({self.status}, {len(self.body)} bytes)"


class Http:
    """An HTTP client, to be closed; it connects by the proxies that the environment names."""

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
        """The answer, whatever its status, within *seconds*.

        *body* is sent as JSON unless it is None. RegistryError without a status when there is no
        answer.
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
            raise RegistryError(str(exc) or type(exc).__name__) from exc

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
        """Let go of connections; a later request opens others."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _shown(url: str) -> str:
    """Without what may be secret."""
    return url.partition("?")[0]
