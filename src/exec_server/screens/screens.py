"""The models of the terminals of a server."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec

from exec_server.errors import InternalError, InvalidRequest
from exec_server.process.child import Child
from exec_server.protocol.method import Encoded
from exec_server.protocol.screen import ScreenParams, WaitForParams
from exec_server.screens import host_messages as messages
from exec_server.screens.earlier_screen import EarlierScreen
from exec_server.screens.host_link import HostLink, HostLost, HostStarter
from exec_server.screens.query_answers import without_answers
from exec_server.screens.screen_tap import ScreenDump, ScreenTap

logger = logging.getLogger(__name__)

# A host that ends so often within this time is not started again before the time is over.
_MAX_DEATHS, _DEATH_SECONDS = 5, 60.0
# The models of so many closed processes are kept; one that is dropped can be made again.
_MAX_CLOSED = 32
_CLOSED_SECONDS = 120.0

_encode = msgspec.json.Encoder().encode


class Screens:
    """Makes a model when one is first asked for, and keeps it while its process runs."""

    def __init__(self, starter: HostStarter) -> None:
        self._starter = starter
        self._loop = asyncio.get_running_loop()
        self._taps: dict[Child, ScreenTap] = {}
        self._numbers: dict[int, ScreenTap] = {}
        self._closed: dict[Child, asyncio.TimerHandle] = {}
        self._last_number = itertools.count(1)
        self._last_call = itertools.count(1)
        self._link: HostLink | None = None
        self._starting: asyncio.Task[HostLink] | None = None
        self._deaths: deque[float] = deque()
        self._is_stopped = False
        self._looking_back = asyncio.Lock()
        self._waiting_for_room: list[asyncio.Future[None]] = []

    # Questions.

    async def screen(self, child: Child, params: ScreenParams) -> Encoded:
        """The answer to `process/screen`."""
        if params.at is not None and params.at < child.log.next_seq - 1:
            return Encoded((await self._ask_earlier(child, params, params.at),))
        return Encoded((await self._ask(child, "screen", lambda: _encode(params)),))

    async def wait_for(self, child: Child, params: WaitForParams) -> Encoded:
        """The answer to `process/waitFor`; a wait outlives the host."""
        deadline = None
        if params.timeout_ms is not None:
            deadline = self._loop.time() + params.timeout_ms / 1000

        def remaining() -> bytes:
            if deadline is not None:
                params.timeout_ms = max(0, round((deadline - self._loop.time()) * 1000))
            return _encode(params)

        return Encoded((await self._ask(child, "wait", remaining, after=params.after),))

    async def dump(self, child: Child, *, history: int = 0) -> ScreenDump:
        """Bytes that paint the terminal of *child* as it is after all output so far."""
        answer = await self._ask(child, "dump", lambda: b"%d" % history)
        facts, _, data = answer.partition(b"\n")
        seq, rows, columns, version, is_inexact = msgspec.json.decode(facts)
        return ScreenDump(data, seq, rows, columns, version, is_inexact)

    def watch(self, child: Child) -> None:
        """Make the model of a process that begins, and answer its queries from the first on."""
        if child.is_tty:
            self._tap(child, answers_all=True)
            self._restart()

    async def _ask(
        self, child: Child, what: str, params: Callable[[], bytes], after: int | None = None
    ) -> bytes:
        if not child.is_tty:
            raise InvalidRequest(f"process {child.process_id} has no terminal")
        call = next(self._last_call)
        tap = asked = self._tap(child)
        if after is not None:
            tap.afters[call] = after
        asked.waits += what == "wait"
        try:
            while True:
                link = await self._host()
                # It may have been dropped meanwhile.
                tap = self._tap(child)
                if not tap.is_open_on(link):
                    tap.open(link)
                await tap.caught_up()
                try:
                    if what == "wait":
                        return await link.ask(tap.number, call, what, params())
                    # The host answers one question after the other, and that about a large
                    # screen may take seconds: those about other terminals come in between.
                    async with asked.asking:
                        return await link.ask(tap.number, call, what, params())
                except HostLost:
                    continue
        finally:
            tap.afters.pop(call, None)
            asked.waits -= what == "wait"

    async def _ask_earlier(self, child: Child, params: ScreenParams, at: int) -> bytes:
        """What a terminal showed after the output with the number *at*."""
        if not child.is_tty:
            raise InvalidRequest(f"process {child.process_id} has no terminal")
        # One at a time: it may read all that is retained.
        async with self._looking_back:
            return await self._look_back(child, params, at)

    async def _look_back(self, child: Child, params: ScreenParams, at: int) -> bytes:
        while True:
            link = await self._host()
            number, call = next(self._last_number), next(self._last_call)
            known = self._taps.get(child)
            earlier = EarlierScreen(
                child,
                number,
                at,
                checkpoint=None if known is None else known.checkpoint,
                room=partial(self._has_room, link),
            )
            try:
                await earlier.open(link)
                return await link.ask(number, call, "screen", _encode(params))
            except HostLost:
                continue
            finally:
                link.send(messages.Drop(number))

    async def _has_room(self, link: HostLink) -> None:
        """Wait until the host can take more. Raises HostLost."""
        while not link.has_room:
            if link.is_over:
                raise HostLost("the host of models has ended")
            waiting: asyncio.Future[None] = self._loop.create_future()
            self._waiting_for_room.append(waiting)
            await waiting

    def _tell_room(self) -> None:
        waiting, self._waiting_for_room = self._waiting_for_room, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    # Models.

    def _tap(self, child: Child, *, answers_all: bool = False) -> ScreenTap:
        tap = self._taps.get(child)
        if tap is None:
            number = next(self._last_number)
            closed = partial(self._close, child)
            tap = ScreenTap(child, number, answers_all=answers_all, on_closed=closed)
            self._taps[child] = self._numbers[number] = tap
            if child.state == "closed":
                self._close(child)
            else:
                child.taps = (*child.taps, tap)
                child.input_filter = without_answers
        return tap

    def _close(self, child: Child) -> None:
        """Nothing follows: keep the model for a while."""
        if child in self._taps and child not in self._closed:
            later = self._loop.call_later(_CLOSED_SECONDS, self._drop, child)
            self._closed[child] = later
            if len(self._closed) > _MAX_CLOSED:
                self._drop(next(iter(self._closed)))

    def _drop(self, child: Child) -> None:
        if (timer := self._closed.pop(child, None)) is not None:
            timer.cancel()
        tap = self._taps.pop(child, None)
        if tap is not None:
            del self._numbers[tap.number]
            if self._link is not None:
                self._link.send(messages.Drop(tap.number))

    # The host.

    async def _host(self) -> HostLink:
        if self._link is not None:
            return self._link
        if self._starting is None:
            self._check_deaths()
            self._starting = self._loop.create_task(self._start(), name="start screen host")
            self._starting.add_done_callback(_retrieve)
        return await asyncio.shield(self._starting)

    async def _start(self) -> HostLink:
        link = HostLink(self._starter, self)
        try:
            await link.start()
            if self._is_stopped:
                link.close()
                raise InternalError("the server stops")
            self._link = link
            for tap in tuple(self._taps.values()):
                if tap.child not in self._closed:
                    tap.open(link)
            return link
        except HostLost as exc:
            self._deaths.append(self._loop.time())
            raise InternalError(f"the host of models cannot be started: {exc.message}") from exc
        finally:
            self._starting = None

    def _check_deaths(self) -> None:
        if self._is_stopped:
            raise InternalError("the server stops")
        since = self._loop.time() - _DEATH_SECONDS
        while self._deaths and self._deaths[0] < since:
            self._deaths.popleft()
        if len(self._deaths) >= _MAX_DEATHS:
            raise InternalError(
                f"the host of models has ended {_MAX_DEATHS} times within a minute; "
                "it is not started again for now"
            )

    def _restart(self) -> None:
        """Start the host in the background, for models that have to answer queries."""
        if self._link is None and self._starting is None and not self._is_stopped:
            try:
                self._check_deaths()
            except InternalError as exc:
                logger.warning("%s", exc.message)
                return
            self._starting = self._loop.create_task(self._start(), name="start screen host")
            self._starting.add_done_callback(_retrieve)
        elif self._link is not None:
            for tap in tuple(self._taps.values()):
                if not tap.is_open_on(self._link) and tap.child not in self._closed:
                    tap.open(self._link)

    @property
    def host_pid(self) -> int | None:
        """The process that holds the models; None while there is none."""
        return None if self._link is None else self._link.pid

    # What the link tells.

    def replied(self, reply: messages.Reply) -> None:
        if (tap := self._numbers.get(reply.model)) is not None:
            tap.replied(reply)

    def checkpointed(self, checkpoint: messages.Checkpoint) -> None:
        if (tap := self._numbers.get(checkpoint.model)) is not None:
            tap.checkpointed(checkpoint)

    def writable(self) -> None:
        self._tell_room()
        for tap in tuple(self._taps.values()):
            tap.pump()

    def lost(self, reason: str) -> None:
        self._tell_room()
        if self._link is None:
            return
        self._link = None
        self._deaths.append(self._loop.time())
        logger.warning("the models of %d terminals are made again: %s", len(self._taps), reason)
        for tap in self._taps.values():
            tap.lost()
        if any(child not in self._closed for child in self._taps):
            self._restart()

    def stop(self) -> None:
        """End the host; the server stops."""
        self._is_stopped = True
        for timer in self._closed.values():
            timer.cancel()
        if self._starting is not None:
            self._starting.cancel()
        if self._link is not None:
            self._link.close()
            self._link = None


def _retrieve(task: asyncio.Task[HostLink]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("%s", error)
