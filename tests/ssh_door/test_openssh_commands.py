"""Commands, shells and terminals by OpenSSH."""

from __future__ import annotations

import os
import random

import pytest

from tests.requirements import requirement
from tests.support.pty_program import PtyProgram
from tests.support.ssh_host import PATIENCE


@requirement("ssh:no-question", "ssh:exec")
def test_a_command_runs_without_a_question(unshared):
    done = unshared.ssh(
        "-o",
        "BatchMode=yes",
        "build",
        "cat; echo $((6*7)) >&2; exit 7",
        input=b"\0in\xff",
        status=7,
    )
    assert (done.stdout, done.stderr) == (b"\0in\xff", b"42\n")


@requirement("ssh:home")
def test_a_command_begins_in_the_home_directory(host):
    assert (
        host.ssh("build", "pwd -P").stdout.strip()
        == os.path.realpath(os.path.expanduser("~")).encode()
    )


@requirement("ssh:wildcard")
def test_a_name_that_the_stanza_does_not_list_is_reached_with_a_suffix(unshared):
    assert unshared.ssh("build.exec", "echo hi").stdout == b"hi\n"


@requirement("ssh:unreachable")
def test_a_server_that_does_not_answer_is_told(unshared):
    failed = unshared.ssh("nosuch.exec", "true", status=255)
    assert b"environment `nosuch` is not configured" in failed.stderr


@requirement("ssh:signals")
def test_a_signal_that_ends_a_command_is_told(host):
    assert host.ssh("build", "kill -TERM $$", status=255).stdout == b""
    # A signal without a name is told by the status.
    assert host.ssh("build", "kill -40 $$", status=168).stderr == b""


@requirement("ssh:environment")
def test_only_safe_variables_are_passed_on(host):
    # A master passes on only what SendEnv names.
    wanted = {"LC_ALL": "C", "GIT_DIR": "/x", "TZ": "Asia/Tokyo"}
    told = host.ssh("-o", "SendEnv=*", "build", "echo $LC_ALL $GIT_DIR $TZ", **wanted).stdout
    assert told == b"C Asia/Tokyo\n"


@requirement("ssh:half-close")
def test_the_end_of_input_is_passed_on_and_output_follows(host):
    words = "sort -n; sleep 0.1; echo after"
    assert host.ssh("build", words, input=b"3\n1\n2\n").stdout == b"1\n2\n3\nafter\n"


@requirement("ssh:streams-bounded")
def test_large_output_and_input_arrive_whole(host):
    size = 8 << 20
    assert host.ssh("build", "cat | sha256sum", input=bytes(size)).stdout.startswith(
        b"2daeb1f36095b44b318410b3f4e8b5d989dcc7bb023d1426c492dab0a3053e74"
    )
    assert len(host.ssh("build", f"head -c {size} /dev/zero").stdout) == size


@requirement("ssh:streams-bounded")
def test_a_command_that_is_not_read_waits(host):
    reader, writer = os.pipe()
    with host.popen("build", "yes", stdout=writer) as ssh:
        os.close(writer)
        with open(reader, "rb") as output:
            assert output.read(4) == b"y\ny\n"
        # With its reader gone, ssh ends, and the command with it.
        assert ssh.wait(PATIENCE) != 0


@requirement("ssh:hang-up")
def test_a_command_ends_with_its_connection(unshared, tmp_path):
    """The shell of a terminal gets SIGHUP when ssh is killed."""
    log = tmp_path / "log"
    os.mkfifo(log)
    script = f"trap 'echo hung up > {log}; exit' HUP; echo ready; while :; do sleep 0.05; done"
    with unshared.popen("-tt", "build", script) as ssh:
        assert ssh.stdout is not None and b"ready" in ssh.stdout.readline()
        ssh.kill()
        ssh.wait(PATIENCE)
    assert log.read_text() == "hung up\n"


@requirement("ssh:terminal", "ssh:resize")
def test_a_terminal_has_the_size_and_the_modes_of_the_one_here(host):
    script = (
        'stty size; stty -a | grep -o "[-]ixon"; stty -a | grep -o "erase = ^H"; '
        'until [ "$(stty size)" = "40 100" ]; do sleep 0.05; done; echo changed'
    )
    with PtyProgram(
        ["ssh", *host.options, "-t", "build", script], env=host.env, rows=31, cols=77
    ) as terminal:
        terminal.set_modes(ixon=False, erase=b"\x08")
        terminal.start()
        terminal.until(b"31 77")
        terminal.until(b"-ixon")
        terminal.until(b"erase = ^H")
        terminal.resize(40, 100)
        terminal.until(b"changed")
        assert terminal.wait() == 0


@requirement("ssh:terminal")
def test_ctrl_c_reaches_the_program_of_a_terminal(host):
    script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.05; done"
    with PtyProgram(["ssh", *host.options, "-t", "build", script], env=host.env) as terminal:
        terminal.start()
        terminal.until(b"ready")
        # A client of a master shows output before it makes its terminal raw.
        terminal.until_raw()
        terminal.type(b"\x03")
        terminal.until(b"caught")
        assert terminal.wait() == 3


@requirement("ssh:terminal")
def test_a_login_shell_is_started_without_a_command(host):
    with PtyProgram(["ssh", *host.options, "build"], env=host.env) as terminal:
        terminal.start()
        terminal.type(b"echo $((40+2)); tty; exit 5\r")
        terminal.until(b"42\r\n")
        terminal.until(b"/dev/pts/")
        assert terminal.wait() == 5


@requirement("ssh:refusals")
def test_agents_and_x11_are_refused_and_the_command_runs(host, tmp_path):
    words = ("-A", "-X", "-o", "ExitOnForwardFailure=no", "build", 'echo "${SSH_AUTH_SOCK-none}"')
    assert host.ssh(*words, DISPLAY=":0").stdout == b"none\n"


@requirement("ssh:stdio")
def test_a_client_that_cannot_take_a_descriptor_uses_pipes(unshared):
    words = ("-o", "ProxyUseFdpass=no", "build", "cat; exit 4")
    assert unshared.ssh(*words, input=b"piped", status=4).stdout == b"piped"


def test_background_programs_do_not_keep_a_terminal_open(host):
    words = ("-tt", "build", "trap '' HUP; sleep 30 & echo done")
    assert b"done" in host.ssh(*words).stdout


@pytest.mark.parametrize("cipher", ["aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com"])
def test_large_input_and_new_keys_alter_no_byte(unshared, cipher):
    data = random.Random(5).randbytes(6_000_001)
    options = ("-o", f"Ciphers={cipher}", "-o", "RekeyLimit=1M")
    assert unshared.ssh(*options, "build", "cat", input=data).stdout == data
