"""The conformance kit: it accepts servers that are right, and finds each planted fault."""

from __future__ import annotations

import json
import subprocess
from xml.etree import ElementTree

import pytest

import tests.conformance.faults  # noqa: F401 (declares the faults)
from exec_server.conformance.all_checks import CHECKS, CLIENT_CHECKS
from exec_server.conformance.check import (
    CheckResult,
    ServerUnderTest,
    judged_by_version,
    run_checks,
)
from exec_server.conformance.deviations import DEVIATIONS
from tests.conformance.planted import FAULTS, planted
from tests.requirements import requirement
from tests.support.servers import OURS, start_server

pytestmark = pytest.mark.one_loop
BY_ID = {each.id: each for each in CHECKS}


@pytest.fixture(scope="module")
def ours():
    with start_server() as running:
        yield running.url


async def verdicts(url: str, *ids: str, patience: float = 60.0) -> list[CheckResult]:
    found: list[CheckResult] = []
    # The suite `remote` needs a registry: test_remote.py.
    usual = [each for each in CHECKS if each.suite != "remote"]
    chosen = [BY_ID[each] for each in ids] if ids else usual
    await run_checks(chosen, ServerUnderTest(url, {}, patience), on_result=found.append)
    return found


def wrong(results: list[CheckResult]) -> list[str]:
    return [f"{r.check.id}: {r.seen}" for r in results if r.verdict == "failed"]


@requirement("kit:ours")
async def test_our_server_passes(ours):
    results = await verdicts(ours)
    assert wrong(results) == []
    passed = {r.check.id for r in results if r.verdict == "passed"}
    assert {each.id for each in CHECKS if each.suite not in ("sandbox", "remote")} <= passed


@requirement("kit:reference")
async def test_the_reference_passes_or_differs_where_it_is_said(reference):
    results = [judged_by_version(r, "0.166.0") for r in await verdicts(reference.url)]
    assert wrong(results) == []


@requirement("kit:faults")
async def test_a_proxy_without_a_fault_changes_nothing(ours):
    ids = sorted({found_by for _, found_by in FAULTS.values()})
    async with planted(ours, None) as url:
        assert wrong(await verdicts(url, *ids)) == []


@requirement("kit:faults")
@pytest.mark.parametrize("name", FAULTS)
async def test_a_planted_fault_is_found(ours, name):
    plant, found_by = FAULTS[name]
    async with planted(ours, plant) as url:
        (result,) = await verdicts(url, found_by, patience=1.5)
    assert result.verdict == "failed"
    assert result.seen


@requirement("kit:faults")
def test_there_are_many_faults():
    assert len(FAULTS) >= 40


@requirement("kit:deviations")
def test_a_deviation_names_a_check_and_a_reason():
    assert DEVIATIONS.keys() <= BY_ID.keys() | {each.id for each in CLIENT_CHECKS}
    assert all(versions and reason for versions, reason in DEVIATIONS.values())


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [*OURS, "conformance", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@requirement("kit:command")
def test_the_command_has_several_formats(ours):
    chosen = ("--check", "start.answer", "--check", "exit.code")
    text = _run(ours, *chosen)
    assert text.returncode == 0, text.stderr
    assert "2 passed" in text.stdout
    told = json.loads(_run(ours, *chosen, "-o", "json").stdout)
    assert [each["verdict"] for each in told["checks"]] == ["passed", "passed"]
    suite = ElementTree.fromstring(_run(ours, *chosen, "-o", "junit").stdout)
    assert (suite.get("tests"), suite.get("failures")) == ("2", "0")
    assert "<td>start.answer</td>" in _run(ours, *chosen, "-o", "html").stdout


@requirement("kit:command")
def test_wrong_words_and_missing_servers_are_told():
    assert _run("ws://127.0.0.1:9", "--check", "no.such").returncode == 2
    assert _run("http://127.0.0.1:9").returncode == 2
    gone = _run("ws://127.0.0.1:9", "--timeout", "5")
    assert gone.returncode == 1
    assert "does not answer" in gone.stderr
    listed = _run("--list")
    assert listed.returncode == 0
    assert "start.answer" in listed.stdout
    facts = json.loads(_run("--list", "-o", "json", "--check", "start.answer").stdout)
    assert [(each["id"], each["suite"]) for each in facts] == [("start.answer", "core")]


@requirement("kit:stdio")
async def test_a_server_on_stdio_is_checked():
    target = f"stdio:{' '.join(OURS)} --listen stdio"
    assert wrong(await verdicts(target, "start.answer", "output.streams", "session.resume")) == []
