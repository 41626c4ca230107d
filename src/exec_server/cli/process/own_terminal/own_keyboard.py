"""The keyboard of a process that this program has started or continued: others may take it."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
from collections.abc import Awaitable, Callable
from typing import Protocol, Self

from exec_server.cli.process.detached.participant_words import change_words, participant_lines
from exec_server.cli.process.own_terminal.connection_notices import Notices
from exec_server.cli.process.own_terminal.escape_keys import Key
from exec_server.client.process.remote_process import RemoteProcess
from exec_server.errors import ControlLost, ControlRefused, ExecServerError

_LONGEST_NAME = 64
# How long a line of this program stays on a screen before the screen is painted again.
SHOWN_SECONDS = 2.0

Repaint = Callable[[bool], Awaitable[None]]


def own_name() -> str:
    """How others see the one who sits here: user and machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"[:_LONGEST_NAME]


class Keys(Protocol):
    """Where the keys `~t`, `~g` and `~w` are found."""

    on_control: Callable[[Key], Awaitable[None]] | None


class OwnKeyboard:
    """Tells who takes the keyboard of *process*, and takes it back, for the length of a block.

    *is_person* says who types; None finds it out. *repaint* shows the screen of the process anew,
    if something was shown since, or in any case: one who drives may have another size.
    """

    def __init__(
        self,
        process: RemoteProcess,
        keys: Keys,
        notices: Notices,
        *,
        is_person: bool | None = None,
        repaint: Repaint | None = None,
    ) -> None:
        self._process = process
        self._keys = keys
        self._notices = notices
        self._is_person = os.isatty(0) if is_person is None else is_person
        self._telling: asyncio.Task[None] | None = None
        self._repaint = repaint
        self._repainting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._keys.on_control = self._control
        self._telling = asyncio.get_running_loop().create_task(self._tell_changes())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for task in (self._telling, self._repainting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _control(self, key: Key) -> None:
        try:
            if key == "take":
                await self._process.take(kind="person", name=own_name())
            elif key == "give back":
                await self._process.give_back()
            else:
                state = await self._process.control_state()
                self._tell("; ".join(participant_lines(state)))
        except (ControlRefused, ControlLost) as exc:
            self._tell(str(exc))

    async def _tell_changes(self) -> None:
        # An agent must not take the keyboard from the one who sits here.
        if self._is_person and self._process.is_terminal:
            with contextlib.suppress(ExecServerError):
                await self._process.control_state(kind="person", name=own_name())
        async for change in self._process.control_changes():
            self._tell(change_words(change))
            if change.driver.id == change.control.you:
                # The first key after a loss would be refused otherwise.
                with contextlib.suppress(ExecServerError):
                    await self._process.control_state()
            elif self._process.is_terminal and self._repaint is not None:
                if self._repainting is not None:
                    self._repainting.cancel()
                painting = self._keep_painted(self._repaint)
                self._repainting = asyncio.get_running_loop().create_task(painting)

    async def _keep_painted(self, repaint: Repaint) -> None:
        """Sizes of another driver are not told here, and no program clears what is outside."""
        in_any_case = True
        # A process that has ended shows nothing new; a lost connection is told elsewhere.
        with contextlib.suppress(ExecServerError, OSError):
            while not self._process.drives:
                await asyncio.sleep(SHOWN_SECONDS)
                await repaint(in_any_case)
                in_any_case = False

    def _tell(self, text: str) -> None:
        self._notices.remark(text)
