"""What all plugs have in common; the suites of their frameworks run with `make integrations`."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from types import ModuleType

import pytest

from tests.requirements import requirement
from tests.support.source_tree import REPOSITORY, ROOT

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
# Modules that plugs share, and those that belong to another plug.
PARTS = {"__init__", "boxes", "workplaces"} | {
    f"openai_agents_{part}" for part in ("sandbox", "session", "terminals")
}
PLUGS = sorted(path for path in (ROOT / "integrations").glob("*.py") if path.stem not in PARTS)


@pytest.fixture(scope="module")
def suites() -> ModuleType:
    """integrations/run.py, which is a program."""
    spec = importlib.util.spec_from_file_location("suites", REPOSITORY / "integrations/run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@requirement("integrations:entry-points")
def test_every_entry_point_names_what_there_is():
    for group in PROJECT["entry-points"].values():
        for target in group.values():
            module, _, name = target.partition(":")
            path = ROOT / f"{module.removeprefix('exec_server.').replace('.', '/')}.py"
            tree = ast.parse(path.read_text())
            classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
            assert not name or name in classes


@requirement("integrations:extras")
@pytest.mark.parametrize("path", PLUGS, ids=lambda path: path.stem)
def test_every_plug_has_an_extra_a_page_a_lock_and_a_suite(path, suites):
    assert path.stem.replace("_", "-") in PROJECT["optional-dependencies"]
    assert (REPOSITORY / "docs/integrations" / f"{path.stem}.md").is_file()
    assert (REPOSITORY / "integrations/locks" / f"{path.stem}.lock").is_file()
    assert path.stem in suites.SUITES
    written = [line for line in path.read_text().splitlines() if line.strip()]
    assert len(written) <= 230, "a plug is small"


@requirement("integrations:table")
def test_the_table_on_the_page_is_that_of_the_results(suites):
    results = json.loads(suites.RESULTS.read_text())
    page = suites.PAGE.read_text()
    assert suites.page_with(page, results) == page, "run `make integrations`"


def test_locks_name_exact_versions_and_no_places():
    for lock in (REPOSITORY / "integrations/locks").glob("*.lock"):
        lines = lock.read_text().splitlines()[1:]
        assert lines and all(re.fullmatch(r"[\w.-]+==[\w.+!]+", line) for line in lines)


@requirement("integrations:extras")
def test_nothing_is_loaded_before_it_is_used():
    program = (
        "import sys, exec_server, exec_server.integrations, exec_server.cli.main; "
        "print([name for name in sys.modules if name.startswith(('mcp', 'fsspec', 'pydantic'))])"
    )
    assert subprocess.check_output([sys.executable, "-c", program]) == b"[]\n"
