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
        failed = host.call(
            *("sftp", *host.options, "-b", "-", "build"),
            input=f"reput {tmp_path}/here {tmp_path}/back\n".encode(),
            status=1,
        )
        assert failed.stdout
