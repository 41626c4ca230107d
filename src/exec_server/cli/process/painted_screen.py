"""A picture of a whole terminal among the output that is shown."""

from __future__ import annotations

from typing import NamedTuple

from exec_server.protocol.process import Stream


class PaintedScreen(NamedTuple):
    """Control sequences that paint a terminal; they replace everything that was shown."""

    seq: int
    stream: Stream
    data: bytes
