"""Checks of clients: they accept clients that are right, and find each mistake of a wrong one."""

from __future__ import annotations

import asyncio
import json

import pytest

import exec_server
import exec_server.sync
from exec_server.conformance.all_checks import CLIENT_CHECKS
from exec_server.conformance.check import CheckResult
from exec_server.conformance.clients.client_check import (
    ClientEnd,
    RunClient,
    client_command,
    run_client_checks,
)
from exec_server.errors import ExecServerError
from tests.conformance.naive_client import MISTAKES, NaiveClient
from tests.conformance.test_kit import _run, wrong
from tests.requirements import requirement
from tests.support.servers import OURS

pytestmark = pytest.mark.one_loop
BY_ID = {each.id: each for each in CLIENT_CHECKS}
# A client waits ten seconds for a server that says nothing.
USUAL = [each.id for each in CLIENT_CHECKS if each.id != "client.initialize-timeout"]


async def results(run: RunClient, *ids: str, patience: float = 60.0) -> list[CheckResult]:
    found: list[CheckResult] = []
    chosen = [BY_ID[each] for each in ids or USUAL]
    await run_client_checks(chosen, run, patience=patience, on_result=found.append)
    return found


def naive(mistake: str = "") -> RunClient:
    return lambda url: NaiveClient(url, mistake).run()


async def ours(url: str) -> ClientEnd:
    """Our client, without its command line."""
    output = b""
    try:
        async with exec_server.connect(url) as client:
            process = await client.start(["true"])
            async for chunk in process:
                output += chunk.data
            return ClientEnd(await process.wait(), output)
    except (ExecServerError, OSError) as exc:
        return ClientEnd(1, output, str(exc))


def ours_without_a_loop(url: str) -> ClientEnd:
    output = b""
    try:
        with exec_server.sync.connect(url) as client:
            process = client.start(["true"])
            for chunk in process:
                output += chunk.data
            return ClientEnd(process.wait(), output)
    except (ExecServerError, OSError) as exc:
        return ClientEnd(1, output, str(exc))


@requirement("kit:clients")
async def test_our_client_passes():
    assert wrong(await results(ours)) == []


@requirement("kit:clients")
async def test_our_client_without_a_loop_passes():
    async def run(url: str) -> ClientEnd:
        return await asyncio.to_thread(ours_without_a_loop, url)

    ids = ("client.command", "client.resume", "client.gap", "client.session-swapped")
    assert wrong(await results(run, *ids)) == []


@requirement("kit:clients")
async def test_our_command_passes():
    run = client_command(" ".join([*OURS, "run", "{url}", "--", "true"]))
    ids = ("client.command", "client.resume", "client.output-gone")
    assert wrong(await results(run, *ids)) == []


@requirement("kit:clients")
async def test_a_client_that_is_not_ours_passes():
    assert wrong(await results(naive())) == []


@requirement("kit:client-faults")
@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_mistake_of_a_client_is_found(mistake):
    (result,) = await results(naive(mistake), MISTAKES[mistake], patience=2.0)
    assert result.verdict == "failed"
    assert result.seen


@requirement("kit:client-faults")
async def test_a_client_that_does_nothing_is_found_and_ended():
    found = await results(client_command("sleep 600"), "client.command", patience=1.0)
    assert [each.verdict for each in found] == ["failed"]
    found = await results(client_command("true"), "client.command")
    assert "the client ended" in found[0].seen
    found = await results(client_command("no-such-client {url}"), "client.command")
    assert "not started" in found[0].seen


@requirement("kit:clients")
def test_the_command_checks_clients():
    client = " ".join([*OURS, "run", "{url}", "--", "true"])
    done = _run("--client", client, "--check", "client.repeated-events", "-o", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [each["verdict"] for each in told["checks"]] == ["passed"]
    wrong_words = _run("--client", client, "ws://127.0.0.1:9")
    assert wrong_words.returncode == 2
    assert "cannot be used with a URL" in wrong_words.stderr
    assert "needs a command" in _run("--client", "").stderr
    assert "required: URL, or --client" in _run().stderr
