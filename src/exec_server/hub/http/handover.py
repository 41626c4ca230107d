"""Hands the connection of an upgrade from aiohttp to picows, which costs less for each frame.

aiohttp reads the request, and its application decides about it. Then picows takes the socket.
Everything that the registry uses of aiohttp and aiohttp does not document is here; therefore
pyproject.toml names the highest version that is known to work, and tests/hub/http/test_handover.py
says what has changed in a newer one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter

from exec_server.limits import Limits
from exec_server.transport.data_frames import FrameSorter
from exec_server.transport.frame_masks import quick_mask
from exec_server.transport.http_front import accepted_request
from exec_server.transport.picows_internals import adopt
from exec_server.transport.picows_names import WSListener

# Sixteen bytes in base64. aiohttp skips foreign characters in a key, and picows refuses it.
_KEY = re.compile(r"[A-Za-z0-9+/]{22}==")


class HandedOver(web.StreamResponse):
    """The answer for aiohttp when the connection of its request is no longer its own."""

    def __init__(self) -> None:
        super().__init__(status=101)
        self.force_close()

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """There is nothing to write."""


def is_upgrade(request: web.Request) -> bool:
    """True if *request* may be handed over."""
    key = request.headers.get(hdrs.SEC_WEBSOCKET_KEY, "")
    # aiohttp fails at a key that is not ASCII.
    return _KEY.fullmatch(key) is not None and bool(web.WebSocketResponse().can_prepare(request))


def hand_over(
    request: web.BaseRequest,
    new_listener: Callable[[], WSListener],
    *,
    limits: Limits,
    read_bytes: int,
    buffer_bytes: int,
    room: bytearray,
) -> None:
    """Answer *request*, for which `is_upgrade` is true, and give its connection to picows.

    The handler of the request goes on, and returns a `HandedOver` when the socket has ended.
    aiohttp is told of the loss of the connection. All connections may share one *room*, where data
    frames are read to. Raises ConnectionResetError if the client has
    gone.
    """
    protocol: Any = request.protocol
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the client has gone meanwhile")
    # What the client has sent behind its request; aiohttp bounds it.
    tail, protocol._message_tail = protocol._message_tail, b""
    mask = quick_mask()
    adopt(
        cast(Any, transport),
        new_listener,
        limits=limits,
        handshake=accepted_request(request.headers[hdrs.SEC_WEBSOCKET_KEY]),
        tail=tail,
        sorter=mask and FrameSorter(mask, room, frame_bytes=limits.frame_bytes),
        read_bytes=read_bytes,
        buffer_bytes=buffer_bytes,
        on_lost=protocol.connection_lost,
    )
