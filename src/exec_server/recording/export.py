"""A recording as text, SVG or GIF."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from exec_server.recording.cast_format import EXIT, Version
from exec_server.recording.cast_reader import CastReader
from exec_server.recording.playback import Playback
from exec_server.recording.text_index import TextIndex
from exec_server.terminal.svg_picture import svg_picture

# A moving picture shows at most so many pictures a second, and no pause longer than this.
_FRAME_SECONDS = 0.1
_LONGEST_PAUSE = 2.0
_LAST_SECONDS = 3.0
# Each picture takes about 50 ms to draw.
MOST_FRAMES = 2000


def screen_at(path: str | os.PathLike[str], index: TextIndex, time: float) -> str:
    """The rows of the screen at a moment, as text."""
    with Playback(path, index) as playback:
        playback.seek(time)
        return "\n".join(playback.engine.lines()).rstrip("\n") + "\n"


def whole_text(index: TextIndex) -> Iterator[str]:
    """Every line that was ever on the screen, in the order in which they appeared."""
    return (seen.text + "\n" for seen in index.lines())


def svg_at(path: str | os.PathLike[str], index: TextIndex, time: float) -> bytes:
    """A picture of the screen at a moment."""
    with Playback(path, index) as playback:
        playback.seek(time)
        engine = playback.engine
        return svg_picture(engine.cells(), engine.columns, cursor=engine.cursor, title=engine.title)


def gif_of(path: str | os.PathLike[str], start: float = 0.0, end: float | None = None) -> bytes:
    """The recording, or a part of it, as a moving picture. Raises ImportError without Pillow."""
    from exec_server.terminal.gif_picture import GifFrame, gif_picture

    with Playback(path) as playback:
        playback.seek(start)
        frames: list[GifFrame] = []
        while len(frames) < MOST_FRAMES:
            shown = playback.time
            engine = playback.engine
            cells, columns, cursor = engine.cells(), engine.columns, engine.cursor
            upcoming = playback.upcoming
            if upcoming is None or (end is not None and upcoming.time > end):
                frames.append(GifFrame(cells, columns, cursor, _LAST_SECONDS))
                break
            until = max(upcoming.time, shown + _FRAME_SECONDS)
            frames.append(GifFrame(cells, columns, cursor, min(until - shown, _LONGEST_PAUSE)))
            playback.seek(until)
            playback.time = until
        return gif_picture(frames)


def converted(path: str | os.PathLike[str], version: Version) -> Iterator[bytes]:
    """The lines of the recording in another version of asciicast."""
    reader = CastReader(path)
    yield msgspec.structs.replace(reader.header, version=version).encode()
    before = 0.0
    for event, _ in reader.events():
        if event.code == EXIT and version == 2:
            # Players of v2 do not know it.
            continue
        time = round(event.time - before, 6) if version == 3 else event.time
        before += time if version == 3 else 0.0
        yield msgspec.json.encode([max(0.0, round(time, 6)), event.code, event.data]) + b"\n"
