"""The door to servers of other kinds: a Unix socket, a program, and the reference."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

import pytest

from tests.requirements import requirement
from tests.support.servers import OURS, ServerProcess, start_server
from tests.support.ssh_host import SshHost, needed, place_for_sockets


@pytest.fixture
def place() -> Iterator[object]:
    needed("ssh", "sftp")
    with place_for_sockets() as made:
        yield made


@requirement("ssh:environments")
def test_a_unix_socket_and_a_program_are_servers_too(place):
    program = f"box=stdio:{shlex.join([*OURS, '--listen', 'stdio'])}"
    with start_server("--listen", f"unix://{place}/s") as server:
        hosts = (f"sock={server.url}", program)
        host = SshHost(place, "ws://127.0.0.1:1", hosts=hosts)
        for name in ("sock", "box"):
            done = host.ssh(name, "cat; exit 5", input=name.encode(), status=5)
            assert done.stdout == name.encode()


@requirement("ssh:reference")
def test_the_reference_is_reached_as_far_as_it_goes(place, reference: ServerProcess, tmp_path):
    host = SshHost(place, reference.url)
    with host.master():
        assert host.ssh("build", "echo out; echo err >&2; exit 3", status=3).stdout == b"out\n"
        content = os.urandom(1_500_000)
        (tmp_path / "here").write_bytes(content)
        batch = "\n".join(
            [
                f"put {tmp_path}/here {tmp_path}/there",
                f"rename {tmp_path}/there {tmp_path}/moved",
                f"chmod 600 {tmp_path}/moved",
                f"get {tmp_path}/moved {tmp_path}/back",
                f"ls -l {tmp_path}",
                f"rm {tmp_path}/moved",
            ]
        )
        host.call("sftp", *host.options, "-b", "-", "build", input=batch.encode())
        assert (tmp_path / "back").read_bytes() == content
        assert not (tmp_path / "moved").exists()
        # scp keeps what it does not write, so it can make files there, and change none.
        for status in (0, 1):
            target = f"build:{tmp_path}/new"
            host.call("scp", *host.options, "-q", tmp_path / "here", target, status=status)
            assert (tmp_path / "new").read_bytes() == content
        host.call("scp", *host.options, "-Oq", tmp_path / "here", target)
        failed = host.call(
            *("sftp", *host.options, "-b", "-", "build"),
            input=f"reput {tmp_path}/here {tmp_path}/back\n".encode(),
            status=1,
        )
        assert failed.stdout


@requirement("cli/run:stdin")
@pytest.mark.skipif(not os.access("/usr/bin/python3", os.X_OK), reason="no /usr/bin/python3")
def test_input_ends_on_the_reference_also_if_the_path_of_the_command_is_empty(
    place, reference: ServerProcess
):
    host = SshHost(place, reference.url)
    words = (*OURS, "run", "-e", "PATH=", "build", "--", "/bin/cat")
    done = host.call(*words, input=b"whole")
    assert (done.stdout, done.stderr) == (b"whole", b"")


@requirement("ssh:reference-input")
@requirement("cli/run:stdin")
def test_programs_that_read_their_input_to_the_end_work_on_the_reference(
    place, reference: ServerProcess, tmp_path
):
    needed("git", "rsync")
    host = SshHost(place, reference.url)
    content = os.urandom(300_000)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_bytes(content)
    done = host.call(*OURS, "run", "build", "--", "sh", "-c", "cat; exit 5", input=b"x", status=5)
    assert (done.stdout, done.stderr) == (b"x", b"")
    with host.master():
        assert host.ssh("build", "cat; exit 4", input=content, status=4).stdout == content
        # The status, also that of a signal, is the one of the command itself.
        host.ssh("build", "kill -TERM $$", status=143)
        host.ssh("build", "head -c 1 >/dev/null; exit 3", input=content, status=3)
        host.call("rsync", "-a", "-e", host.command, f"{tree}/", f"build:{tmp_path}/copy/")
        assert (tmp_path / "copy" / "file").read_bytes() == content
        (tree / "file").unlink()
        host.call("rsync", "-a", "-e", host.command, f"build:{tmp_path}/copy/", f"{tree}/")
        assert (tree / "file").read_bytes() == content
        host.call("git", "init", "-q", "--bare", f"{tmp_path}/bare.git")
        url = f"build:{tmp_path}/bare.git"
        host.call("git", "init", "-q", tree)
        who = ("-c", "user.name=a", "-c", "user.email=a@b.invalid")
        host.call("git", "-C", tree, "add", "file")
        host.call("git", "-C", tree, *who, "commit", "-q", "-m", "one")
        host.call("git", "-C", tree, "push", "-q", url, "HEAD:main", GIT_SSH_COMMAND=host.command)
        clone = ("clone", "-q", "-b", "main", url, tmp_path / "clone")
        host.call("git", *clone, GIT_SSH_COMMAND=host.command)
    assert (tmp_path / "clone" / "file").read_bytes() == content
