"""`writelines` of a transport, also where asyncio's own does not hold its caller back.

That of Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1 never says `pause_writing` (CVE-2024-12254): what
is written to a peer that does not read would fill the memory.
"""

from __future__ import annotations

from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

_Buffer = bytes | bytearray | memoryview


def writelines_of(stream: Any) -> Callable[[Sequence[_Buffer]], None]:
    """What writes several buffers to the transport *stream*."""
    if _FORGETS_TO_PAUSE and isinstance(stream, _SelectorSocketTransport):
        return partial(_write_joined, stream)
    writelines: Callable[[Sequence[_Buffer]], None] = stream.writelines
    return writelines


def _write_joined(stream: Any, buffers: Sequence[_Buffer]) -> None:
    stream.write(b"".join(buffers))


def _forgets_to_pause() -> bool:
    # Distributions have mended older versions as well, so the code is asked. Before 3.12 it joins.
    names = _SelectorSocketTransport.writelines.__code__.co_names
    return "_write_ready" in names and "_maybe_pause_protocol" not in names


_FORGETS_TO_PAUSE = _forgets_to_pause()
