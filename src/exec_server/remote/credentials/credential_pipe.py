"""Credentials that rotate: one JSON object a line, from whoever started us."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from exec_server.errors import ConfigurationError
from exec_server.remote.credentials.credentials import CredentialExpired, check_confidential

_LINE_BYTES = 64 * 1024


class _CredentialLine(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    environment_id: str
    token: str
    expires_at: int


class PipedCredential:
    """The newest token of the pipe. Feed it with what is read, and watch `wait_over`."""

    def __init__(self, environment_id: str, *, now: Callable[[], float]) -> None:
        self._environment_id = environment_id.strip()
        self._now = now
        self._buffer = bytearray()
        self._current: _CredentialLine | None = None
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait_first(self) -> None:
        """Until there is a token. Raises ConfigurationError when the pipe has none for us."""
        await self._first

    async def wait_over(self) -> None:
        """Until the pipe is closed. Raises ConfigurationError for a line that is wrong."""
        await self._over

    # What the pipe says.

    def feed(self, data: bytes) -> None:
        """Take what was read; nothing of it once the pipe is over."""
        self._buffer += data
        while b"\n" in self._buffer and not self._over.done():
            line, _, rest = self._buffer.partition(b"\n")
            self._buffer = bytearray(rest)
            self._take(bytes(line))
        if len(self._buffer) > _LINE_BYTES:
            self._fail("a line is too long")

    def end(self) -> None:
        """The pipe is closed."""
        if self._current is None:
            self._fail("the pipe was closed before the first credential")
        elif not self._over.done():
            self._over.set_result(None)

    def _take(self, data: bytes) -> None:
        try:
            line = msgspec.json.decode(data, type=_CredentialLine)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Its words could repeat the token.
            self._fail("a line is malformed")
            return
        why = self._objection(line)
        if why:
            self._fail(why)
            return
        self._current = line
        if not self._first.done():
            self._first.set_result(None)

    def _objection(self, line: _CredentialLine) -> str:
        if line.version != 1:
            return "it has another version"
        if line.environment_id != self._environment_id:
            return "it is for another environment"
        if not line.token or not all("!" <= c <= "~" for c in line.token):
            return "its token is no visible ASCII without blanks"
        if line.expires_at < 0:
            return "its end is before all time"
        if self._current is None and line.expires_at <= self._now():
            return "it has expired"
        return ""

    def _fail(self, why: str) -> None:
        error = ConfigurationError(f"invalid executor credential: {why}")
        for future in (self._first, self._over):
            if not future.done():
                future.set_exception(error)
                # Only one of them may be waited for.
                future.exception()

    # What the registry is told.

    def check_url(self, url: str) -> None:
        check_confidential(url, "an executor credential")

    def headers(self) -> Mapping[str, str]:
        line = self._current
        if line is None or line.expires_at <= self._now():
            raise CredentialExpired("the executor credential has expired")
        return {"authorization": f"Bearer {line.token}"}

    def __repr__(self) -> str:
        return "PipedCredential(...)"
