"""process/start: its parameters, its checks, and the environment of the program."""

from __future__ import annotations

import base64
import os

import pytest

from tests.requirements import requirement
from tests.support.children import child
from tests.support.local import wire_with
from tests.support.start_cases import (
    ACCEPTED,
    REQUIRED,
    SHELL,
    SPAWN_FAILURES,
    TWO_FAULTS,
    WRONG,
    name_of,
)
from tests.support.wire import ENV, decoded, start_params

# These variables are internal to the C library, which may add them to children.
INTERNAL_SIGNALS = {32, 33}


async def try_start(wire, **params):
    """The answer to a start of `true` with other *params*: a result, or the code of an error."""
    answer = await wire.answer(
        await wire.request("process/start", {**start_params("p", ["true"]), **params})
    )
    return answer["error"]["code"] if "error" in answer else answer["result"]


# Parameters.


@requirement("process/start:required-members")
async def test_a_missing_member_is_refused_and_named(wire):
    for gone in REQUIRED:
        params = start_params("p", ["true"])
        del params[gone]
        error = await wire.error("process/start", params)
        assert error == {"code": -32602, "message": f"missing field `{gone}`"}


@requirement("process/start:wrong-types")
async def test_wrong_parameters_are_refused(wire):
    for params in WRONG:
        assert await try_start(wire, **params) == -32602, params


@pytest.mark.parametrize("params", ACCEPTED, ids=name_of)
@requirement("process/start:optional-members", "process/start:result", "process/start:any-id")
async def test_optional_parameters_are_accepted(wire, params):
    process_id = params.get("processId", "p")
    assert await try_start(wire, **params) == {"processId": process_id, "sandboxType": "none"}
    assert (await wire.event(process_id, "process/exited"))["exitCode"] == 0


@pytest.mark.parametrize(
    "wanted", [{"sandbox": {"permissions": {}}}, {"networkProxy": {"proxy": {}}}]
)
@requirement("process/start:nothing-unenforced")
async def test_what_cannot_be_enforced_is_not_started(wire, wanted):
    assert await try_start(wire, **wanted) == -32602
    assert await wire.call("process/list") == {"processes": []}


@pytest.mark.parametrize(
    ("snapshot", "argv", "code"),
    [
        ({"scopeId": "", "shell": SHELL}, ["true"], -32602),
        ({"scopeId": "x" * 257, "shell": SHELL}, ["true"], -32602),
        ({"scopeId": "é" * 129, "shell": SHELL}, ["true"], -32602),
        ({"scopeId": "é" * 128, "shell": SHELL}, ["true"], None),
        ({"scopeId": "s", "shell": {"name": "fish", "path": "/f"}}, ["/f", "-lc", "x"], -32602),
        ({"scopeId": "s", "shell": {"name": "fish", "path": "/f"}}, ["true", "-lc", "x"], None),
        ({"scopeId": "s", "shell": {"name": "sh", "path": "/bin/sh"}}, ["true"], None),
    ],
)
@requirement("process/start:shell-snapshot")
async def test_a_shell_snapshot_is_judged_and_then_ignored(wire, snapshot, argv, code):
    result = await try_start(wire, shellSnapshot=snapshot, argv=argv)
    assert result == (code or {"processId": "p", "sandboxType": "none"})


@requirement("process/start:shell-snapshot")
async def test_a_command_with_a_snapshot_runs_unchanged(wire):
    shell = {"name": "sh", "path": "/bin/sh"}
    finished = await wire.run(
        "p",
        ["/bin/sh", "-lc", "echo $0 $-"],
        shellSnapshot={"scopeId": "s", "shell": shell},
    )
    assert finished.stdout.startswith(b"/bin/sh")
    assert finished.exit_code == 0


# Checks.


@requirement("process/start:order-of-checks")
async def test_the_checks_come_in_order(wire):
    await wire.start("taken", ["true"])
    for params, code in TWO_FAULTS:
        assert await try_start(wire, **params) == code, params


