"""Sandboxed processes through a real server: what they can do, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from exec_server.sandbox import placeholders
from exec_server.sandbox.backends import HERE
from tests.requirements import requirement
from tests.support.children import Watched
from tests.support.leaks import children, command
from tests.support.servers import start_server
from tests.support.wire import ENV, PATIENCE, Finished, Wire, start_params

NAMES = (".git", ".agents", ".codex", ".aws")

needs_bubblewrap = pytest.mark.skipif(
    not HERE.bubblewrap_report.works, reason=f"{HERE.bubblewrap_report.obstacle}"
)
needs_landlock = pytest.mark.skipif(
    not HERE.landlock_report.works, reason=f"{HERE.landlock_report.obstacle}"
)
on_both_backends = pytest.mark.parametrize(
    "backend",
    [
        pytest.param("bubblewrap", marks=needs_bubblewrap),
        pytest.param("landlock", marks=needs_landlock),
    ],
)


def special(kind: str, access: str, **members: str) -> dict[str, Any]:
    return {"path": {"type": "special", "value": {"kind": kind, **members}}, "access": access}


def at(path: object, access: str) -> dict[str, Any]:
    return {"path": {"type": "path", "path": f"file://{path}"}, "access": access}


def managed(*entries: dict[str, Any], network: str = "restricted", **members: Any) -> Any:
    files = {"type": "restricted", "entries": list(entries)}
    permissions = {"type": "managed", "file_system": files, "network": network}
    return {"permissions": permissions, "windowsSandboxLevel": "disabled", **members}


def read_only(backend: str = "bubblewrap", **members: Any) -> Any:
    return managed(special("root", "read"), useLegacyLandlock=backend == "landlock", **members)


def workspace_write(workspace: Path, backend: str = "bubblewrap") -> Any:
    entries = [special("root", "read"), at(workspace, "write")]
    is_landlock = backend == "landlock"
    # Landlock cannot protect single names in a writable directory.
    return managed(*entries, useLegacyLandlock=is_landlock, protectMetadata=not is_landlock)


@pytest.fixture
def workspace(tmp_path):
    path = tmp_path / "workspace"
    path.mkdir()
    return path


async def shell(wire: Wire, script: str, sandbox: Any, **params: Any) -> Finished:
    return await wire.run("p", ["sh", "-c", script], sandbox=sandbox, **params)


def exited(done: Finished) -> tuple[int, bool]:
    [params] = [e["params"] for e in done.events if e["method"] == "process/exited"]
    return params["exitCode"], params["sandboxDenied"]


# What a command may do.


@on_both_backends
@requirement("sandbox/process:read-only", "sandbox/process:reply")
async def test_a_read_only_command_reads_and_does_not_write(wire, tmp_path, backend):
    (tmp_path / "file").write_text("content")
    started = await wire.start("q", ["true"], sandbox=read_only(backend))
    assert started == {"processId": "q", "sandboxType": "linuxSeccomp", "sandboxRung": backend}
    script = f"cat {tmp_path}/file; echo x > {tmp_path}/file || rm {tmp_path}/file"
    done = await shell(wire, script, read_only(backend))
    assert done.stdout == b"content"
    assert done.exit_code != 0
    assert (tmp_path / "file").read_text() == "content"


@on_both_backends
@requirement("sandbox/process:workspace-write")
async def test_a_workspace_is_written_and_nothing_beside_it(wire, workspace, backend):
    script = "mkdir d && echo x > d/f && mv d e && cat e/f; echo x > ../outside"
    done = await shell(wire, script, workspace_write(workspace, backend), cwd=f"file://{workspace}")
    assert done.stdout == b"x\n"
    assert exited(done) == (2, True)
    assert (workspace / "e" / "f").read_text() == "x\n"
    assert not (workspace.parent / "outside").exists()


@needs_bubblewrap
@requirement("sandbox/process:metadata", "sandbox/placeholders:removed")
async def test_protected_names_cannot_be_made_and_leave_no_trace(wire, workspace):
    script = "for n in .git .agents .codex .aws; do mkdir $n; echo x > $n/x; rmdir $n; done; ls -A"
    done = await shell(wire, script, workspace_write(workspace), cwd=f"file://{workspace}")
    assert sorted(done.stdout.split()) == sorted(name.encode() for name in NAMES)
    assert list(workspace.iterdir()) == []


@needs_bubblewrap
@requirement("sandbox/process:scoped")
async def test_with_scoped_reads_nothing_else_exists(wire, workspace):
    sandbox = managed(special("minimal", "read"), at(workspace, "write"))
    script = (
        f"ls -d {workspace}; ls -d {workspace}/../.. /root /var; echo x > /new; echo x > /tmp/x"
    )
    done = await shell(wire, script, sandbox, cwd=f"file://{workspace}")
    assert os.fsencode(workspace) in done.stdout
    assert b"/root" not in done.stdout and b"/var" not in done.stdout
    assert exited(done) == (2, True)
    assert b"Read-only file system" in done.stderr or b"nonexistent" in done.stderr


@needs_bubblewrap
@requirement("sandbox/process:proc-sys")
async def test_the_machines_settings_cannot_be_written(wire):
    # If it succeeds after all, it has changed nothing.
    script = "read -r n < /proc/sys/kernel/hostname; echo $n > /proc/sys/kernel/hostname"
    done = await shell(wire, script, read_only(network="enabled"))
    assert exited(done) == (2, True)


@on_both_backends
@requirement("sandbox/process:nothing-leaks")
async def test_nothing_of_the_servers_is_inside(wire, monkeypatch, backend):
    script = "ls /proc/self/fd; grep -hE '^(Cap|NoNew|Seccomp:)' /proc/self/status; env"
    done = await shell(wire, script, read_only(backend))
    lines = done.stdout.decode().splitlines()
    assert lines[:4] == ["0", "1", "2", "3"]
    facts = dict(line.split() for line in lines[4:11])
    assert {facts.pop(f"Cap{name}:") for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert facts == {"NoNewPrivs:": "1", "Seccomp:": "2"}
    assert set(lines[11:]) == {f"PATH={ENV['PATH']}", "PWD=/tmp"}


@needs_bubblewrap
@requirement("sandbox/process:nothing-leaks")
async def test_no_other_process_is_in_sight(wire):
    done = await shell(wire, "echo /proc/[0-9]*", read_only())
    assert done.stdout == b"/proc/1 /proc/2\n"


@needs_bubblewrap
@requirement("sandbox/bubblewrap:environment")
async def test_a_clients_variables_do_not_reach_bubblewrap(wire, tmp_path):
    env = {**ENV, "LD_PRELOAD": f"{tmp_path}/nonesuch.so", "LD_LIBRARY_PATH": "/nonesuch"}
    done = await wire.run("p", ["env"], sandbox=read_only(), env=env)
    assert f"LD_PRELOAD={tmp_path}/nonesuch.so".encode() in done.stdout
    # The loader complains in the command itself, and only there.
    assert done.stderr.count(b"cannot be preloaded") == 1


@requirement("sandbox/process:reply")
@pytest.mark.parametrize(
    ("permissions", "backend", "filters"),
    [
        ({"type": "disabled"}, "none", b"0"),
        ({"type": "external", "network": "enabled"}, "none", b"0"),
        ({"type": "external", "network": "restricted"}, "seccomp", b"2"),
    ],
)
async def test_without_restricted_files_there_is_a_filter_at_most(
    wire, permissions, backend, filters
):
    sandbox = {"permissions": permissions, "windowsSandboxLevel": "disabled"}
    started = await wire.start("p", ["grep", "Seccomp:", "/proc/self/status"], sandbox=sandbox)
    assert started == {"processId": "p", "sandboxType": "linuxSeccomp", "sandboxRung": backend}
    done = Finished(await wire.events_until_closed("p"))
    assert done.stdout.split() == [b"Seccomp:", filters]


@needs_bubblewrap
async def test_the_name_that_a_command_is_called_by_is_kept(wire):
    script = "tr '\\0' ' ' < /proc/$$/cmdline"
    done = await wire.run("p", ["sh", "-c", script], arg0="renamed", sandbox=read_only())
    assert done.stdout.startswith(b"renamed -c")


# Commands that cannot run.


@on_both_backends
@requirement("sandbox/process:not-run")
@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
async def test_a_missing_program_ends_with_101(wire, backend, tty):
    started = await wire.start("p", ["nonesuch"], sandbox=read_only(backend), tty=tty)
    assert started["sandboxType"] == "linuxSeccomp"
    done = Finished(await wire.events_until_closed("p"))
    assert exited(done) == (101, True)
    assert b"nonesuch in the sandbox" in done.stderr + done.stream("pty")


@needs_landlock
@requirement("sandbox/process:not-run")
async def test_what_only_execve_finds_out_ends_with_101_too(wire, tmp_path):
    program = tmp_path / "program"
    program.write_text("no program at all")
    program.chmod(0o755)
    done = await wire.run("p", [str(program)], sandbox=read_only("landlock"))
    assert exited(done) == (101, True)
    assert b"Exec format error" in done.stderr


@requirement("sandbox/process:not-built")
async def test_a_policy_that_cannot_be_enforced_runs_nothing(wire, workspace, tmp_path):
    (workspace / ".git").symlink_to("/etc")
    script = f"echo ran > {tmp_path}/ran"
    done = await shell(wire, script, workspace_write(workspace))
    assert done.exit_code == 1
    assert done.stderr.startswith(b"error building bubblewrap command: ")
    assert not (tmp_path / "ran").exists()


@requirement("sandbox/backends:legacy-landlock", "sandbox/process:unavailable")
async def test_landlock_that_cannot_express_a_policy_runs_nothing(wire, workspace):
    sandbox = {**workspace_write(workspace), "useLegacyLandlock": True}
    done = await shell(wire, "touch ran", sandbox, cwd=f"file://{workspace}")
    assert exited(done) == (101, True)
    assert b"requires bubblewrap" in done.stderr
    assert list(workspace.iterdir()) == []


@requirement("sandbox/process:no-cwd")
async def test_a_missing_working_directory_is_an_error(wire, tmp_path):
    params = start_params("p", ["true"], sandbox=read_only(), cwd=f"file://{tmp_path}/nonesuch")
    error = await wire.error("process/start", params)
    assert error["code"] == -32603
    assert "os error 2" in error["message"]


# The end of a process.


@needs_bubblewrap
@requirement("sandbox/process:denied")
async def test_a_denial_is_told_with_the_exit_and_by_read(wire):
    done = await shell(wire, "touch /nonesuch", read_only())
    assert exited(done) == (1, True)
    assert (await wire.call("process/read", {"processId": "p"}))["sandboxDenied"] is True
    assert exited(await wire.run("q", ["false"], sandbox=read_only())) == (1, False)
    script = "touch /nonesuch; exit 0"
    assert exited(await wire.run("r", ["sh", "-c", script], sandbox=read_only())) == (0, False)


@needs_landlock
@requirement("sandbox/process:denied")
async def test_output_that_comes_late_still_counts(wire):
    # It prints its line when its parent is gone, which it notices without a clock.
    script = (
        "(while kill -0 $$; do :; done 2>/dev/null; echo Permission denied >&2; sleep 60) & exit 1"
    )
    await wire.start("p", ["sh", "-c", script], sandbox=read_only("landlock"))
    event = await wire.event("p", "process/exited")
    assert (event["exitCode"], event["sandboxDenied"]) == (1, True)
    await wire.call("process/signal", {"processId": "p", "signal": "KILL"})


@on_both_backends
@requirement("sandbox/process:signals")
async def test_an_interrupt_reaches_the_commands_handler(wire, backend):
    script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.01; done"
    await wire.start("p", ["sh", "-c", script], sandbox=read_only(backend))
    await wire.output_until("p", b"ready")
    await wire.call("process/signal", {"processId": "p", "signal": "interrupt"})
    done = Finished(await wire.events_until_closed("p"))
    assert done.stdout == b"caught\n"
    assert done.exit_code == 3


@on_both_backends
@requirement("sandbox/process:terminals")
async def test_ctrl_c_on_a_terminal_reaches_the_commands_handler(wire, backend):
    script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.01; done"
    await wire.start("p", ["sh", "-c", script], sandbox=read_only(backend), tty=True)
    await wire.output_until("p", b"ready")
    await wire.write("p", b"\x03")
    done = Finished(await wire.events_until_closed("p"))
    assert b"caught" in done.stream("pty")
    assert done.exit_code == 3


@on_both_backends
@requirement("sandbox/process:terminals")
async def test_a_signal_reaches_a_command_on_a_terminal(wire, backend):
    script = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.01; done"
    await wire.start("p", ["sh", "-c", script], sandbox=read_only(backend), tty=True)
    await wire.output_until("p", b"ready")
    await wire.call("process/signal", {"processId": "p", "signal": "TERM"})
    assert Finished(await wire.events_until_closed("p")).exit_code == 3


@on_both_backends
@requirement("sandbox/process:terminals")
async def test_a_terminal_tells_its_new_size_and_has_job_control(wire, backend):
    # With job control, the command in the foreground would be told instead.
    script = (
        "trap 'stty size; exit' WINCH; set -m; sleep 0.01; set +m; "
        "echo ready > /dev/tty; while :; do sleep 0.01; done"
    )
    await wire.start("p", ["sh", "-c", script], sandbox=read_only(backend), tty=True)
    seen = await wire.output_until("p", b"ready")
    assert b"job control" not in seen
    await wire.call("process/resize", {"processId": "p", "rows": 33, "cols": 99})
    assert b"33 99" in Finished(await wire.events_until_closed("p")).stream("pty")


@needs_bubblewrap
@requirement("sandbox/process:terminate", "sandbox/placeholders:removed")
async def test_terminate_ends_everybody_inside(wire, workspace):
    script = "setsid sleep 600 & setsid setsid sleep 600 & echo ready; sleep 600"
    sandbox = workspace_write(workspace)
    await wire.start("p", ["sh", "-c", script], sandbox=sandbox, cwd=f"file://{workspace}")
    await wire.output_until("p", b"ready")
    assert sorted(os.listdir(workspace)) == sorted(NAMES)
    inside = await members(wire, "p")
    assert len(inside) >= 3
    assert await wire.call("process/terminate", {"processId": "p"}) == {"running": True}
    assert (await wire.event("p", "process/exited"))["exitCode"] == 137
    assert os.listdir(workspace) == []
    for process in inside:
        await process.ended()


async def members(wire: Wire, process_id: str) -> list[Watched]:
    """All processes below a process. One that ends meanwhile, such as a `setsid`, is left out."""
    listed = (await wire.call("process/list"))["processes"]
    [pid] = [each["pid"] for each in listed if each["processId"] == process_id]
    found: list[Watched] = []
    waiting = [pid]
    while waiting:
        each = waiting.pop()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = Path(f"/proc/{each}/task/{each}/children").read_text()
            waiting += [int(number) for number in text.split()]
            if each != pid:
                found.append(Watched(each))
    return found


@needs_bubblewrap
@requirement("sandbox/placeholders:removed")
async def test_sandboxes_in_one_workspace_share_its_placeholders(wire, workspace):
    sandbox, cwd = workspace_write(workspace), f"file://{workspace}"
    for name in ("p", "q"):
        await wire.start(name, ["cat"], sandbox=sandbox, cwd=cwd, pipeStdin=True)
    await wire.call("process/terminate", {"processId": "p"})
    await wire.events_until_closed("p")
    assert sorted(os.listdir(workspace)) == sorted(NAMES)
    await wire.call("process/closeStdin", {"processId": "q"})
    await wire.events_until_closed("q")
    assert os.listdir(workspace) == []


@needs_bubblewrap
@pytest.mark.one_loop
@requirement("sandbox/placeholders:removed")
async def test_a_killed_server_leaves_no_placeholders(workspace):
    with start_server("--listen", "ws://127.0.0.1:0") as server:
        await hold(server.url, workspace)
        keeper = Watched(await keeper_of(server.pid))
        server.signal(signal.SIGKILL)
        await keeper.ended()
    assert os.listdir(workspace) == []


@needs_bubblewrap
@pytest.mark.one_loop
@requirement("sandbox/placeholders:swept")
async def test_the_next_server_sweeps_up_after_a_killed_keeper(workspace):
    with start_server("--listen", "ws://127.0.0.1:0") as server:
        await hold(server.url, workspace)
        keeper = await keeper_of(server.pid)
        watched = [Watched(keeper), Watched(server.pid)]
        # Both are killed in turn, with no time for either to notice.
        server.signal(signal.SIGSTOP)
        os.kill(keeper, signal.SIGKILL)
        server.signal(signal.SIGKILL)
        for process in watched:
            await process.ended()
    # Any other server of this user may have removed it by now.
    with start_server("--listen", "ws://127.0.0.1:0") as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
            assert (await wire.run("p", ["true"])).exit_code == 0
    assert os.listdir(workspace) == []


async def hold(url: str, workspace: Path) -> None:
    """Leave a sandbox running in *workspace*."""
    async with Wire(url) as wire:
        await wire.initialize()
        argv = ["sh", "-c", "echo ready; sleep 600"]
        await wire.start("p", argv, sandbox=workspace_write(workspace), cwd=f"file://{workspace}")
        await wire.output_until("p", b"ready")
    assert sorted(os.listdir(workspace)) == sorted(NAMES)


async def keeper_of(server: int) -> int:
    for pid in children(server):
        if "keeper.py" in command(pid):
            return pid
    raise AssertionError("no keeper")


@on_both_backends
@pytest.mark.one_loop
@requirement("sandbox/process:terminate")
async def test_no_process_outlives_the_keeper(backend):
    with start_server("--listen", "ws://127.0.0.1:0") as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
            argv = ["sh", "-c", "setsid sleep 600 & echo ready; sleep 600"]
            await wire.start("p", argv, sandbox=read_only(backend))
            await wire.output_until("p", b"ready")
            inside = await members(wire, "p")
            os.kill(await keeper_of(server.pid), signal.SIGKILL)
            await wire.event("p", "process/exited")
            for process in inside:
                await process.ended()


@needs_bubblewrap
async def test_the_private_folder_cannot_be_seen_into(wire):
    folder = os.fsdecode(placeholders.default_folder())
    done = await shell(wire, f"ls {folder}", read_only())
    assert exited(done) == (2, True)


@needs_bubblewrap
async def test_many_starts_at_once_all_come_through(wire):
    async with asyncio.timeout(3 * PATIENCE):
        for number in range(12):
            await wire.request(
                "process/start", start_params(f"p{number}", ["true"], sandbox=read_only())
            )
        for number in range(12):
            assert Finished(await wire.events_until_closed(f"p{number}")).exit_code == 0
