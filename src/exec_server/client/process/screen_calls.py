"""The screens of terminals: the calls about them, for a client and for a handle."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET

from exec_server.client.arguments import BytesLike, check_seconds
from exec_server.client.client_session import ClientSession
from exec_server.client.process.tracked_process import TrackedProcess
from exec_server.errors import ScreenEnded, ScreenTimeout
from exec_server.protocol.screen import (
    SCREEN,
    WAIT_FOR,
    LastCommand,
    ScreenParams,
    ScreenResult,
    WaitCondition,
    WaitForParams,
    WaitForResult,
)

# What a screen consists of is loaded when one is asked for: most commands look at none.
if TYPE_CHECKING:
    from exec_server.client.process.processes import Processes
    from exec_server.client.process.screen_data import Screen, ScreenMatch

NOT_BACK = "it cannot show earlier screens"
NO_SCREENS = "it keeps no models of terminals"


class ScreenCalls:
    """The part of a client that is about screens; a handle has simpler methods."""

    _session: ClientSession

    async def read_screen(self, params: ScreenParams) -> ScreenResult:
        """What a terminal shows, in the form of `process/screen`.

        An extension: other servers raise MethodNotFound.
        """
        await self._session.require("processScreen", NO_SCREENS)
        return await self._session.call(SCREEN, params, repeat=True)

    async def screen(
        self,
        process_id: str,
        *,
        cells: bool = False,
        history: int = 0,
        since: Screen | None = None,
        at: int | None = None,
    ) -> Screen:
        """What the terminal of a process shows; see `RemoteProcess.screen`."""
        from exec_server.client.process.screen_data import screen_of

        if at is not None:
            await self._session.require("processScreenAt", NOT_BACK)
            since = None
        if since is not None and cells and since.cells is None:
            since = None
        version = None if since is None else since.version
        params = ScreenParams(process_id, version, cells=cells, history=history, at=at)
        return screen_of(await self.read_screen(params), since)

    async def screenshot(
        self,
        process_id: str,
        path: str | os.PathLike[str] | None = None,
        *,
        png: bool = False,
        at: int | None = None,
    ) -> bytes:
        """A picture of the terminal of a process; see `RemoteProcess.screenshot`.

        Without a path it is SVG, or PNG if *png* is true.
        """
        suffix = (".png" if png else ".svg") if path is None else Path(path).suffix.lower()
        if suffix not in (".svg", ".png"):
            raise ValueError(f"the name of a picture ends with .svg or .png, not {suffix!r}")
        picture = _picture(await self.screen(process_id, cells=True, at=at), suffix)
        if path is not None:
            await asyncio.to_thread(Path(path).write_bytes, picture)
        return picture

    async def wait_for_screen(self, params: WaitForParams) -> WaitForResult:
        """Wait for what a terminal shows, in the form of `process/waitFor`."""
        await self._session.require("processScreen", NO_SCREENS)
        seconds = self._session.options.call_timeout
        if params.timeout_ms is None or seconds is None:
            seconds = None
        else:
            seconds += params.timeout_ms / 1000
        return await self._session.call(WAIT_FOR, params, seconds=seconds, repeat=True)


class ScreenMethods:
    """What a handle of a process on a terminal can do with its screen."""

    _client: Processes
    _tracked: TrackedProcess
    # The version before the last keys that were sent; waits begin after it.
    _sent_at: int | None = None

    if TYPE_CHECKING:

        async def write(self, data: BytesLike | str) -> None: ...

    async def screen(
        self,
        *,
        cells: bool = False,
        history: int = 0,
        since: Screen | None = None,
        at: int | None = None,
    ) -> Screen:
        """What the terminal shows: text, cursor, title, whether it is the alternate screen.

        With *cells* it has the styles as well, with *history* so many rows above the screen. With
        *since* only the changes since that screen cross the network. With *at* it is the screen as
        it was after the event with that number, which an `OutputChunk` and `ControlLost` have; it
        is `inexact` if output before it is not retained any more. The server makes its model of
        the terminal with the first call, from the output that it retains, unless the process was
        started with `screen=True`. An extension: other servers raise MethodNotFound.
        """
        return await self._client.screen(
            self._tracked.process_id, cells=cells, history=history, since=since, at=at
        )

    async def wait_for(
        self,
        text: str | None = None,
        *,
        regex: str | None = None,
        gone: str | None = None,
        still: float | None = None,
        prompt: bool = False,
        exit: bool = False,
        timeout: float | None = 30.0,  # noqa: ASYNC109 (the server keeps it)
        after: int | None = None,
    ) -> ScreenMatch:
        """Wait until the terminal shows something; of several conditions the first one counts.

        *text* and *regex* (of Python's `re`) are searched in the rows, and in those that have left
        the screen since the wait began. *gone* holds when a text is not on the screen, *still*
        after so many seconds without output, *prompt* when a shell with integration waits for a
        command, *exit* when the program has ended.

        What was there before does not count if keys were sent: a wait begins after the version
        *after*, which is by default that of the last `send_keys`. Nor does what is typed at a
        prompt, if the shell has integration. Raises ScreenTimeout after *timeout* seconds, and
        ScreenEnded, which is one, as soon as the program has ended without it.
        """
        from exec_server.client.process.screen_data import ScreenMatch

        conditions = _conditions(text, regex, gone, still, prompt=prompt, exit=exit)
        check_seconds(timeout, "timeout")
        version = self._sent_at if after is None else after
        seconds = TimeLeft(timeout)
        # A terminal that is still will be so after the end of its program, too.
        is_told = exit or still is not None
        watched = conditions if is_told else [*conditions, WaitCondition("exit")]
        result = await self._wait(watched, version, seconds)
        exit_code = result.exit_code
        if result.matched == len(conditions):
            result = await self._wait_for_rest(conditions, version, seconds)
        if result.kind is None:
            wanted = ", ".join(_words(condition) for condition in conditions)
            if not is_told and self._tracked.is_settled:
                raise ScreenEnded(wanted, exit_code)
            raise ScreenTimeout(f"the terminal did not show it within {timeout:g} s: {wanted}")
        return ScreenMatch(
            result.kind, result.version, result.text, result.row, result.column, result.exit_code
        )

    async def _wait(
        self, conditions: list[WaitCondition], after: int | None, seconds: TimeLeft
    ) -> WaitForResult:
        params = WaitForParams(self._tracked.process_id, conditions, seconds.in_ms(), after)
        return await self._client.wait_for_screen(params)

    async def _wait_for_rest(
        self, conditions: list[WaitCondition], after: int | None, seconds: TimeLeft
    ) -> WaitForResult:
        """Wait on after the exit of the program: its last output may follow, until it closes."""
        waiting = asyncio.create_task(self._wait(conditions, after, seconds))
        closing = asyncio.create_task(self._tracked.wait_settled())
        try:
            await asyncio.wait({waiting, closing}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return await waiting
        finally:
            for task in (waiting, closing):
                task.cancel()
            await asyncio.gather(waiting, closing, return_exceptions=True)
        return await self._wait(conditions, after, TimeLeft(0))

    async def send_keys(self, *keys: str) -> None:
        """Type keys such as `"ctrl-c"`, `"up"`, `"enter"`; other words are typed as they are.

        They are encoded for the modes that the program has set. The next `wait_for` begins here.
        Raises ValueError for `ctrl-` before a key that does not exist; then nothing is typed.
        """
        from exec_server.client.process.screen_data import key_modes_of, screen_of
        from exec_server.terminal.key_names import encode_keys

        for key in keys:
            if not isinstance(key, str):
                raise TypeError(f"a key is a str, not {type(key).__name__}")
        params = ScreenParams(self._tracked.process_id, lines=False)
        screen = screen_of(await self._client.read_screen(params))
        self._sent_at = screen.version
        await self.write(encode_keys(keys, key_modes_of(screen)))

    async def screenshot(
        self, path: str | os.PathLike[str] | None = None, *, at: int | None = None
    ) -> bytes:
        """A picture of the screen; it is written to *path* if that is given.

        The format follows from the name: `.svg`, or `.png`, which needs Pillow (extra `png`).
        Without a path it is SVG. With *at* it is an earlier screen, as for `screen`.
        """
        return await self._client.screenshot(self._tracked.process_id, path, at=at)

    async def last_command(self) -> LastCommand:
        """The last command of a shell with integration: its words, cwd, exit status and output.

        Its `state` is `none` before the first one, `running`, `done`, or `unconfirmed` if the shell
        has stopped to tell: then nothing is known.
        """
        params = ScreenParams(self._tracked.process_id, lines=False, command=True)
        result = await self._client.read_screen(params)
        return LastCommand("none") if result.command is UNSET else result.command


class TimeLeft:
    """The rest of a time limit in seconds; None is no limit."""

    def __init__(self, seconds: float | None) -> None:
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def in_ms(self) -> int | None:
        if self._deadline is None:
            return None
        return max(0, round((self._deadline - time.monotonic()) * 1000))


def _picture(screen: Screen, suffix: str) -> bytes:
    from exec_server.client.process.screen_data import drawn_cursor, drawn_rows

    rows, cursor = drawn_rows(screen), drawn_cursor(screen)
    if suffix == ".png":
        from exec_server.terminal.png_picture import png_picture

        return png_picture(rows, screen.columns, cursor=cursor)
    from exec_server.terminal.svg_picture import svg_picture

    return svg_picture(rows, screen.columns, cursor=cursor, title=screen.title)


def _conditions(
    text: str | None,
    regex: str | None,
    gone: str | None,
    still: float | None,
    *,
    prompt: bool,
    exit: bool,
) -> list[WaitCondition]:
    found: list[WaitCondition] = []
    for name, value in (("text", text), ("regex", regex), ("gone", gone)):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if text is not None:
        found.append(WaitCondition("text", text=text))
    if regex is not None:
        found.append(WaitCondition("regex", pattern=regex))
    if gone is not None:
        found.append(WaitCondition("gone", text=gone))
    if prompt:
        found.append(WaitCondition("prompt"))
    if exit:
        found.append(WaitCondition("exit"))
    if still is not None:
        check_seconds(still, "still")
        found.append(WaitCondition("still", ms=round(still * 1000)))
    if not found:
        raise ValueError("wait_for needs a text, regex, gone, still, prompt or exit")
    return found


def _words(condition: WaitCondition) -> str:
    if condition.ms is not None:
        return f"{condition.kind} for {condition.ms / 1000:g} s"
    value = condition.text or condition.pattern
    return condition.kind if value is None else f"{condition.kind} {value!r}"