@pytest.mark.parametrize("state", ["running", "exited", "closed"])
@requirement("process/start:id-taken")
async def test_a_taken_id_is_refused(wire, state):
    argv = {
        "running": ["sleep", "60"],
        "exited": ["sh", "-c", "sleep 60 & exit"],
        "closed": ["true"],
    }[state]
    await wire.start("p", argv)
    if state != "running":
        await wire.event("p", f"process/{state}")
    error = await wire.error("process/start", start_params("p", ["true"]))
    assert error == {"code": -32600, "message": "process p already exists"}


@requirement("process/start:failed-spawn-frees-the-id", "process/start:spawn-failure")
async def test_what_cannot_be_started_is_refused_and_its_id_is_free(wire):
    for params in SPAWN_FAILURES:
        assert await try_start(wire, **params) == -32603, params
    assert await wire.call("process/list") == {"processes": []}
    assert (await wire.run("p", ["echo", "free"])).stdout == b"free\n"


@requirement("process/start:spawn-failure-wording")
async def test_a_failure_is_told_in_the_words_of_the_operating_system(wire, tmp_path):
    script = tmp_path / "script"
    script.write_text("echo no interpreter\n")
    script.chmod(0o755)
    cases = {
        "/no/such": "No such file or directory (os error 2)",
        "/etc": "Permission denied (os error 13)",
        str(script): "Exec format error (os error 8)",
    }
    for program, message in cases.items():
        error = await wire.error("process/start", start_params("p", [program]))
        assert error == {"code": -32603, "message": message}


@requirement("process/start:reply-before-events")
async def test_the_answer_comes_before_the_first_event(wire):
    for number in range(200):
        name = str(number)
        request_id = await wire.request("process/start", start_params(name, ["echo", name]))
        first = await wire.receive()
        assert first.get("id") == request_id, first
        await wire.events_until_closed(name)


# Pipes.


@requirement("process/start:pipes")
async def test_stdout_and_stderr_are_apart_and_stdin_is_empty(wire):
    finished = await wire.run(
        "p", ["sh", "-c", "cat; echo out; echo err >&2; readlink /proc/$$/fd/0"]
    )
    assert finished.stdout == b"out\n/dev/null\n"
    assert finished.stderr == b"err\n"


@requirement("process/start:descriptors")
async def test_no_other_descriptor_is_inherited(wire):
    for params in ({}, {"pipeStdin": True}, {"tty": True}):
        finished = await wire.run(f"p{params}", ["ls", "/proc/self/fd"], **params)
        # The fourth descriptor is the directory that it reads.
        assert (finished.stdout or finished.stream("pty")).split() == [b"0", b"1", b"2", b"3"]


@requirement("process/start:own-session")
async def test_a_program_leads_a_session_without_a_terminal(wire):
    finished = await wire.run("p", child("describes_itself.sh"))
    facts = dict(
        line.split(" ", 1) for line in finished.stdout.decode().splitlines() if " " in line
    )
    # From proc(5): after the name come state, parent, group, session and terminal.
    stat = facts["stat"].rpartition(") ")[2].split()
    assert stat[2] == stat[3] == facts["pid"]
    assert stat[4] == "0"


@requirement("process/start:signals-are-default")
async def test_a_program_starts_with_default_signals(wire):
    for tty in (False, True):
        finished = await wire.run(f"p{tty}", ["grep", "^Sig", "/proc/self/status"], tty=tty)
        output = finished.stdout or finished.stream("pty")
        masks = dict(line.decode().split(":\t") for line in output.splitlines())
        ignored = {number for number in range(1, 65) if int(masks["SigIgn"], 16) >> number - 1 & 1}
        assert ignored <= INTERNAL_SIGNALS
        assert int(masks["SigBlk"], 16) == 0


