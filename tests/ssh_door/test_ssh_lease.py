"""`ssh NAME%ID` beside a client that drives the process: only one of them types."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import exec_server.sync
from exec_server.errors import ControlLost
from tests.requirements import requirement
from tests.support.pty_program import PtyProgram
from tests.support.ssh_host import PATIENCE, SshHost

_PROGRAM = "stty -echo; echo ready; while read x; do echo got-$x; done; exit 6"


@pytest.fixture(scope="module")
def agent(ssh_server) -> Iterator[exec_server.sync.ExecServerClient]:
    with exec_server.sync.connect(ssh_server.url) as client:
        yield client


@requirement("ssh:lease")
def test_a_person_looks_on_takes_the_keyboard_and_leaves(agent, unshared: SshHost):
    process = agent.start(["sh", "-c", _PROGRAM], tty=True)
    process.stdout.readline()
    process.write(b"agent\n")
    words = ["ssh", *unshared.options, "-t", f"build%{process.process_id}"]
    with PtyProgram(words, env=unshared.env) as terminal:
        terminal.start()
        # The screen is painted, and the one who drives is named.
        terminal.until(b"got-agent")
        terminal.until(b"has the keyboard; ~t takes it, ~d leaves")
        terminal.type(b"nowhere\r~w")
        terminal.until(b"(agent, drives")
        terminal.type(b"~t")
        terminal.until(b"you have the keyboard now")
        terminal.type(b"person\r")
        terminal.until(b"got-person")
        with pytest.raises(ControlLost) as refused:
            process.write(b"refused\n")
        assert refused.value.driver_kind == "person"
        terminal.type(b"~d")
        assert terminal.wait() == 0
    # The one who drove before drives again.
    changes = process.control_changes()
    assert [next(changes).reason for _ in range(2)] == ["taken", "left"]
    process.control_state()
    process.write(b"again\n")
    process.write(b"\x04")
    output = b"".join(chunk.data for chunk in process)
    assert b"got-again" in output and b"got-person" in output
    assert b"nowhere" not in output and b"refused" not in output
    assert process.wait() == 6


@requirement("ssh:lease")
def test_a_program_that_pipes_into_ssh_is_refused_while_a_person_drives(agent, unshared: SshHost):
    process = agent.start(["sh", "-c", _PROGRAM], tty=True)
    process.control_state(kind="person", name="ann")
    name = f"build%{process.process_id}"
    refused = unshared.ssh(name, "take", status=255)
    assert b"ann" in refused.stderr
    with unshared.popen(name, stderr=-1) as ssh:
        _, errors = ssh.communicate(b"x\n", PATIENCE)
    assert ssh.returncode == 255 and b"the input was refused" in errors and b"ann" in errors
    refused = unshared.ssh(name, "ls", status=255)
    assert b"possible words are `take`" in refused.stderr
    process.terminate()
