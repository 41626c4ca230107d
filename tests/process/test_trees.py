"""`process/terminate` and the end of a session end whole trees, daemons included."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from exec_server.limits import Limits
from exec_server.sandbox import seccomp
from exec_server.sandbox.backends import HERE
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.sandbox.confined import attempt
from tests.sandbox.policies import read_only
from tests.support.children import Watched, child
from tests.support.leaks import children
from tests.support.tether import Tether
from tests.support.wire import Wire

pytestmark = pytest.mark.one_loop

BACKENDS: dict[str, Any] = {"none": None}
if HERE.landlock_report.works:
    BACKENDS["landlock"] = {**read_only(), "useLegacyLandlock": True}
if HERE.bubblewrap_report.works:
    BACKENDS["bubblewrap"] = read_only()


@pytest.fixture(params=BACKENDS)
def sandbox(request: pytest.FixtureRequest) -> Any:
    return BACKENDS[request.param]


@pytest.fixture
def tether(tmp_path: Path) -> Iterator[Tether]:
    with Tether(tmp_path) as made:
        yield made


async def start(wire: Wire, name: str, sandbox: Any, program: str, *arguments: object) -> None:
    given = {} if sandbox is None else {"sandbox": sandbox}
    await wire.start(name, child(program, *arguments), **given)
    await wire.output_until(name, b"ready")


@requirement("security/trees:terminate")
async def test_terminate_ends_the_whole_tree(wire, tether):
    await start(wire, "p", None, "stubborn_tree.py", tether.path)
    params = {"processId": "p", "tree": True}
    assert await wire.call("process/terminate", params) == {"running": True}
    await wire.events_until_closed("p")
    await tether.released()


@pytest.mark.skipif("landlock" not in BACKENDS, reason=f"{HERE.landlock_report.obstacle}")
@requirement("security/trees:terminate")
async def test_nothing_in_a_sandbox_outlives_terminate(wire):
    script = "setsid sh -c 'trap \"\" HUP; echo $$; sleep 60' & wait"
    await wire.start("p", ["sh", "-c", script], sandbox=BACKENDS["landlock"])
    escaped = Watched(int(await wire.output_until("p", b"\n")))
    assert await wire.call("process/terminate", {"processId": "p"}) == {"running": True}
    await escaped.ended()


@requirement("security/trees:terminate")
async def test_a_confined_daemon_ends_with_its_command(wire, sandbox):
    # The daemon is watched by its output, which ends with it.
    await start(wire, "p", sandbox, "leaves_a_daemon.py", "/dev/null", "keep")
    await wire.event("p", "process/exited")
    params = {"processId": "p", "tree": True}
    assert await wire.call("process/terminate", params) == {"running": False}
    await wire.events_until_closed("p")


@requirement("security/trees:stock")
async def test_without_being_asked_the_background_of_an_ended_process_lives_on(wire, tether):
    await start(wire, "p", None, "leaves_a_daemon.py", tether.path)
    await wire.events_until_closed("p")
    assert await wire.call("process/terminate", {"processId": "p"}) == {"running": False}
    await wire.run("q", ["true"])
    assert tether.is_held
    await wire.call("process/terminate", {"processId": "p", "tree": True})
    await tether.released()


@requirement("security/trees:terminate")
async def test_only_the_own_tree_ends(wire, tmp_path):
    with Tether(tmp_path, "one") as one, Tether(tmp_path, "other") as other:
        for name, tether in (("p", one), ("q", other)):
            await start(wire, name, None, "leaves_a_daemon.py", tether.path)
            await wire.events_until_closed(name)
        await wire.call("process/terminate", {"processId": "p", "tree": True})
        await one.released()
        await wire.run("r", ["true"])
        assert other.is_held
        await wire.call("process/terminate", {"processId": "q", "tree": True})
        await other.released()


@requirement("security/trees:terminate")
@pytest.mark.parametrize(
    "program", [("forks_in_all_directions.py", 8), ("never_stays.py", 20_000)], ids=["many", "fast"]
)
async def test_a_tree_that_keeps_forking_is_terminated(wire, tether, program):
    name, size = program
    await start(wire, "p", None, name, tether.path, size)
    await wire.call("process/terminate", {"processId": "p", "tree": True})
    await tether.released()


@requirement("security/trees:session")
@pytest.mark.parametrize("program", ["stubborn_tree.py", "leaves_a_daemon.py"])
async def test_the_end_of_a_session_ends_its_trees_and_no_other(no_leaks, tmp_path, program):
    limits = Limits(detached_session_seconds=0.05, closed_process_seconds=0.01)
    with Tether(tmp_path, "mine") as mine, Tether(tmp_path, "other") as other:
        async with serve(limits=limits) as running, Wire(running.url) as staying:
            await staying.initialize()
            await start(staying, "p", None, "leaves_a_daemon.py", other.path)
            async with Wire(running.url) as wire:
                await wire.initialize()
                await start(wire, "p", None, program, mine.path)
                if program == "leaves_a_daemon.py":
                    # Its daemon is found although the process itself is forgotten.
                    while (await wire.call("process/list"))["processes"]:
                        pass
                    assert mine.is_held
            await mine.released()
            assert other.is_held
        await other.released()


@requirement("security/trees:keeper")
async def test_if_the_keeper_is_killed_daemons_end_and_the_reason_is_told(tmp_path):
    with Tether(tmp_path) as tether:
        async with serve() as running, Wire(running.url) as wire:
            await wire.initialize()
            await start(wire, "d", None, "leaves_a_daemon.py", tether.path, "keep")
            await start(wire, "p", None, "stubborn_tree.py", tether.path)
            await wire.event("d", "process/exited")
            [keeper] = [pid for pid in children(os.getpid()) if _is_keeper(pid)]
            os.kill(keeper, signal.SIGKILL)
            exited = await wire.event("p", "process/exited")
            assert exited["exitCode"] == -1
            await wire.event("p", "process/closed")
            await wire.event("d", "process/closed")
            await tether.released()
            read = await wire.call("process/read", {"processId": "p"})
            assert "the process keeper died" in read["failure"]
            # The next start has a keeper again.
            assert (await wire.run("q", ["true"])).exit_code == 0


def _is_keeper(pid: int) -> bool:
    return b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.skipif(not HERE.seccomp_report.works, reason="libseccomp is missing")
@requirement("security/trees:mark")
def test_a_confined_process_cannot_change_its_mark():
    code = "import resource; resource.setrlimit(resource.RLIMIT_RTTIME, (5, 5))"
    for company in get_args(seccomp.Company):
        kind = seccomp.Kind("related", company)
        assert attempt(_as_oserror(code), kind) == "EPERM"
        assert (
            attempt("import resource; resource.getrlimit(resource.RLIMIT_RTTIME)", kind) == "done"
        )


def _as_oserror(code: str) -> str:
    # Python says ValueError for EPERM here.
    return f"try:\n    {code}\nexcept ValueError:\n    raise OSError(1, 'refused')"


@requirement("security/trees:mark")
async def test_the_mark_limits_nothing(wire):
    script = "import resource; print(resource.getrlimit(resource.RLIMIT_RTTIME))"
    done = await wire.run("p", ["python3", "-c", script])
    soft, hard = eval(done.stdout)
    # So many microseconds are more than a hundred thousand years.
    assert soft >= 1 << 62
    assert hard == resource.RLIM_INFINITY