@requirement("process/start:lookup")
async def test_a_name_is_looked_up_in_the_childs_own_path(wire, tmp_path, monkeypatch):
    for folder, text in (("first", "one"), ("second", "two"), ("servers", "no")):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "a-program"
        program.write_text(f"#!/bin/sh\necho {text} $0\n")
        program.chmod(0o755)
    (tmp_path / "first" / "not-executable").write_text("#!/bin/sh\n")
    # The server's own PATH is not used.
    monkeypatch.setenv("PATH", str(tmp_path / "servers"))
    cwd = tmp_path.as_uri()

    async def said(name, argv, path):
        params = start_params(name, argv, cwd=cwd, env={"PATH": path} if path else {})
        answer = await wire.answer(await wire.request("process/start", params))
        if "error" in answer:
            return answer["error"]["code"]
        events = await wire.events_until_closed(name)
        return decoded(events[0]["params"]).decode().split()

    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert await said("1", ["a-program"], f"{first}:{second}") == ["one", f"{first}/a-program"]
    assert await said("2", ["a-program"], f"{second}:{first}") == ["two", f"{second}/a-program"]
    assert await said("3", ["a-program"], "/no/such") == -32603
    assert await said("4", ["a-program"], None) == -32603
    # Relative entries and names with a slash are relative to cwd.
    assert await said("5", ["a-program"], "second") == ["two", "second/a-program"]
    assert await said("6", ["first/a-program"], None) == ["one", "first/a-program"]
    assert await said("7", ["./first/a-program"], "/no/such") == ["one", "./first/a-program"]
    assert await said("8", ["not-executable"], first) == -32603
    # Without PATH a default is used.
    assert await said("9", ["echo", "default"], None) == ["default"]


@pytest.mark.parametrize("arg0", ["renamed", "", "é \n", None])
@requirement("process/start:arg0")
async def test_arg0_replaces_what_the_program_sees_of_its_name(wire, arg0):
    finished = await wire.run("p", ["cat", "/proc/self/cmdline"], arg0=arg0)
    seen = finished.stdout.split(b"\0")
    assert seen == [(arg0 if arg0 is not None else "cat").encode(), b"/proc/self/cmdline", b""]


@requirement("process/start:arguments")
async def test_arguments_arrive_as_they_are(wire):
    words = ["", " ", "a b", "é", "\n", "-n", "'\"$*", "x" * 100_000]
    finished = await wire.run(
        "p", ["sh", "-c", 'for word; do printf "%s|" "$word"; done', "sh", *words]
    )
    assert finished.stdout.decode() == "".join(f"{word}|" for word in words)


@pytest.mark.parametrize(
    ("cwd", "path"),
    [
        ("file:///usr", "/usr"),
        ("FILE:///usr/", "/usr"),
        ("file:usr", "/usr"),
        ("file://localhost/usr", "/usr"),
        ("file:///tmp/../usr/./bin", "/usr/bin"),
        ("file:///%75sr", "/usr"),
        ("file:///usr%2Fbin", "/usr/bin"),
        ("file:///", "/"),
    ],
)
@requirement("process/start:cwd")
async def test_a_program_starts_in_its_cwd(wire, cwd, path):
    finished = await wire.run("p", ["pwd", "-P"], cwd=cwd)
    assert finished.stdout.decode() == f"{path}\n"


@requirement("process/start:cwd", "process/start:cwd-bytes")
async def test_a_cwd_need_not_be_utf8(wire, tmp_path):
    folder = os.fsencode(tmp_path) + b"/a\xffb c"
    os.mkdir(folder)
    finished = await wire.run("p", ["pwd"], cwd=f"{tmp_path.as_uri()}/a%ffb c")
    assert finished.stdout == folder + b"\n"


@requirement("process/start:no-pwd")
async def test_pwd_is_not_set(wire):
    finished = await wire.run("p", ["env"], cwd="file:///usr", env={"A": "b"})
    assert finished.stdout == b"A=b\n"


# Terminals.


