"""Credentials that rotate: one JSON object a line, from the program that started us."""

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
    """The newest token of the pipe. Give it all that is read, and wait for `wait_over`."""

    def __init__(self, environment_id: str, *, now: Callable[[], float]) -> None:
        self._environment_id = environment_id.strip()
        self._now = now
        self._buffer = bytearray()
        self._current: _CredentialLine | None = None
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait_first(self) -> None:
        """Wait for the first token. Raises ConfigurationError if the pipe has none for us."""
        await self._first

    async def wait_over(self) -> None:
        """Wait until the pipe is closed. Raises ConfigurationError for a wrong line."""
        await self._over

    # Called by the reader of the pipe.

    def feed(self, data: bytes) -> None:
        """Take bytes of the pipe; they are ignored after the end."""
        self._buffer += data
        while b"\n" in self._buffer and not self._over.done():
            line, _, rest = self._buffer.partition(b"\n")
            self._buffer = bytearray(rest)
            self._take(bytes(line))
        if len(self._buffer) > _LINE_BYTES:
            self._fail("a line is too long")

    def end(self) -> None:
        """Record that the pipe is closed."""
        if self._current is None:
            self._fail("the pipe was closed before the first credential")
        elif not self._over.done():
            self._over.set_result(None)

    def _take(self, data: bytes) -> None:
        try:
            line = msgspec.json.decode(data, type=_CredentialLine)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # The words of the error could repeat the token.
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
            return "its version is not 1"
        if line.environment_id != self._environment_id:
            return "it is for another environment"
        if not line.token or not all("!" <= c <= "~" for c in line.token):
            return "its token is not visible ASCII without blanks"
        if line.expires_at < 0:
            return "its expiry is negative"
        if self._current is None and line.expires_at <= self._now():
            return "it has expired"
        return ""

    def _fail(self, why: str) -> None:
        error = ConfigurationError(f"invalid executor credential: {why}")
        for future in (self._first, self._over):
            if not future.done():
                future.set_exception(error)
                # Marks the exception as read, since perhaps only one future is awaited.
                future.exception()

    # The methods of Credentials.

    def check_url(self, url: str) -> None:
        check_confidential(url, "an executor credential")

    def headers(self) -> Mapping[str, str]:
        line = self._current
        if line is None or line.expires_at <= self._now():
            raise CredentialExpired("the executor credential has expired")
        return {"authorization": f"Bearer {line.token}"}

    def __repr__(self) -> str:
        return "PipedCredential(...)"
