"""What the player of the page asks of a recording. These functions read files: they may block.

Each calls *check* from time to time, which raises when it has taken too long.
"""

from __future__ import annotations

import base64
import os
from typing import Any

from exec_server.recording.cast_format import EXIT, INPUT, MARK
from exec_server.recording.cast_reader import CastPlace, CastReader
from exec_server.recording.playback import Playback
from exec_server.recording.text_index import made_index
from exec_server.web.recordings.recording_reads import Check

# Marks that the timeline has room for.
_MAX_MARKS = 1000
# The beginning of a text is enough for a list or a mark, whatever a file says.
_TEXT_CHARACTERS = 1000
# One answer with events: seconds of ordinary output, and little enough to be drawn at once.
_EVENT_BYTES = 256 * 1024
_MAX_EVENTS = 5000
# Rows above the screen of a moment.
_HISTORY_ROWS = 500


def beginning(text: str | None) -> str | None:
    """As much of a text of a recording as the page shows."""
    return None if text is None else text[:_TEXT_CHARACTERS]


def recording_facts(path: str | os.PathLike[str], check: Check) -> dict[str, Any]:
    """The size, the length and the marks of a recording. Raises CastError or OSError."""
    reader = CastReader(path)
    header = reader.header
    duration, status = 0.0, None
    marks: list[dict[str, Any]] = []
    for event, _ in reader.events():
        check()
        duration = event.time
        if event.code == MARK and len(marks) < _MAX_MARKS:
            marks.append({"time": event.time, "text": beginning(event.data)})
        elif event.code == EXIT:
            status = beginning(event.data)
    return {
        "columns": header.columns,
        "rows": header.rows,
        "command": beginning(header.command),
        "startedAt": None if header.started is None else header.started * 1000,
        "idleLimit": header.idle_limit,
        "bytes": os.path.getsize(path),
        "duration": duration,
        "marks": marks,
        "exit": status,
    }


def recorded_screen(path: str | os.PathLike[str], time: float, check: Check) -> dict[str, Any]:
    """The screen of a moment, as bytes that paint it, and where the events after it begin."""
    index = made_index(path)
    try:
        with Playback(path, index) as playback:
            playback.seek(time, check)
            return {
                "screen": base64.b64encode(playback.engine.dump(history=_HISTORY_ROWS)).decode(),
                "columns": playback.engine.columns,
                "rows": playback.engine.rows,
                "offset": playback.place.offset,
                "time": playback.place.time,
            }
    finally:
        if index is not None:
            index.close()


def recorded_events(path: str | os.PathLike[str], place: CastPlace, check: Check) -> dict[str, Any]:
    """Some events from a place on, and the place after them; what was typed is left out."""
    size = 0
    events: list[tuple[float, str, str]] = []
    is_end = True
    for event, after in CastReader(path).events(place):
        check()
        place = after
        if event.code != INPUT:
            events.append((event.time, event.code, event.data))
            size += len(event.data)
        if size >= _EVENT_BYTES or len(events) >= _MAX_EVENTS:
            is_end = False
            break
    return {"events": events, "offset": place.offset, "time": place.time, "end": is_end}