@requirement("process/start:terminal", "events:pty-stream")
async def test_a_terminal_has_24_rows_of_80_columns_and_is_all_three_streams(wire):
    script = "stty size; test -t 0 -a -t 1 -a -t 2 && echo all; echo err >&2"
    finished = await wire.run("p", ["sh", "-c", script], tty=True)
    assert finished.stream("pty") == b"24 80\r\nall\r\nerr\r\n"
    assert {e["params"]["stream"] for e in finished.events if "stream" in e["params"]} == {"pty"}


@requirement("process/start:terminal-controls")
async def test_the_terminal_controls_the_program(wire):
    finished = await wire.run("p", child("describes_itself.sh"), tty=True)
    facts = dict(
        line.split(" ", 1) for line in finished.stream("pty").decode().split("\r\n") if " " in line
    )
    # After the name: state, parent, group, session, terminal and its foreground group.
    stat = facts["stat"].rpartition(") ")[2].split()
    assert stat[2] == stat[3] == stat[5] == facts["pid"]
    assert stat[4] != "0"
    opened = await wire.run("q", ["sh", "-c", "echo yes >/dev/tty"], tty=True)
    assert opened.stream("pty") == b"yes\r\n"


@requirement("process/start:terminal-settings")
async def test_line_settings_are_the_kernels(wire):
    finished = await wire.run("p", ["stty", "-a"], tty=True)
    settings = finished.stream("pty").decode().replace(";", " ").split()
    assert {"echo", "icanon", "isig", "opost", "onlcr", "icrnl"} <= set(settings)


@pytest.mark.parametrize("pipe_stdin", [False, True])
@requirement("process/start:terminal-input")
async def test_a_terminal_can_always_be_written_to(wire, pipe_stdin):
    await wire.start("p", ["sh", "-c", "read x; echo got:$x"], tty=True, pipeStdin=pipe_stdin)
    assert await wire.write("p", b"hey\n", "1") == "accepted"
    assert await wire.output_until("p", b"got:hey\r\n") == b"hey\r\ngot:hey\r\n"


@requirement("process/start:terminal-keys")
async def test_end_of_file_and_interrupt_are_typed(wire):
    await wire.start("eof", ["cat"], tty=True)
    assert await wire.write("eof", b"\x04", "1") == "accepted"
    assert (await wire.event("eof", "process/exited"))["exitCode"] == 0
    script = "trap 'echo interrupted; exit 7' INT; echo ready; while :; do sleep 0.01; done"
    await wire.start("int", ["sh", "-c", script], tty=True)
    await wire.output_until("int", b"ready")
    assert await wire.write("int", b"\x03", "1") == "accepted"
    assert b"interrupted" in await wire.output_until("int", b"interrupted\r\n")
    assert (await wire.event("int", "process/exited"))["exitCode"] == 7


@requirement("process/start:terminal-hangs-up")
async def test_a_terminal_hangs_up_when_its_leader_exits(wire):
    await wire.start("p", ["sh", "-c", "sleep 60 & exit 3"], tty=True)
    events = await wire.events_until_closed("p")
    assert [event["method"] for event in events] == ["process/exited", "process/closed"]


