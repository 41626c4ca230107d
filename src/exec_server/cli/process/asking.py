"""Ask a person whether a refused call of a sandboxed command may go on, or say how to allow it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from exec_server.cli.process.own_terminal.connection_notices import say
from exec_server.errors import ConfigurationError, ExecServerError
from exec_server.printable import printable
from exec_server.protocol.denials import NETWORK_GRANT

if TYPE_CHECKING:
    from exec_server.client.process.remote_process import RemoteProcess
    from exec_server.protocol.denials import Denial, GrantScope

# A person has so much time to answer; the server allows no more.
HOLD_SECONDS = 600.0
_TERMINAL = "/dev/tty"
_LINE_BYTES = 4096
_ANSWERS: dict[str, GrantScope] = {
    "once": "once",
    "o": "once",
    "session": "session",
    "s": "session",
    # It is a grant to the session, and remembered here.
    "always": "session",
    "a": "session",
    "never": "never",
    "n": "never",
    # The end of the input, as Ctrl-D types it.
    "": "never",
}
_NETWORK_ANSWERS = {
    "yes": True,
    "y": True,
    "always": True,
    "a": True,
    "no": False,
    "n": False,
    "": False,
}
_VERBS = {"write": "write to", "read": "read", "socket": "connect to", "host": "connect to"}


class Questions:
    """The questions about one command; *asks* is false where no person can answer.

    What the person allows for good is remembered for *server*.
    """

    def __init__(self, *, asks: bool, server: str = "local") -> None:
        self._server = server
        self._terminal: int | None = None
        if asks:
            with contextlib.suppress(OSError):
                self._terminal = os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        self._waiting: asyncio.Queue[Denial] = asyncio.Queue()
        self._allowed: set[str] = set()
        # Ids of denials by what was answered about single calls.
        self._allowed_once: set[str] = set()
        self._refused_once: set[str] = set()
        # True if the command is started again with a network.
        self.has_allowed_network = False

    @property
    def hold(self) -> float:
        """How many seconds a refused call waits."""
        return HOLD_SECONDS if self._terminal is not None else 0.0

    def on_denied(self, denial: Denial) -> None:
        if denial.held:
            self._waiting.put_nowait(denial)

    @contextlib.asynccontextmanager
    async def about(self, process: RemoteProcess) -> AsyncIterator[None]:
        """Ask while the block runs."""
        if process.denials_unavailable is not None:
            say(f"what the sandbox refuses is not recorded: {process.denials_unavailable}")
        task = asyncio.create_task(self._ask_all(process))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if self._terminal is not None:
                os.close(self._terminal)
                self._terminal = None

    async def refused(self, process: RemoteProcess) -> list[Denial]:
        """What was refused to the command and not allowed here."""
        try:
            found = await process.denials()
        except ExecServerError:
            return []
        allowed = self._allowed | (self._allowed_once - self._refused_once)
        return [each for each in found.denials if each.denial_id not in allowed]

    async def ask_network(self, process: RemoteProcess) -> None:
        """Ask whether a command that has failed without a network is started again with one."""
        if self._terminal is None:
            return
        offered = [each for each in await self.refused(process) if each.grant == NETWORK_GRANT]
        if not offered:
            return
        target = printable(offered[0].target)
        question = f"{target}: allow the network, and start the command again? [yes/always/no] "
        while (answer := (await self._line(question)).lower()) not in _NETWORK_ANSWERS:
            say("answer yes (this command), always (also later commands) or no")
        if answer.startswith("a"):
            self._remember(NETWORK_GRANT)
        self.has_allowed_network = _NETWORK_ANSWERS[answer]

    async def _ask_all(self, process: RemoteProcess) -> None:
        while True:
            denial = await self._waiting.get()
            if denial.grant is None or denial.denial_id in self._allowed:
                continue
            answer = await self._ask(denial)
            scope = _ANSWERS[answer]
            with contextlib.suppress(ExecServerError):
                await process.grant(denial, scope)
                self._note(denial.denial_id, scope)
                if answer.startswith("a"):
                    self._remember(denial.grant)

    def _remember(self, grant: str) -> None:
        from exec_server.sandbox.grant_file import add_grant, grant_file

        try:
            add_grant(grant_file(), self._server, grant)
        except ConfigurationError as exc:
            say(f"it is not remembered: {exc}")

    def _note(self, denial_id: str, scope: GrantScope) -> None:
        if scope == "session":
            self._allowed.add(denial_id)
        elif scope == "never":
            self._refused_once.add(denial_id)
        else:
            self._allowed_once.add(denial_id)

    async def _ask(self, denial: Denial) -> str:
        """The answer, which is one of `_ANSWERS`."""
        verb = _VERBS.get(denial.kind, denial.kind)
        question = f"allow {verb} {printable(denial.target)}? [once/session/always/never] "
        while True:
            answer = (await self._line(question)).lower()
            if answer in _ANSWERS:
                return answer
            say(
                "answer once (this call), session (such calls from now on), always (also of later "
                "commands) or never"
            )

    async def _line(self, question: str) -> str:
        """The answer of the person; empty at the end of the input."""
        terminal = self._terminal
        assert terminal is not None
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(terminal, lambda: None if ready.done() else ready.set_result(None))
        try:
            os.write(terminal, question.encode())
            await ready
            return os.read(terminal, _LINE_BYTES).decode(errors="replace").strip()
        except asyncio.CancelledError:
            os.write(terminal, b"\n")
            raise
        except OSError:
            return ""
        finally:
            loop.remove_reader(terminal)
