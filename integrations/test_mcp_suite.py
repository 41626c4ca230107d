"""The MCP conformance suite and the MCP Inspector, on the server of `exec-server mcp`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integrations.node_packages import ROOT, installed, node_of

FOLDER = ROOT / "build" / "integrations" / "mcp_node"
ERAS = {"2025-11-25": ("legacy", 30), "2026-07-28": ("modern", 37)}
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def node() -> str:
    """Node, beside the suite and the Inspector."""
    return str(node_of(installed("mcp_node")))


@pytest.fixture(scope="module")
def fixtures_url(server_url: str) -> Iterator[str]:
    """The URL of our MCP server with the fixtures of the suite."""
    words = [sys.executable, str(ROOT / "integrations" / "mcp_fixtures.py"), server_url]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip()
        process.terminate()


def scenarios(node: str, url: str, version: str, folder: Path) -> dict[str, bool]:
    """Whether the server passes each scenario that *version* requires."""
    program = FOLDER / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    words = [node, str(program), "server", "--url", url, "--requirements", version]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    summary = done.stdout.partition("=== SUMMARY ===")[2]
    ran, _, rest = summary.partition("Not scored for")
    unscored = set(re.findall(r"[✓✗] (\S+)", rest))
    found = re.findall(r"^([✓✗]) (\S+): ", ran, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return {name: mark == "✓" for mark, name in found if name not in unscored}


@pytest.mark.parametrize("version", ERAS)
def test_required_scenarios(node, fixtures_url, tmp_path, record_property, version):
    found = scenarios(node, fixtures_url, version, tmp_path)
    assert not [name for name, is_passed in found.items() if not is_passed]
    assert len(found) == ERAS[version][1]
    record_property("passed elsewhere", len(found))


def test_without_fixtures_only_the_scenarios_that_need_them_fail(node, server_url, tmp_path):
    words = [sys.executable, "-m", "exec_server", "mcp", "--http", "127.0.0.1:0", server_url]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        found = scenarios(node, url, "2026-07-28", tmp_path)
        process.terminate()
    failed = {name for name, is_passed in found.items() if not is_passed}
    needing = ("tools-call-", "resources-read", "resources-templates", "prompts-get", "input-req")
    others = {name for name in failed if not name.startswith(needing)}
    # The first needs a tool that asks for a capability, the second the capability itself.
    assert others <= {"server-stateless", "completion-complete"}


def inspect(node: str, era: str, folder: Path, url: str, *words: str) -> str:
    """What the Inspector prints about `exec-server mcp` on standard input and output."""
    program = FOLDER / "node_modules/@modelcontextprotocol/inspector/package.json"
    facts = json.loads(program.read_text())
    script = program.parent / facts["bin"]["mcp-inspector"]
    target = [sys.executable, "-m", "exec_server", "mcp", "--cwd", str(folder), url]
    options = ["--cli", "--protocol-era", era, "--connect-timeout", "60000", *words]
    done = subprocess.run(
        [node, str(script), *options, "--", *target],
        env={**os.environ, "XDG_STATE_HOME": str(folder), "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_finds_no_fault_in_the_tools(node, server_url, tmp_path, era):
    listed = inspect(node, era, tmp_path, server_url, "--method", "tools/list", "--strict")
    assert '"run"' in listed


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_calls_a_tool(node, server_url, tmp_path, era):
    words = ["--method", "tools/call", "--tool-name", "run"]
    arguments = ["--tool-args-json", json.dumps({"command": "echo from $PWD"})]
    assert f"from {tmp_path}" in inspect(node, era, tmp_path, server_url, *words, *arguments)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_calls_a_tool_many_times(node, server_url, tmp_path, era):
    words = ["--method", "tools/call", "--tool-name", "run", "--load", "--load-requests", "50"]
    arguments = ["--tool-args-json", json.dumps({"argv": ["true"]})]
    assert inspect(node, era, tmp_path, server_url, *words, *arguments)
