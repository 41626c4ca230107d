"""Large frames of a client, masked where they are, without a way through the main memory.

A client masks what it sends (RFC 6455, section 5.3). picows does so with stores that go past the
caches. The kernel then has to fetch each byte from the main memory, which takes longer than AES-GCM
and the kernel's own copy together. aiohttp has a mask in C, too, and that one leaves the frame in
the cache. aiohttp does not document it, so it is used here alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache

from exec_server.transport.frame_headers import WHOLE_BINARY, frame_header

# Masks its second argument with the four bytes of the first one.
Mask = Callable[[bytes, bytearray], None]

# Smaller frames gain nothing.
LEAST_BYTES = 4096
_KEY_BYTES = 4
_IS_MASKED = 0x80


@cache
def quick_mask() -> Mask | None:
    """Return aiohttp's mask; None if aiohttp was installed without its parts in C."""
    try:
        from aiohttp._websocket.mask import (  # type: ignore[import-not-found]
            _websocket_mask_cython,
        )
    except ImportError:
        return None
    mask: Mask = _websocket_mask_cython
    return mask


def loaded_mask() -> Mask | None:
    """Return `quick_mask` if aiohttp is loaded; to load it takes longer than it saves most sockets.

    In remote mode it is loaded, because the registry was asked through it.
    """
    return quick_mask() if "aiohttp" in sys.modules else None


def mask_frame(mask: Mask, buffer: bytearray, start: int) -> memoryview:
    """Make a whole binary frame of the payload from *start* on, and return it.

    Its header is written before the payload: *start* is a multiple of four, and 14 or more.
    """
    key = os.urandom(_KEY_BYTES)
    # The free bytes are masked, too. As they are a multiple of four, the payload begins with the
    # first byte of the key.
    mask(key, buffer)
    header = bytearray(frame_header(WHOLE_BINARY, len(buffer) - start))
    header[1] |= _IS_MASKED
    header += key
    begin = start - len(header)
    buffer[begin:start] = header
    return memoryview(buffer)[begin:]
