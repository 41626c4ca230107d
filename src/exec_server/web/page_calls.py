"""The calls that a tab may make: each takes the members of a call and returns data for JSON."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
from typing import TYPE_CHECKING, Any

from exec_server.errors import ExecServerError, InvalidRequest, RpcError, SessionAttached
from exec_server.web import place_files, transfer_routes
from exec_server.web.call_words import Call, CallWords
from exec_server.web.port_calls import PortCalls
from exec_server.web.process_list import find_listed_job, list_processes
from exec_server.web.recordings.recording_calls import RecordingCalls
from exec_server.web.replay_screen import load_engine
from exec_server.web.shown_process import ShownProcess
from exec_server.web.transfer_routes import PICTURES, FileTicket

if TYPE_CHECKING:
    from exec_server.client.client import ExecServerClient
    from exec_server.client.files.remote_files import RemoteFiles
    from exec_server.web.page_access import PageAccess, PageSession
    from exec_server.web.places import PagePlaces, Place

# Terminals and commands that the page may hold open.
MAX_SHOWN = 200
_MAX_FILE = 2**50
_MAX_TIME = 2**53


class PageCalls:
    """The calls by name, for one tab."""

    def __init__(self, session: PageSession, access: PageAccess, places: PagePlaces) -> None:
        self._session = session
        self._access = access
        self._places = places
        self._calls: dict[str, Call] = {
            "place.list": self._list_places,
            "place.connect": self._connect,
            "place.disconnect": self._disconnect,
            "process.list": self._list_processes,
            "process.start": self._start,
            "process.attach": self._attach,
            "process.watch": self._watch,
            "process.signal": self._signal,
            "process.kill": self._kill,
            "process.prune": self._prune,
            "shown.list": self._list_shown,
            "shown.resize": self._resize,
            "shown.close": self._close,
            "shown.take": self._take,
            "shown.giveBack": self._give_back,
            "file.list": self._list_folder,
            "file.read": self._read_text,
            "file.write": self._write_text,
            "file.makeFolder": self._make_folder,
            "file.rename": self._rename,
            "file.remove": self._remove,
            "file.ticket": self._ticket,
            "upload.begin": self._begin_upload,
            "upload.finish": self._finish_upload,
            "upload.drop": self._drop_upload,
        }
        self._calls |= RecordingCalls(session, access, places, self.shown).by_name()
        self._calls |= PortCalls(places, self._place).by_name()

    def find(self, name: str) -> Call:
        """The call of that name. Raises InvalidRequest."""
        if name not in self._calls:
            raise InvalidRequest("there is no such call")
        return self._calls[name]

    def shown(self, words: CallWords) -> ShownProcess:
        """The process that the call is about. Raises InvalidRequest."""
        found = self._places.shown.get(words.name("id"))
        if found is None:
            raise InvalidRequest("this process is not open on the page any more")
        return found

    def _place(self, words: CallWords) -> Place:
        found = self._places.find(words.text("place"))
        if found is None:
            raise InvalidRequest("there is no such environment")
        return found

    # Environments.

    async def _list_places(self, words: CallWords) -> Any:
        return self._places.as_json()

    async def _connect(self, words: CallWords) -> Any:
        place = self._place(words)
        await place.connect()
        return place.as_json()

    async def _disconnect(self, words: CallWords) -> Any:
        place = self._place(words)
        for shown in [each for each in self._places.shown.values() if each.place is place]:
            await shown.end()
        await place.disconnect()

    # Processes.

    async def _list_processes(self, words: CallWords) -> Any:
        return await list_processes(self._place(words), self._places)

    async def _start(self, words: CallWords) -> Any:
        place = self._place(words)
        self._check_room()
        is_terminal, size, durable = words.flag("terminal"), words.size(), words.flag("durable")
        await place.connect()
        client = place.client
        argv = await self._argv(words, client)
        if is_terminal:
            await asyncio.to_thread(load_engine)
        shown = ShownProcess(
            place, self._places, argv=argv, is_terminal=is_terminal, screen_size=size
        )
        process = await client.start(
            argv,
            cwd=words.optional_text("cwd"),
            env={"TERM": "xterm-256color", "COLORTERM": "truecolor"} if is_terminal else None,
            tty=is_terminal,
            rows=size[1] if is_terminal else None,
            cols=size[0] if is_terminal else None,
            durable=durable,
            on_gap="skip",
        )
        await self._introduce(client, process.process_id)
        shown.follow(process)
        return shown.as_json()

    async def _introduce(self, client: ExecServerClient, process_id: str) -> None:
        """Say that a person drives the process: no agent may take it then without being asked."""
        with contextlib.suppress(ExecServerError):
            await client.control(process_id, kind="person", name=self._places.person)

    async def _argv(self, words: CallWords, client: ExecServerClient) -> list[str]:
        """The words of the command; a command line goes to the shell, and none means a shell."""
        line = words.optional_text("line")
        try:
            shell = (await client.environment_info()).shell.path
        except RpcError:
            shell = "/bin/sh"
        return [shell, "-l"] if line is None else [shell, "-c", line]

    async def _attach(self, words: CallWords) -> Any:
        place = self._place(words)
        self._check_room()
        session_id, process_id = words.optional_name("session"), words.name("process")
        size = words.size()
        await asyncio.to_thread(load_engine)
        for each in self._places.shown.values():
            if each.place is place and each.process_id == process_id:
                return each.as_json()
        if session_id is None:
            return await self._attach_own(place, process_id, size)
        job, take_over = await find_listed_job(place, session_id, process_id), words.flag("take")
        if job.attached and not take_over:
            raise SessionAttached("another program follows this job")
        shown = ShownProcess(
            place,
            self._places,
            argv=job.argv,
            is_terminal=job.tty,
            screen_size=size,
            name=job.name,
        )
        await shown.follow_job(job, take_over=take_over)
        return shown.as_json()

    async def _watch(self, words: CallWords) -> Any:
        """Look on at a process of another session, of a person or of an agent."""
        place = self._place(words)
        self._check_room()
        process_id, session_id = words.name("process"), words.optional_name("session")
        given = words.size()
        for each in self._places.shown.values():
            if each.place is place and each.process_id == process_id:
                return each.as_json()
        await asyncio.to_thread(load_engine)
        watched = await place.client.watch(
            process_id, session_id=session_id, kind="person", name=self._places.person
        )
        size = given if watched.size is None else (watched.size[1], watched.size[0])
        shown = ShownProcess(
            place,
            self._places,
            argv=watched.argv,
            is_terminal=watched.is_terminal,
            screen_size=size,
            name=words.optional_name("name"),
        )
        shown.follow_watched(watched)
        return shown.as_json()

    async def _attach_own(self, place: Place, process_id: str, size: tuple[int, int]) -> Any:
        """Show a process of the page's own session again."""
        process = await place.client.attach(process_id, 0)
        argv = [
            word
            for each in await place.client.list_processes()
            if each.process_id == process_id
            for word in each.argv
        ]
        is_terminal = process.is_terminal
        shown = ShownProcess(
            place, self._places, argv=argv, is_terminal=is_terminal, screen_size=size
        )
        shown.follow(process)
        return shown.as_json()

    async def _signal(self, words: CallWords) -> Any:
        if (shown := self._places.shown.get(words.optional_name("id") or "")) is not None:
            await shown.send_signal(words.name("signal"))
        else:
            await self._place(words).client.signal(words.name("process"), words.name("signal"))

    async def _kill(self, words: CallWords) -> Any:
        return await self._place(words).client.terminate(words.name("process"))

    async def _prune(self, words: CallWords) -> Any:
        return await self._place(words).client.prune_jobs(
            session_id=words.optional_name("session"), process_id=words.name("process")
        )

    def _check_room(self) -> None:
        if len(self._places.shown) >= MAX_SHOWN:
            raise InvalidRequest(f"{MAX_SHOWN} processes are open on the page; close some")

    # Open terminals and commands.

    async def _list_shown(self, words: CallWords) -> Any:
        return [each.as_json() for each in self._places.shown.values()]

    async def _resize(self, words: CallWords) -> Any:
        await self.shown(words).resize(words.size())

    async def _close(self, words: CallWords) -> Any:
        await self.shown(words).end()

    async def _take(self, words: CallWords) -> Any:
        await self.shown(words).take()

    async def _give_back(self, words: CallWords) -> Any:
        await self.shown(words).give_back()

    # Files.

    def _files(self, words: CallWords) -> RemoteFiles:
        return self._place(words).client.fs

    async def _list_folder(self, words: CallWords) -> Any:
        return await place_files.list_folder(self._files(words), words.text("path"))

    async def _read_text(self, words: CallWords) -> Any:
        return await place_files.read_text(self._files(words), words.text("path"))

    async def _write_text(self, words: CallWords) -> Any:
        return await place_files.write_text(
            self._files(words),
            words.text("path"),
            words.text("text", most=place_files.MAX_TEXT_BYTES),
            version=words.optional_name("version"),
        )

    async def _make_folder(self, words: CallWords) -> Any:
        await self._files(words).create_directory(words.text("path"))

    async def _rename(self, words: CallWords) -> Any:
        await self._files(words).rename(words.text("path"), words.text("to"), overwrite=False)

    async def _remove(self, words: CallWords) -> Any:
        recursive = words.flag("recursive")
        await self._files(words).remove(words.text("path"), recursive=recursive)

    async def _ticket(self, words: CallWords) -> Any:
        path, place = words.text("path"), self._place(words)
        is_picture = posixpath.splitext(path)[1].lower() in PICTURES and words.flag("picture")
        ticket = FileTicket(place.facts.id, path, is_picture)
        return {"ticket": self._access.new_ticket(self._session, ticket)}

    # Uploads; their content comes by HTTP.

    async def _begin_upload(self, words: CallWords) -> Any:
        return await transfer_routes.begin_upload(
            self._files(words),
            words.text("path"),
            size=words.number("size", most=_MAX_FILE),
            stamp=words.number("stamp", most=_MAX_TIME),
            overwrite=words.flag("overwrite"),
        )

    async def _finish_upload(self, words: CallWords) -> Any:
        size, stamp = words.number("size", most=_MAX_FILE), words.number("stamp", most=_MAX_TIME)
        path = words.text("path")
        await transfer_routes.finish_upload(self._files(words), path, size=size, stamp=stamp)

    async def _drop_upload(self, words: CallWords) -> Any:
        size, stamp = words.number("size", most=_MAX_FILE), words.number("stamp", most=_MAX_TIME)
        path = words.text("path")
        await transfer_routes.drop_upload(self._files(words), path, size=size, stamp=stamp)
