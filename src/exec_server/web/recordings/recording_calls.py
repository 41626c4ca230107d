"""The calls of the page about recordings, and about going back in a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exec_server.errors import InvalidRequest
from exec_server.recording.cast_reader import CastPlace
from exec_server.web.call_words import Call, CallWords
from exec_server.web.recordings import recorded_moments
from exec_server.web.recordings.recording_shelf import EXPORTS, RecordingTicket

if TYPE_CHECKING:
    from exec_server.web.page_access import PageAccess, PageSession
    from exec_server.web.places import PagePlaces
    from exec_server.web.shown_process import ShownProcess

_MAX_PATTERN = 1000
_MAX_TIME = 1e9
_MAX_OFFSET = 2**50


class RecordingCalls:
    """The calls of one tab. A call names a recording, or a terminal of the page that is open."""

    def __init__(
        self,
        session: PageSession,
        access: PageAccess,
        places: PagePlaces,
        shown: Callable[[CallWords], ShownProcess],
    ) -> None:
        self._session = session
        self._access = access
        self._shelf = places.recordings
        self._reads = places.recordings.reads
        self._shown = shown

    def by_name(self) -> dict[str, Call]:
        return {
            "recording.list": self._list,
            "recording.open": self._open,
            "recording.screen": self._screen,
            "recording.events": self._events,
            "recording.find": self._find,
            "recording.prepare": self._prepare,
            "recording.remove": self._remove,
            "recording.ticket": self._ticket,
        }

    def _path(self, words: CallWords) -> Path:
        name = words.optional_text("name")
        if name is not None:
            return self._shelf.path_of(name)
        found = self._shown(words).history_path
        if found is None:
            raise InvalidRequest("this terminal has no history yet")
        part = words.optional_text("part")
        if part not in (None, os.path.basename(found)):
            raise InvalidRequest("the history was too long, and has begun anew")
        return Path(found)

    async def _list(self, words: CallWords) -> Any:
        return await self._reads.run(lambda _: self._shelf.listed())

    async def _open(self, words: CallWords) -> Any:
        if not words.has("name"):
            await self._shown(words).history_written()
        path = self._path(words)
        facts = await self._reads.run(partial(recorded_moments.recording_facts, path))
        return facts | {"part": path.name}

    async def _screen(self, words: CallWords) -> Any:
        time = words.amount("time", most=_MAX_TIME)
        path = self._path(words)
        return await self._reads.run(partial(recorded_moments.recorded_screen, path, time))

    async def _events(self, words: CallWords) -> Any:
        offset = words.number("offset", most=_MAX_OFFSET)
        time = words.amount("time", most=_MAX_TIME)
        path = self._path(words)
        place = CastPlace(offset, time)
        return await self._reads.run(partial(recorded_moments.recorded_events, path, place))

    async def _find(self, words: CallWords) -> Any:
        pattern = words.text("pattern", most=_MAX_PATTERN)
        paths = [self._path(words)] if words.has("name") or words.has("id") else None
        if paths is None:
            paths = await self._reads.run(lambda _: self._shelf.all_paths())
        return await self._shelf.find(paths, pattern, ignore_case=words.flag("ignoreCase"))

    async def _prepare(self, words: CallWords) -> Any:
        """Make the index of a recording, with which jumps are quick."""
        await self._shelf.find([self._path(words)], None, ignore_case=False)

    async def _remove(self, words: CallWords) -> Any:
        name = words.text("name")
        await self._reads.run(lambda _: self._shelf.remove(name))

    async def _ticket(self, words: CallWords) -> Any:
        path, kind = self._path(words), words.name("format")
        if kind not in EXPORTS:
            raise InvalidRequest("there is no such format")
        at = words.amount("at", most=_MAX_TIME) if words.has("at") else None
        ticket = RecordingTicket(str(path), kind, at)
        text = self._access.new_ticket(self._session, ticket)
        return {"ticket": text, "name": ticket.file_name}
