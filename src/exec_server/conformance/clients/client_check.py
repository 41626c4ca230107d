"""How a check of a client is declared and run, and how a client is started."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from exec_server.conformance.check import (
    WRONG_SHAPE,
    CheckFailed,
    CheckResult,
    ConformanceCheck,
    Verdict,
    expect,
    expect_that,
    judged_by_version,
)
from exec_server.conformance.clients.scripted_server import ClientMistake, ScriptedServer

URL_MARK = "{url}"
URL_VARIABLE = "CONFORMANCE_URL"
_LARGEST_OUTPUT = 16 * 1024 * 1024


class ClientEnd(NamedTuple):
    """How a client has ended."""

    status: int
    output: bytes
    # What it wrote to standard error, for the report.
    complaint: str = ""


RunClient = Callable[[str], Awaitable[ClientEnd]]


def client_command(command: str) -> RunClient:
    """A client that is a command: `{url}` in it is replaced, and it is run for each check."""
    words = shlex.split(command)

    async def run(url: str) -> ClientEnd:
        process = await asyncio.create_subprocess_exec(
            *(word.replace(URL_MARK, url) for word in words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, URL_VARIABLE: url},
            start_new_session=True,
        )
        try:
            output, complaint = await process.communicate()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        status = process.returncode if process.returncode is not None else -1
        return ClientEnd(status, output[:_LARGEST_OUTPUT], complaint.decode(errors="replace"))

    return run


class ClientScript:
    """What a check works with: the scripted server, and the client that was started for it."""

    def __init__(self, run: RunClient, patience: float) -> None:
        self.patience = patience
        self.server = ScriptedServer(patience)
        self._run = run
        self._client: asyncio.Task[ClientEnd] | None = None

    async def __aenter__(self) -> ClientScript:
        await self.server.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.cancel()
            await asyncio.wait({self._client})
        await self.server.__aexit__()

    def begin(self) -> ScriptedServer:
        """Start the client. A check calls this first."""

        async def run() -> ClientEnd:
            return await self._run(self.server.url)

        self._client = asyncio.ensure_future(run())
        self._client.add_done_callback(self._ended)
        self.server.has_ended = self._client.done
        return self.server

    def _ended(self, client: asyncio.Task[ClientEnd]) -> None:
        if not client.cancelled() and client.exception() is not None:
            self.server.mistakes.append(f"the client was not started: {client.exception()}")
        self.server.changed()

    async def end(self) -> ClientEnd:
        """Wait until the client ends."""
        assert self._client is not None, "the client was not started"
        async with asyncio.timeout(self.patience):
            await asyncio.wait({self._client})
        if self.server.mistakes:
            raise ClientMistake(self.server.mistakes[0])
        return self._client.result()

    async def wants(self, lines: list[str], status: int) -> None:
        """Fail unless the client has printed each line once, in order, and ends with *status*."""
        end = await self.end()
        self._wants_lines(end, lines)
        expect("the exit status", end.status, status)

    async def wants_failure(self) -> ClientEnd:
        """Fail unless the client ends with another status than 0."""
        end = await self.end()
        expect_that(end.status != 0, "a failure, not the status 0", end.output[-200:])
        return end

    def _wants_lines(self, end: ClientEnd, lines: list[str]) -> None:
        seen = [line.strip().decode(errors="replace") for line in end.output.splitlines()]
        mine = [line for line in seen if line in set(lines)]
        if mine != lines:
            complaint = end.complaint.strip()[-200:]
            raise CheckFailed(
                f"the output: expected {lines!r:.200}, saw {mine!r:.200}"
                + (f"; standard error: {complaint!r}" if complaint else "")
            )


CLIENT_CHECKS: list[ConformanceCheck] = []

Try = Callable[[ClientScript], Awaitable[None]]


def client_check(check_id: str, requirement: str) -> Callable[[Try], Try]:
    """Declare a check of clients: its id, and the requirement in one sentence."""

    def declare(function: Try) -> Try:
        CLIENT_CHECKS.append(ConformanceCheck(check_id, "client", requirement, function))
        return function

    return declare


async def run_client_checks(
    checks: Iterable[ConformanceCheck],
    run: RunClient,
    *,
    patience: float,
    on_result: Callable[[CheckResult], None],
) -> str:
    """Run one check after the other; each starts the client anew. Returns the client's name."""
    name = ""
    for each in checks:
        began = time.monotonic()
        script = ClientScript(run, patience)
        verdict, seen = await _judged(each, script)
        for told in script.server.sent("initialize"):
            name = name or str(told.get("clientName") or "")
        result = CheckResult(each, verdict, seen, time.monotonic() - began)
        on_result(judged_by_version(result, name))
    return name


async def _judged(each: ConformanceCheck, script: ClientScript) -> tuple[Verdict, str]:
    try:
        async with asyncio.timeout(6 * script.patience), script:
            await each.try_it(script)
    except (CheckFailed, ClientMistake) as exc:
        return "failed", str(exc)
    except TimeoutError:
        return "failed", f"the client did not do it within {script.patience:g} seconds"
    except WRONG_SHAPE as exc:
        return "failed", f"a message of another shape: {type(exc).__name__}: {exc}"
    except OSError as exc:
        return "failed", f"the client was not started: {exc}"
    return "passed", ""
