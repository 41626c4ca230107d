"""What a sandboxed command may do where: the same in the reference and here.

Under each policy every kind of access is tried in every place. Both must let through the same and
refuse the same with the same error, but for `_is_stricter_base`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exec_server.sandbox.backends import HERE
from tests.children import touches_paths
from tests.requirements import requirement
from tests.sandbox.policies import at, glob, managed, special
from tests.support.servers import ServerProcess, reference_binary, start_reference
from tests.support.wire import ENV, Wire

PYTHON = "/usr/bin/python3"

pytestmark = [
    pytest.mark.one_loop,
    pytest.mark.skipif(not HERE.bubblewrap_report.works, reason="bubblewrap does not work here"),
    # It must be among what every policy shows.
    pytest.mark.skipif(not os.path.exists(PYTHON), reason=f"there is no {PYTHON}"),
]

# Below the base: what is there, and what the policies make of it.
PLACES = (
    "ws",
    "ws/sub",
    "ws/sub/.git",
    "ws/.git",
    "ws/.git/hooks",
    "ws/.codex",
    "ws/fixed",
    "ws/fixed/again",
    "ws/closed",
    "ws/closed/open",
    "ws/closed/shown",
    "extra",
    "extra/.agents",
    "outside",
    "outside/deep",
    "tmp",
)
# Not there before; tried all the same.
MISSING = ("ws/.agents", "ws/.aws", "ws/missing", "outside/missing", "missing")
# Other names for the same.
LINKS = {"ws/link-out": "../outside", "ws/link-in": "sub", "to-ws": "ws"}

ROOT = special("root", "read")


def _project(*entries: Any, **members: Any) -> Callable[[Path], Any]:
    """A policy with a workspace; entries may be made from the base."""

    def made(base: Path) -> Any:
        roots = [f"file://{base}/ws"]
        listed = [entry(base) if callable(entry) else entry for entry in entries]
        return managed(*listed, cwd=roots[0], workspaceRoots=roots, **members)

    return made


def _at(name: str, access: str) -> Callable[[Path], Any]:
    return lambda base: at(f"{base}/{name}", access)


WORKSPACE = special("project_roots", "write")
POLICIES: dict[str, Callable[[Path], Any]] = {
    "read-only": _project(ROOT),
    "read-only by path": _project(at("/", "read")),
    "workspace": _project(ROOT, WORKSPACE),
    "workspace, tmpdir and more": _project(
        ROOT, WORKSPACE, special("tmpdir", "write"), _at("extra", "write")
    ),
    "subpath": _project(ROOT, special("project_roots", "write", subpath="sub")),
    "through a link": _project(ROOT, _at("to-ws", "write")),
    "fixed below": _project(ROOT, WORKSPACE, _at("ws/fixed", "read")),
    "writable again": _project(
        ROOT, WORKSPACE, _at("ws/fixed", "read"), _at("ws/fixed/again", "write")
    ),
    "closed below": _project(ROOT, WORKSPACE, _at("ws/closed", "deny")),
    "closed outside": _project(ROOT, WORKSPACE, _at("outside/deep", "none")),
    "open again": _project(
        ROOT, WORKSPACE, _at("ws/closed", "deny"), _at("ws/closed/open", "write")
    ),
    "shown again": _project(
        ROOT, WORKSPACE, _at("ws/closed", "deny"), _at("ws/closed/shown", "read")
    ),
    "missing stays missing": _project(
        ROOT, WORKSPACE, _at("ws/missing", "read"), _at("outside/missing", "deny")
    ),
    "git is given": _project(ROOT, WORKSPACE, special("project_roots", "write", subpath=".git")),
    "scoped": _project(special("minimal", "read"), WORKSPACE),
    "scoped reads": _project(special("minimal", "read"), _at("ws", "read"), _at("extra", "write")),
    "scoped, a denied root": _project(
        special("root", "deny"), special("minimal", "read"), _at("outside", "read")
    ),
    "secrets": _project(ROOT, WORKSPACE, lambda base: glob(f"{base}/ws/**/*.env")),
    "secrets outside": _project(ROOT, lambda base: glob(f"{base}/outside/*.env")),
    "shallow secrets": lambda base: _shallow(base),
    "unknown": _project(ROOT, special("unknown", "write", path=":future")),
    "with a network": _project(ROOT, WORKSPACE, network="enabled"),
}


def _shallow(base: Path) -> Any:
    context = _project(ROOT, WORKSPACE, glob(f"{base}/ws/**/*.env"))(base)
    context["permissions"]["file_system"]["glob_scan_max_depth"] = 1
    return context


# What meets the empty base of a sandbox with scoped reads: where nothing is shown.
IN_THE_BASE = {"make", "move away", "list", "create", "mkdir", "symlink"}


def _is_stricter_base(policy: str, kind: str, theirs: str, ours: str) -> bool:
    """With scoped reads the base of the reference is a tmpfs that can be written, and ours cannot.

    So directories can be made there, and afterwards be listed and filled; and a command that
    renames one is told that it is busy or missing before being told that nothing can be renamed.
    """
    is_closed = ours in ("EROFS", "ENOENT") and theirs in ("allowed", "EBUSY", "ENOENT")
    return policy.startswith("scoped") and kind in IN_THE_BASE and is_closed


@pytest.fixture(scope="module")
def reference_at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The reference with a home outside of the temporary directory, where its sandbox works."""
    binary = reference_binary()
    if binary is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    home, other = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("tmp")
    with start_reference(binary, env={"CODEX_HOME": str(home), "TMPDIR": str(other)}) as running:
        yield running


