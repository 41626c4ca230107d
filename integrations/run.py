"""Run the suites of other projects on our plugs, and write docs/integrations/README.md's table.

`make integrations` runs all of them, `make integrations-NAME` one. Each has an environment of its
own below build/integrations, made from its lock file; the suites of mcp and ssh use the one for
development. The last results are kept in integrations/results.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
HERE = ROOT / "integrations"
RESULTS = HERE / "results.json"
PAGE = ROOT / "docs" / "integrations" / "README.md"
BEGIN, END = "<!-- results: begin -->\n", "<!-- results: end -->\n"


class Suite(NamedTuple):
    """A suite, and what counts as passed."""

    name: str
    title: str
    # The distribution whose version the table shows, and the tests, relative to the repository.
    package: str
    tests: tuple[str, ...]
    # Tests that fail for every backend, and how many may be skipped.
    known: frozenset[str] = frozenset()
    skipped: int = 0
    options: tuple[str, ...] = ()
    # False: the environment for development.
    is_apart: bool = True


def _contract(name: str, package: str, what: str) -> Suite:
    """Checks of ours, for a framework that ships no suite."""
    return Suite(
        name,
        f"our checks of the documented contract: {what}",
        package,
        (f"integrations/test_{name}_suite.py",),
        options=("-o", "asyncio_mode=auto"),
    )


SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            "mcp",
            "MCP conformance 0.2.0-alpha.12 (30 + 37 scenarios, with fixtures), MCP Inspector "
            "2.12.0 (6); our tests with the client of the MCP SDK, `codex mcp add`",
            "mcp",
            ("tests/integrations/test_mcp.py", "integrations/test_mcp_suite.py"),
            is_apart=False,
        ),
        Suite(
            "ssh",
            "git, rsync, sftp and execnet through `exec-server ssh`",
            "execnet",
            ("tests/integrations/test_ssh.py",),
            is_apart=False,
        ),
        Suite(
            "openrpc",
            "@open-rpc/test-coverage 2.2.4 with generated parameters on a live server (61 methods)",
            "exec-server",
            ("integrations/test_openrpc_suite.py",),
            is_apart=False,
        ),
        Suite(
            "execnet",
            "tests of execnet with ssh gateways through `exec-server ssh` (107 of 108; the last "
            "fails with OpenSSH, too), and 100 rounds of git clone, git push and rsync",
            "execnet",
            ("integrations/test_execnet_suite.py",),
        ),
        Suite(
            "fsspec",
            "`fsspec.tests.abstract`: copy, get, put, open, pipe (137)",
            "fsspec",
            ("integrations/test_fsspec_suite.py",),
        ),
        Suite(
            "inspect",
            "`self_check` of Inspect (44), each check as root or without its rights; remote "
            "processes and tools in an eval (17 checks of ours)",
            "inspect-ai",
            ("integrations/test_inspect_suite.py", "integrations/test_inspect_tools_suite.py"),
        ),
        Suite(
            "deepagents",
            "`SandboxIntegrationTests` of langchain-tests (86)",
            "deepagents",
            ("integrations/test_deepagents_suite.py",),
            # The suite is older than deepagents 0.7: these fail with every backend.
            known=frozenset(
                "test_glob test_glob_basic_pattern test_glob_with_directories "
                "test_glob_hidden_files_explicitly test_glob_with_character_class "
                "test_glob_with_question_mark test_write_existing_file_fails".split()
            ),
            options=("-o", "asyncio_mode=auto"),
        ),
        Suite(
            "deepagents_0_6",
            "the same with the release that the suite was written for",
            "deepagents",
            ("integrations/test_deepagents_suite.py",),
            options=("-o", "asyncio_mode=auto"),
        ),
        Suite(
            "deepagents_code",
            "our checks of the provider for Deep Agents Code: found by its name, used, connected",
            "deepagents-code",
            ("integrations/test_deepagents_code_suite.py",),
        ),
        Suite(
            "pydantic_ai",
            "`pydantic_ai.workspaces.conformance` (38)",
            "pydantic-ai-slim",
            ("integrations/test_pydantic_ai_suite.py",),
            # Root bypasses the permissions of files.
            skipped=1,
        ),
        Suite(
            "harbor",
            "`harbor run` with the agents oracle and nop on three tasks (6 trials)",
            "harbor",
            ("integrations/test_harbor_suite.py",),
        ),
        Suite(
            "ansible",
            "our playbook after Ansible's target `connection` (2 x 17 tasks), become, unreachable",
            "ansible-core",
            ("integrations/test_ansible_suite.py",),
        ),
        Suite(
            "openai_agents",
            "tests of the SDK for its sandboxes: lifecycle, terminals, paths, patches, resume "
            "(those that are not about this machine); `ShellTool` and `ApplyPatchTool`",
            "openai-agents",
            (
                "integrations/test_openai_agents_suite.py",
                "integrations/test_openai_agents_sandbox_suite.py",
            ),
            options=("-o", "asyncio_mode=auto"),
        ),
        _contract("google_adk", "google-adk", "environments, and the toolset of ADK"),
        _contract("mini_swe_agent", "mini-swe-agent", "environments"),
        _contract("ag2", "ag2", "sandboxes and their factories"),
        _contract("smolagents", "smolagents", "remote Python executors"),
    )
}


def environment(suite: Suite) -> Path:
    """The interpreter of the suite's environment, which is made if it is not there."""
    if not suite.is_apart:
        return ROOT / ".venv" / "bin" / "python"
    lock = HERE / "locks" / f"{suite.name}.lock"
    folder = ROOT / "build" / "integrations" / suite.name
    stamp, python = folder / ".stamp", folder / "bin" / "python"
    if stamp.exists() and stamp.read_text() == lock.read_text():
        return python
    version = lock.with_suffix(".in").read_text().split()[2]
    found = subprocess.check_output([ROOT / "scripts" / "python_of.sh", version], text=True)
    subprocess.run([found.strip(), "-m", "venv", folder], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # A lock has everything; some of it would not be resolved together.
    subprocess.run([*pip, "--no-deps", "-r", lock], check=True)
    subprocess.run([*pip, "--no-build-isolation", "--no-deps", "--editable", ROOT], check=True)
    stamp.write_text(lock.read_text())
    return python


def run(suite: Suite) -> dict[str, object]:
    """Run a suite; the facts for the table."""
    python = environment(suite)
    report = ROOT / "build" / f"{suite.name}.xml"
    report.parent.mkdir(exist_ok=True)
    settings = ["-c", str(HERE / "pytest.ini"), *suite.options] if suite.is_apart else []
    # The older family of reports has properties of tests.
    written = [f"--junitxml={report}", "-o", "junit_family=xunit1"]
    words = [*suite.tests, "-q", "-rs", *written, *settings]
    subprocess.run([python, "-m", "pytest", *words], cwd=ROOT, check=False)
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [_name(case) for case in cases if _has(case, "failure", "error")]
    skipped = sum(_has(case, "skipped") for case in cases)
    unexpected = sorted(name for name in failed if name not in suite.known)
    program = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
    version = subprocess.check_output([python, "-c", program, suite.package], text=True)
    return {
        "package": f"{suite.package} {version.strip()}",
        "passed": len(cases) - len(failed) - skipped + sum(map(_elsewhere, cases)),
        "failedForAll": len(failed) - len(unexpected),
        "skipped": skipped,
        "failed": unexpected,
        "isPassed": bool(cases) and not unexpected and skipped <= suite.skipped,
    }


def _name(case: ElementTree.Element) -> str:
    return str(case.get("name")).partition("[")[0]


def _elsewhere(case: ElementTree.Element) -> int:
    """How many tests a suite has run that is a process of its own."""
    facts = {each.get("name"): each.get("value") for each in case.iter("property")}
    return int(facts.get("passed elsewhere") or 0)


def _has(case: ElementTree.Element, *tags: str) -> bool:
    return any(case.find(tag) is not None for tag in tags)


def table(results: dict[str, dict[str, object]]) -> str:
    """The results as a table of Markdown."""
    lines = ["| plug | with | suite | passed | skipped | result |", "|---|---|---|---|---|---|"]
    for name, suite in SUITES.items():
        found = results.get(name)
        if found is None:
            lines.append(f"| {name} | {suite.package} | {suite.title} | | | was not run |")
            continue
        verdict = "passed" if found["isPassed"] else f"failed: {', '.join(_texts(found))}"
        if found["failedForAll"]:
            verdict += f"; {found['failedForAll']} fail with every backend"
        facts = (name, found["package"], suite.title, found["passed"], found["skipped"], verdict)
        lines.append(f"| {' | '.join(map(str, facts))} |")
    return "\n".join(lines) + "\n"


def _texts(found: dict[str, object]) -> list[str]:
    failed = found["failed"]
    return list(map(str, failed)) if isinstance(failed, list) and failed else ["skipped tests"]


def page_with(page: str, results: dict[str, dict[str, object]]) -> str:
    """The page with a new table."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{table(results)}\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help=f"of: {' '.join(SUITES)}; without: all")
    names = parser.parse_args().names or list(SUITES)
    if unknown := [name for name in names if name not in SUITES]:
        parser.error(f"there is no suite {', '.join(unknown)}; there are: {', '.join(SUITES)}")
    for name in names:
        found = run(SUITES[name])
        # Another run may have written meanwhile.
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results[name] = found
        RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
        PAGE.write_text(page_with(PAGE.read_text(), results))
    print(table({name: results[name] for name in names}))
    return 0 if all(results[name]["isPassed"] for name in names) else 1


if __name__ == "__main__":
    sys.exit(main())
