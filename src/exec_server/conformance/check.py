"""How a check is declared, run and judged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any, Literal, NamedTuple

from exec_server.conformance.deviations import deviation
from exec_server.conformance.kit_wire import ConnectionEnded, KitWire, open_wire

Suite = Literal["core", "files", "http", "sandbox", "extensions"]
Verdict = Literal["passed", "failed", "deviation", "skipped"]


class CheckFailed(Exception):
    """The server did something else than the requirement says."""


class CheckSkipped(Exception):
    """The server or its machine cannot show this."""


class Kit:
    """What a check works with: connections to the server under test, closed at its end."""

    def __init__(self, target: str, *, headers: dict[str, str], patience: float) -> None:
        self.target = target
        self.patience = patience
        self._headers = headers
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Kit:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def connect(self) -> KitWire:
        """A new connection, before its handshake."""
        opened = open_wire(self.target, headers=self._headers, patience=self.patience)
        return await self._stack.enter_async_context(opened)

    async def ready(self, **params: Any) -> KitWire:
        """A new connection whose handshake is complete."""
        wire = await self.connect()
        await wire.handshake(**params)
        return wire

    @property
    def is_stdio(self) -> bool:
        return self.target.startswith("stdio:")


class Check(NamedTuple):
    """One requirement, and the function that tries it."""

    id: str
    suite: Suite
    requirement: str
    try_it: Callable[[Kit], Awaitable[None]]


class CheckResult(NamedTuple):
    """What one check has shown."""

    check: Check
    verdict: Verdict
    # What was seen, if the check did not pass.
    seen: str
    seconds: float


CHECKS: list[Check] = []


def check(
    check_id: str, requirement: str, *, suite: Suite = "core"
) -> Callable[[Callable[[Kit], Awaitable[None]]], Callable[[Kit], Awaitable[None]]]:
    """Declare a check: its id, and the requirement in one sentence."""

    def declare(function: Callable[[Kit], Awaitable[None]]) -> Callable[[Kit], Awaitable[None]]:
        assert all(check_id != known.id for known in CHECKS), f"two checks are called {check_id}"
        CHECKS.append(Check(check_id, suite, requirement, function))
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
    checks: Iterable[Check],
    target: str,
    *,
    headers: dict[str, str],
    patience: float,
    on_result: Callable[[CheckResult], None],
) -> None:
    """Run one check after the other, each with connections of its own."""
    for each in checks:
        began = time.monotonic()
        verdict, seen = await _judged(each, target, headers, patience)
        on_result(CheckResult(each, verdict, seen, time.monotonic() - began))


async def _judged(
    each: Check, target: str, headers: dict[str, str], patience: float
) -> tuple[Verdict, str]:
    try:
        async with asyncio.timeout(6 * patience):
            async with Kit(target, headers=headers, patience=patience) as kit:
                await each.try_it(kit)
    except CheckSkipped as exc:
        return "skipped", str(exc)
    except CheckFailed as exc:
        return "failed", str(exc)
    except ConnectionEnded as exc:
        return "failed", f"the connection ended: {exc}"
    except TimeoutError:
        return "failed", f"nothing came within {patience:g} seconds"
    except (KeyError, TypeError, ValueError) as exc:
        return "failed", f"a message of another shape: {type(exc).__name__}: {exc}"
    except OSError as exc:
        return "failed", f"no connection: {exc}"
    return "passed", ""


async def version_of(target: str, *, headers: dict[str, str], patience: float) -> str | None:
    """The version that the server tells, "" if it tells none; None if it does not answer."""
    try:
        async with Kit(target, headers=headers, patience=patience) as kit:
            wire = await kit.ready()
            answer = await wire.answer(await wire.request("environment/info"))
    except (OSError, TimeoutError, ConnectionEnded, ValueError):
        return None
    return str((answer.get("result") or {}).get("executorVersion") or "")


def judged_by_version(result: CheckResult, version: str) -> CheckResult:
    """The result, as a deviation if this version is known to differ."""
    reason = deviation(result.check.id, version)
    if result.verdict != "failed" or reason is None:
        return result
    return result._replace(verdict="deviation", seen=f"{result.seen} ({reason})")
