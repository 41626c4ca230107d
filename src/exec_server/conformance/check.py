"""How a check is declared, run and judged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any, Literal, NamedTuple

from exec_server.conformance.deviations import FIRST, deviation
from exec_server.conformance.kit_wire import ConnectionEnded, KitWire, open_wire
from exec_server.conformance.remote.kit_noise import KitKeyPair
from exec_server.conformance.remote.kit_registry import (
    SCHEMES,
    Answer,
    KitBundle,
    ask_connect,
    bundle_of,
    place_of,
)
from exec_server.conformance.remote.kit_relay import KitRelay, open_relay

_UNKNOWN_METHOD = -32601

# What goes wrong while a check reads a message of another shape than it expects.
WRONG_SHAPE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)

Suite = Literal["core", "files", "http", "sandbox", "remote", "extensions", "client"]
Verdict = Literal["passed", "failed", "deviation", "skipped"]


class CheckFailed(Exception):
    """The server did something else than the requirement says."""


class CheckSkipped(Exception):
    """The server or its machine cannot show this."""


class ServerUnreachable(Exception):
    """The server does not answer at all."""


class ServerUnderTest(NamedTuple):
    """The server under test, and how to speak to it."""

    url: str
    headers: dict[str, str]
    # The longest wait for a message, in seconds.
    patience: float = 10.0
    # True for the first releases: paths instead of URIs, and fewer methods.
    is_old: bool = False


class Kit:
    """What a check works with: connections to the server under test, closed at its end."""

    def __init__(self, target: ServerUnderTest) -> None:
        self.patience = target.patience
        self._target = target
        self._stack = AsyncExitStack()
        self._wires: list[KitWire] = []

    async def __aenter__(self) -> Kit:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def connect(self) -> KitWire:
        """A new connection, before its handshake."""
        target = self._target
        if self.is_remote:
            stream = await (await self.relay()).open(patience=self.patience)
            self._wires.append(KitWire(stream, patience=self.patience, has_native_paths=False))
            return self._wires[-1]
        opened = open_wire(
            target.url,
            headers=target.headers,
            patience=target.patience,
            has_native_paths=target.is_old,
        )
        self._wires.append(await self._stack.enter_async_context(opened))
        return self._wires[-1]

    async def ready(self, **params: Any) -> KitWire:
        """A new connection whose handshake is complete."""
        wire = await self.connect()
        await wire.handshake(**params)
        return wire

    async def relay(self, key: KitKeyPair | None = None) -> KitRelay:
        """A new socket of the relay before the executor."""
        if not self.is_remote:
            raise CheckSkipped("this needs noise+http://REGISTRY/ENVIRONMENT")
        key = key or KitKeyPair()

        async def ask() -> KitBundle:
            answer = await self.ask_registry({"harness_public_key": key.public.as_json()})
            return bundle_of(answer, place_of(self._target.url)[1])

        opened = open_relay(ask, patience=self.patience, key=key)
        return await self._stack.enter_async_context(opened)

    async def ask_registry(
        self, body: Any, *, environment_id: str = "", headers: dict[str, str] | None = None
    ) -> Answer:
        """The registry's answer to `connect`."""
        target = self._target
        sent = target.headers if headers is None else headers
        return await ask_connect(
            target.url, sent, body, patience=self.patience, environment_id=environment_id
        )

    @property
    def is_remote(self) -> bool:
        """True for an executor behind a registry."""
        return self._target.url.startswith(SCHEMES)

    @property
    def is_stdio(self) -> bool:
        return self._target.url.startswith("stdio:")

    @property
    def lacks_a_method(self) -> bool:
        """True if the server has said that it does not know a method of the protocol."""
        return any(
            message.get("error", {}).get("code") == _UNKNOWN_METHOD
            for wire in self._wires
            for message in wire.history
        )


class ConformanceCheck(NamedTuple):
    """One requirement, and the function that tries it."""

    id: str
    suite: Suite
    requirement: str
    # With a `Kit`, or with a `ClientScript` in checks of clients.
    try_it: Callable[[Any], Awaitable[None]]


class CheckResult(NamedTuple):
    """What one check has shown."""

    check: ConformanceCheck
    verdict: Verdict
    # What was seen, if the check did not pass.
    seen: str
    seconds: float


CHECKS: list[ConformanceCheck] = []


def check(
    check_id: str, requirement: str, *, suite: Suite = "core"
) -> Callable[[Callable[[Kit], Awaitable[None]]], Callable[[Kit], Awaitable[None]]]:
    """Declare a check: its id, and the requirement in one sentence."""

    def declare(function: Callable[[Kit], Awaitable[None]]) -> Callable[[Kit], Awaitable[None]]:
        assert all(check_id != known.id for known in CHECKS), f"two checks are called {check_id}"
        CHECKS.append(ConformanceCheck(check_id, suite, requirement, function))
        return function

    return declare


def expect(what: str, seen: Any, wanted: Any) -> None:
    """Fail unless *seen* equals *wanted*."""
    if seen != wanted or type(seen) is not type(wanted):
        raise CheckFailed(f"{what}: expected {wanted!r:.300}, saw {seen!r:.300}")


def expect_that(is_so: bool, what: str, seen: Any = "") -> None:
    """Fail unless *is_so*; *what* says what was expected."""
    if not is_so:
        raise CheckFailed(f"expected {what}" + (f", saw {seen!r:.300}" if seen != "" else ""))


async def run_checks(
    checks: Iterable[ConformanceCheck],
    target: ServerUnderTest,
    *,
    on_result: Callable[[CheckResult], None],
) -> None:
    """Run one check after the other, each with connections of its own."""
    for each in checks:
        began = time.monotonic()
        kit = Kit(target)
        verdict, seen = await _judged(each, kit)
        if verdict == "failed" and target.is_old and kit.lacks_a_method:
            verdict = "skipped"
        on_result(CheckResult(each, verdict, seen, time.monotonic() - began))


async def _judged(each: ConformanceCheck, kit: Kit) -> tuple[Verdict, str]:
    try:
        async with asyncio.timeout(6 * kit.patience), kit:
            await each.try_it(kit)
    except CheckSkipped as exc:
        return "skipped", str(exc)
    except CheckFailed as exc:
        return "failed", str(exc)
    except ConnectionEnded as exc:
        return "failed", f"the connection ended: {exc}"
    except TimeoutError:
        return "failed", f"nothing came within {kit.patience:g} seconds"
    except WRONG_SHAPE as exc:
        return "failed", f"a message of another shape: {type(exc).__name__}: {exc}"
    except OSError as exc:
        return "failed", f"no connection: {exc}"
    return "passed", ""


async def version_of(target: ServerUnderTest) -> str:
    """The version that the server tells, "" if it tells none.

    Raises ServerUnreachable if it does not answer.
    """
    try:
        async with Kit(target) as kit:
            wire = await kit.ready()
            answer = await wire.answer(await wire.request("environment/info"))
    except TimeoutError:
        raise ServerUnreachable(f"nothing came within {target.patience:g} seconds") from None
    except (OSError, ConnectionEnded, *WRONG_SHAPE) as exc:
        raise ServerUnreachable(str(exc) or type(exc).__name__) from exc
    facts = answer.get("result")
    told = facts.get("executorVersion") if isinstance(facts, dict) else None
    return str(told or (FIRST if target.is_old else ""))


def judged_by_version(result: CheckResult, version: str) -> CheckResult:
    """The result, as a deviation if this version is known to differ."""
    reason = deviation(result.check.id, version)
    if result.verdict != "failed" or reason is None:
        return result
    return result._replace(verdict="deviation", seen=f"{result.seen} ({reason})")
