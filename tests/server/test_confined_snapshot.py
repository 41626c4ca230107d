"""shellSnapshot in a sandbox: startup files run once inside, and their effects stay inside."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from exec_server.sandbox import landlock, placeholders
from exec_server.sandbox.backends import HERE
from tests.requirements import requirement
from tests.support.local import wire_with
from tests.support.login_shells import SHELL, Shell
from tests.support.proxied import origin, wanted
from tests.support.sandbox_cases import DISABLED, ROOT_READ, at, context, entry, managed, special
from tests.support.wire import Wire

pytestmark = pytest.mark.skipif(
    not HERE.bubblewrap_report.works, reason=f"{HERE.bubblewrap_report.obstacle}"
)
# Each run appends a number to a file, and prints whether it could write at home.
PROFILE = """
export TAKEN=$(od -An -N6 -tx1 /dev/urandom | tr -d ' \\n')
if (: > "$HOME/made") 2>/dev/null; then export PLACE=free; else export PLACE=confined; fi
"""
SHELLS = {
    "bash": (SHELL, ".bash_profile"),
    "sh": ({"name": "sh", "path": "/bin/sh"}, ".profile"),
    "zsh": ({"name": "zsh", "path": str(shutil.which("zsh"))}, ".zprofile"),
}
READ_ONLY = context()
MINIMAL = [entry(special("minimal"))]


@pytest.fixture(scope="module", autouse=True)
def landlock_is_ready() -> None:
    """Descriptors that stay open for good are not a leak of the first test."""
    if HERE.landlock_report.works:
        landlock._always()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".bash_profile").write_text(f"{PROFILE}greet() {{ echo hello $1; }}\n")
    return tmp_path


@pytest.fixture
def shell(wire: Wire, home: Path) -> Shell:
    return Shell(wire, home)


@pytest.mark.parametrize("name", SHELLS)
@requirement("snapshot/start:sandbox", "snapshot/start:once")
async def test_startup_files_run_once_in_the_sandbox(shell, home, name):
    which, file = SHELLS[name]
    if shutil.which(which["path"]) is None:
        pytest.skip(f"there is no {name}")
    (home / file).write_text(PROFILE)
    script = "echo $PLACE $TAKEN $0 $#; ls /proc/self/fd | wc -l"
    first = await shell.run(script, shell=which, sandbox=READ_ONLY)
    # The three standard ones, and the one that `ls` itself has open.
    assert first.split()[0] == "confined" and first.endswith(f" {which['path']} 0\n4\n")
    assert await shell.run(script, shell=which, sandbox=READ_ONLY) == first
    assert not (home / "made").exists()


@requirement("snapshot/start:sandbox", "snapshot/start:key")
async def test_what_may_do_something_else_has_a_snapshot_of_its_own(shell, home):
    writable = context(managed(ROOT_READ, entry(at(f"file://{home}"), "write")))
    script = "greet you; echo $PLACE $TAKEN"
    runs = [await shell.run(script, sandbox=box) for box in (READ_ONLY, None, writable, READ_ONLY)]
    assert [run.split()[2] for run in runs] == ["confined", "free", "free", "confined"]
    assert runs[0] == runs[3] and len({*runs}) == 3


@requirement("snapshot/start:sandbox")
async def test_a_sandbox_that_shows_little_is_restored_too(shell, home):
    box = context(managed(*MINIMAL, entry(at(f"file://{home}"))))
    first = await shell.run("greet you; echo $TAKEN", sandbox=box, cwd=f"file://{home}")
    assert first.startswith("hello you\n")
    assert await shell.run("greet you; echo $TAKEN", sandbox=box, cwd=f"file://{home}") == first


@pytest.mark.parametrize("box", [context(DISABLED), context(useLegacyLandlock=True)])
@requirement("snapshot/start:sandbox")
async def test_without_namespaces_it_is_the_same(shell, box):
    if box.get("useLegacyLandlock") and not HERE.landlock_report.works:
        pytest.skip(f"{HERE.landlock_report.obstacle}")
    first = await shell.run("greet you; echo $TAKEN", sandbox=box)
    assert first.startswith("hello you\n")
    assert await shell.run("greet you; echo $TAKEN", sandbox=box) == first


@pytest.mark.parametrize("seconds", [0.0, 0.002, 0.02])
@requirement("snapshot/start:sandbox", "snapshot/start:fallback")
async def test_a_capture_that_is_given_up_at_any_moment_leaves_a_plain_start(home, seconds):
    """Its sandbox may be starting by then; the server's `no_leaks` finds leaks."""
    (home / ".bash_profile").write_text("greet() { echo hello $1; }\nsleep 0.1\n")
    async with wire_with(shell_snapshot_seconds=seconds) as wire:
        assert await Shell(wire, home).run("greet you", sandbox=READ_ONLY) == "hello you\n"


@requirement("snapshot/start:sandbox")
async def test_startup_files_cannot_widen_the_sandbox(shell, home):
    """The directory of TMPDIR is writable, but only the one in the client's request."""
    (home / ".bash_profile").write_text(f"{PROFILE}export TMPDIR=$HOME\n")
    box: Any = context(managed(ROOT_READ, entry(special("tmpdir"), "write")))
    script = 'echo $TMPDIR; (: > "$TMPDIR/made") 2>/dev/null || echo refused'
    for _ in range(2):
        assert await shell.run(script, sandbox=box) == f"{home}\nrefused\n"
    assert await shell.run(script, sandbox=box, env={"TMPDIR": str(home)}) == f"{home}\n"


@requirement("snapshot/start:sandbox")
async def test_no_sandbox_can_touch_the_snapshots_of_others(shell):
    await shell.run("true")
    folder = Path(placeholders.default_folder().decode())
    assert list((folder / "snapshots").iterdir())
    box = context(managed(ROOT_READ, entry(at(f"file://{folder.parent}"), "write")))
    script = f"(ls -A {folder} || : > {folder}/made) 2>/dev/null || echo refused"
    assert await shell.run(script, sandbox=box) == "refused\n"


@pytest.mark.parametrize("permissions", [None, DISABLED], ids=["managed", "disabled"])
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
@requirement("snapshot/start:sandbox", "network/enforced:only-the-proxy")
async def test_a_shell_whose_only_way_out_is_its_proxy_is_restored(shell, permissions):
    async with origin() as (_, port):
        params = {
            "sandbox": context(permissions),
            "enforceManagedNetwork": True,
            "networkProxy": wanted(domains={"127.0.0.1": "allow"}),
        }
        script = f"greet you; echo $TAKEN; curl -sS -m 10 http://127.0.0.1:{port}/"
        first = await shell.run(script, **params)
        assert first.startswith("hello you\n") and first.endswith("\nok")
        assert await shell.run(script, **params) == first
