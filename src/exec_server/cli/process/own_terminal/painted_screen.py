"""A picture of a whole terminal among the output that is shown."""

from __future__ import annotations

from typing import NamedTuple

from exec_server.protocol.process import Stream
from exec_server.protocol.sharing import ScreenPicture


class PaintedScreen(NamedTuple):
    """Control sequences that paint a terminal; they replace everything that was shown."""

    seq: int
    stream: Stream
    data: bytes


def fitting(picture: ScreenPicture, columns: int | None) -> bytes:
    """The sequences of *picture* for a terminal here that has so many columns.

    Rows that go on in the next one are wrapped by a terminal of the same size. A wider one would
    not wrap there, so each row is put in its place then.
    """
    data = picture.data.data
    if columns is None or columns <= picture.cols:
        return data
    # Few need it, and it takes a while to load.
    from exec_server.terminal import open_engine

    try:
        engine = open_engine(picture.cols, picture.rows)
    except (ImportError, OSError):
        return data
    try:
        engine.feed(data)
        return engine.dump(joins_rows=False)
    finally:
        engine.close()
