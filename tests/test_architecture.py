"""docs/architecture.md says what the code says."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.requirements import requirement
from tests.support.architecture import PAGE, rewritten, unknown_hops
from tests.support.source_tree import REPOSITORY, ROOT


@requirement("house/map:generated")
def test_the_tree_and_the_permissions_on_the_page_are_those_of_the_code():
    page = PAGE.read_text(encoding="utf-8")
    assert rewritten(page) == page, "run `make map`"


@requirement("house/map:flows")
def test_the_flows_name_what_there_is():
    unknown = list(unknown_hops(PAGE.read_text(encoding="utf-8")))
    assert not unknown, "flows of docs/architecture.md:\n  " + "\n  ".join(unknown)


def test_nothing_idle_is_at_the_root_of_the_repository():
    if not (REPOSITORY / ".git").exists() or shutil.which("git") is None:
        pytest.skip("it needs a checkout and git")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True, timeout=30
    )
    tracked = {name for name in listed.stdout.decode().split("\0") if name and "/" not in name}
    known = {"LICENSE", "Makefile", "pyproject.toml"}
    idle = {
        name
        for name in tracked - known
        if not name.startswith(".") and not name.endswith((".md", ".lock"))
    }
    assert not idle


def test_tests_leave_the_folders_above_their_own_alone():
    """The tests of other processes share them, and may watch them; `open_folder` is for this."""
    changed = [
        str(path.relative_to(REPOSITORY))
        for path in sorted(REPOSITORY.glob("tests/**/*.py"))
        if re.search(r"\btmp_path\.parent", path.read_text(encoding="utf-8"))
    ]
    assert not changed


@requirement("house/map:files")
def test_documents_name_files_that_exist():
    documents = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")]
    missing = [
        f"{document.relative_to(REPOSITORY)}: {file}"
        for document in sorted(documents)
        for file in re.findall(r"`([\w./]*/\w+\.py)`", document.read_text(encoding="utf-8"))
        if not any((folder / file).is_file() for folder in (REPOSITORY, ROOT))
    ]
    assert not missing, "files that do not exist:\n  " + "\n  ".join(missing)


def test_a_hop_that_does_not_exist_is_found():
    page = """
## Five flows
    rpc/peer.py  Peer.message_received   is there
    rpc/peer.py  Peer.nothing            is not
    rpc/none.py  nothing                 is not
    """
    assert list(unknown_hops(page)) == [
        "rpc/peer.py has no Peer.nothing",
        "rpc/none.py does not exist",
    ]
