"""Everything that this package uses of aiohttp and aiohttp does not document.

Releases of aiohttp may change it without notice. Therefore pyproject.toml names the highest version
that is known to work, and tests/outbound/test_aiohttp_internals.py says what has changed in a newer
one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import aiohttp

_SWITCHING_PROTOCOLS = 101


async def read_available(response: aiohttp.ClientResponse) -> bytes:
    """Return the bytes of the body that have arrived, and wait for the first; empty at its end."""
    if response.status == _SWITCHING_PROTOCOLS:
        # What follows is another protocol, not a body.
        return b""
    content = response.content
    error = content.exception()
    if error is None:
        return await content.readany()
    # The documented methods raise at once, and what arrived before the error would be lost.
    data = content._read_nowait(-1)
    if not data:
        raise error
    return data


def fail_body_with_connection(response: aiohttp.ClientResponse) -> None:
    """Fail the body of *response* if its connection ends first.

    aiohttp closes the connection when a body turns out to be malformed, and leaves the reader of
    the body waiting.
    """
    content = response.content
    protocol = response.connection.protocol if response.connection is not None else None
    closed = protocol.closed if protocol is not None else None

    def fail(_: object = None) -> None:
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection has ended"))

    if closed is None:
        # The connection has ended already, or the whole body is there.
        fail()
        return
    # A connection outlives many answers. asyncio would log an error that is never read.
    closed.remove_done_callback(_consume)
    closed.add_done_callback(_consume)
    closed.add_done_callback(fail)
    content.on_eof(partial(_forget, closed, fail))


def _forget(closed: asyncio.Future[None], callback: Callable[[object], None]) -> None:
    closed.remove_done_callback(callback)


def _consume(closed: asyncio.Future[None]) -> None:
    if not closed.cancelled():
        closed.exception()