@requirement("process/start:terminal-held-open")
async def test_a_background_process_that_ignores_the_hangup_keeps_the_terminal(wire, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    await wire.start("p", ["sh", "-c", f"trap '' HUP; cat {gate} & exit 3"], tty=True)
    assert (await wire.event("p", "process/exited"))["exitCode"] == 3
    gate.write_bytes(b"late\n")
    # A terminal may show the end of a line after the line.
    *outputs, closed = await wire.events_until_closed("p")
    assert b"".join(decoded(output["params"]) for output in outputs) == b"late\r\n"
    assert [output["params"]["seq"] for output in outputs] == list(range(2, 2 + len(outputs)))
    assert closed["params"]["seq"] == 2 + len(outputs)


@requirement("process/start:terminal-shell")
async def test_shell_is_added_and_term_is_not(wire):
    finished = await wire.run("p", ["env"], tty=True, env=ENV)
    names = {line.partition(b"=")[0] for line in finished.stream("pty").split(b"\r\n")[:-1]}
    assert names == {b"PATH", b"SHELL"}


@requirement("oddity:terminal-cwd")
async def test_a_terminal_in_a_missing_directory_is_refused(wire):
    for cwd in ("file:///no/such", "file:///etc/passwd"):
        assert await try_start(wire, tty=True, cwd=cwd) == -32603


@requirement("oddity:terminal-arg0")
async def test_arg0_means_the_same_on_a_terminal(wire):
    finished = await wire.run("p", ["sh", "-c", "echo $0"], tty=True, arg0="renamed")
    assert finished.stream("pty") == b"renamed\r\n"


@requirement("oddity:terminal-lookup")
async def test_lookup_is_the_same_on_a_terminal(wire):
    finished = await wire.run("p", ["bin/echo", "found"], tty=True, cwd="file:///usr")
    assert finished.stream("pty") == b"found\r\n"
    finished = await wire.run("q", ["echo", "default path"], tty=True, env={})
    assert finished.stream("pty") == b"default path\r\n"
    assert await try_start(wire, processId="r", tty=True, argv=["true", "x" * 200_000]) == -32603


# The output.


@requirement("events:chunks")
async def test_chunks_are_at_most_8192_bytes_of_padded_base64(wire):
    finished = await wire.run("p", ["head", "-c", "100001", "/dev/zero"])
    chunks = [e["params"]["chunk"] for e in finished.events if e["method"] == "process/output"]
    assert all(base64.b64encode(base64.b64decode(chunk)).decode() == chunk for chunk in chunks)
    sizes = [len(base64.b64decode(chunk)) for chunk in chunks]
    assert max(sizes) <= 8192
    assert sum(sizes) == 100_001


@requirement("events:chunks-in-bulk")
async def test_chunks_grow_once_output_no_longer_fits_the_window(wire):
    finished = await wire.run("p", ["head", "-c", "8000000", "/dev/zero"])
    sizes = [len(decoded(e["params"])) for e in finished.events if "chunk" in e["params"]]
    total = 0
    for size in sizes:
        assert size <= (8192 if total <= 1 << 20 else 65536)
        total += size
    assert total == 8_000_000


@requirement("events:gapless", "events:shape", "events:wire-order")
async def test_events_are_numbered_without_a_gap_and_arrive_in_order(wire):
    script = "for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done; exit 4"
    finished = await wire.run("p", ["sh", "-c", script])
    assert finished.seqs == list(range(1, len(finished.events) + 1))
    *outputs, exited, closed = finished.events
    for event in outputs:
        assert event.keys() == {"method", "params"}
        assert event["params"].keys() == {"processId", "seq", "stream", "chunk"}
    assert exited["method"] == "process/exited"
    assert exited["params"] == {
        "processId": "p",
        "seq": len(outputs) + 1,
        "exitCode": 4,
        "sandboxDenied": False,
    }
    assert closed == {
        "method": "process/closed",
        "params": {"processId": "p", "seq": len(outputs) + 2},
    }
    assert finished.stdout == b"".join(b"out %d\n" % n for n in range(1, 6))
    assert finished.stderr == b"".join(b"err %d\n" % n for n in range(1, 6))


@requirement("events:wire-order")
async def test_a_hundred_processes_at_once_keep_their_order(wire):
    names = [str(number) for number in range(100)]
    for name in names:
        await wire.request("process/start", start_params(name, ["sh", "-c", "echo a; echo b >&2"]))
    for name in names:
        events = await wire.events_until_closed(name)
        assert [event["params"]["seq"] for event in events] == list(range(1, len(events) + 1))


@requirement("process/start:id-reuse")
async def test_an_id_is_free_again_after_its_retention():
    async with wire_with(closed_process_seconds=0.05) as wire:
        await wire.run("p", ["echo", "one"])
        while await try_start(wire, argv=["echo", "two"]) == -32600:
            pass
        events = await wire.events_until_closed("p")
        assert decoded(events[0]["params"]) == b"two\n"
        assert [event["params"]["seq"] for event in events] == [1, 2, 3]
