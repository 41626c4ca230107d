"""Waiting until a code is typed, or a signal comes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Coroutine
from typing import Any, Self

import msgspec

from exec_server.cli import exit_codes
from exec_server.cli.registry.registry_options import ask
from exec_server.errors import RegistryError
from exec_server.protocol.registry import pairing_path

_POLL_SECONDS = 0.5
# Added to the life of a code: the registry may be restarting when it expires.
_GRACE_SECONDS = 10.0
_WITHDRAWAL_SECONDS = 5.0
# The other machine checks the key and answers. That takes it about a second.
_REPLY_SECONDS = 30.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """A block in which a signal cancels only the work that `unless` waits for."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._signal: int | None = None
        self._work: asyncio.Future[None] | None = None
        # A signal that is ignored, as SIGHUP under nohup, stays ignored.
        ignored = [each for each in _SIGNALS if signal.getsignal(each) is signal.SIG_IGN]
        self._signals = [each for each in _SIGNALS if each not in ignored]

    def __enter__(self) -> Self:
        for signum in self._signals:
            self._loop.add_signal_handler(signum, self._come, signum)
        return self

    def __exit__(self, *_: object) -> None:
        for signum in self._signals:
            self._loop.remove_signal_handler(signum)

    @property
    def status(self) -> int:
        """OK, or the exit status for the signal that came."""
        return exit_codes.OK if self._signal is None else exit_codes.BY_SIGNAL + self._signal

    async def unless(self, work: Coroutine[Any, Any, None]) -> int:
        """Do *work* until it ends or a signal comes; `status` is returned."""
        self._work = asyncio.ensure_future(work)
        if self._signal is not None:
            self._work.cancel()
        try:
            await self._work
        except asyncio.CancelledError:
            if self._signal is None:
                raise
        return self.status

    def _come(self, signum: int) -> None:
        self._signal = self._signal or signum
        if self._work is not None:
            self._work.cancel()


class HarnessReply(msgspec.Struct, frozen=True):
    """The key of the machine on which the code was typed, and the proof of it."""

    fingerprint: str
    proof: str


class PendingOffer:
    """An offer at a registry; its *ticket* is the token for requests about it."""

    def __init__(self, registry: str, name: str, ticket: str) -> None:
        self._registry = registry
        self._path = pairing_path(name)
        self._ticket = ticket
        # The time when the code was seen to be typed.
        self._typed_at: float | None = None
        # It stays None with a registry of an earlier version, which passes on no reply.
        self.reply: HarnessReply | None = None

    @property
    def is_typed(self) -> bool:
        return self._typed_at is not None

    async def until_typed(self, stop: StopSignals, *, seconds: float) -> int:
        """Wait until the code is typed and the other machine has replied.

        The exit status is OK, or that of a signal, which withdraws the code. Raises RegistryError
        if the code is not typed while it is valid, which is for *seconds*; and if the other machine
        refuses it or does not reply.
        """
        status = await stop.unless(self._ask_until_typed(seconds))
        if status != exit_codes.OK:
            await self.withdraw()
            print("the code is withdrawn", file=sys.stderr)
        return status

    async def withdraw(self) -> None:
        """Withdraw the code if the registry can be reached; otherwise it expires."""
        with contextlib.suppress(RegistryError, TimeoutError):
            async with asyncio.timeout(_WITHDRAWAL_SECONDS):
                await ask(self._registry, "DELETE", self._path, token=self._ticket)

    async def _ask_until_typed(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds + _GRACE_SECONDS
        while not await self._is_answered(loop.time()):
            if loop.time() > deadline:
                raise RegistryError("the registry did not answer whether the code was typed")
            await asyncio.sleep(_POLL_SECONDS)

    async def _is_answered(self, now: float) -> bool:
        try:
            answer = await ask(self._registry, "GET", self._path, token=self._ticket)
        except RegistryError as exc:
            if exc.error_code == "unknown_pairing":
                raise RegistryError(
                    "the code was not typed in time; start again for a new one"
                ) from None
            if exc.status is not None and exc.status < 500 and exc.status != 429:
                raise
            # The registry is not reachable for a moment, or it is busy.
            return False
        return isinstance(answer, dict) and self._read(answer, now)

    def _read(self, answer: dict[str, Any], now: float) -> bool:
        """True if the registry has told everything that it will tell."""
        state = answer.get("state")
        if state not in ("claimed", "refused"):
            return False
        self._typed_at = self._typed_at or now
        if state == "refused":
            raise RegistryError(
                "the other machine refused the code: its last six letters were mistyped there, or "
                "that machine does not accept our key. Nothing was paired, and the code is used "
                "up; start again for a new one"
            )
        if "reply" not in answer:
            return True
        if answer["reply"] is not None:
            self.reply = _reply(answer["reply"])
        elif now - self._typed_at > _REPLY_SECONDS:
            raise RegistryError(
                "the code was typed, but the other machine has not confirmed it, and the code is "
                "used up; start again for a new one"
            )
        return self.reply is not None


def _reply(value: Any) -> HarnessReply:
    try:
        return msgspec.convert(value, HarnessReply)
    except msgspec.ValidationError:
        raise RegistryError("the registry's answer is not a reply to a code") from None