def build(base: Path) -> None:
    shutil.rmtree(base, ignore_errors=True)
    for place in PLACES:
        touches_paths.make_place(str(base / place))
    for name, target in LINKS.items():
        (base / name).symlink_to(target)


async def tried(wire: Wire, base: Path, policy: str) -> dict[tuple[str, str], str]:
    """What came of every access, by place and kind."""
    build(base)
    code = Path(touches_paths.__file__).read_text()
    places = [str(base / place) for place in (*PLACES, *MISSING, *LINKS)]
    done = await wire.run(
        policy,
        [PYTHON, "-I", "-S", "-c", code, *places],
        sandbox=POLICIES[policy](base),
        # With ripgrep at hand the reference closes more names than a pattern matches: for it `*`
        # crosses directories.
        env={**ENV, "TMPDIR": f"{base}/tmp", "PATH": "/nowhere"},
        cwd="file:///",
    )
    assert done.exit_code == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines
    return {(os.path.relpath(place, base), kind): outcome for place, kind, outcome in lines}


# The directories that hold a match of the glob in the policy "secrets".
_WITH_SECRETS = {
    *("ws/closed", "ws/closed/open", "ws/closed/shown", "ws/fixed", "ws/fixed/again"),
    *("ws/sub", "ws/sub/.git"),
}


def _is_above_a_secret(policy: str, access: tuple[str, str], theirs: str, mine: str) -> bool:
    """True if a directory above a closed file could be moved away in the reference, and not here.

    A command could replace the directory, and the next one would be confined by a path that leads
    elsewhere.
    """
    path, kind = access
    is_known = (policy, kind, theirs, mine) == ("secrets", "move away", "allowed", "EBUSY")
    return is_known and path in _WITH_SECRETS


@pytest.mark.parametrize("policy", POLICIES)
@requirement("sandbox/matrix:same")
async def test_the_same_is_allowed_and_refused(reference_at_home, ours, tmp_path, policy):
    found = []
    for server in (reference_at_home, ours):
        async with Wire(server.url) as wire:
            await wire.initialize()
            found.append(await tried(wire, tmp_path / "base", policy))
    theirs, mine = found
    assert mine.keys() == theirs.keys()
    differing = {
        access: (theirs[access], mine[access])
        for access in mine
        if mine[access] != theirs[access]
        and not _is_stricter_base(policy, access[1], theirs[access], mine[access])
        and not _is_above_a_secret(policy, access, theirs[access], mine[access])
    }
    assert differing == {}


@requirement("sandbox/matrix:same")
async def test_a_fifo_can_be_written_in_the_reference_as_well(reference_at_home, ours, tmp_path):
    # A read-only mount does not stop it; see "What was tried" in docs/sandbox.md.
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDWR | os.O_NONBLOCK)
    try:
        for server in (reference_at_home, ours):
            async with Wire(server.url) as wire:
                await wire.initialize()
                script = f"echo heard > {tmp_path}/fifo"
                await wire.run("p", ["sh", "-c", script], sandbox=managed(ROOT))
                assert os.read(reader, 100) == b"heard\n"
    finally:
        os.close(reader)
