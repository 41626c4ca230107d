"""The owner of the other end of a local connection."""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from exec_server.transport import socket_owner
from exec_server.transport.socket_owner import (
    Endpoints,
    TcpOwner,
    is_own_address,
    is_peer_running,
    tcp_owner,
    unix_owner,
)
from tests.requirements import requirement

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sock_diag is of Linux")

HOSTS = [
    pytest.param(socket.AF_INET, "127.0.0.1", id="IPv4"),
    pytest.param(socket.AF_INET6, "::1", id="IPv6"),
]
# The Unix user `nobody`, by its usual number.
STRANGER = 65534


@contextmanager
def listening(family: int, host: str) -> Iterator[socket.socket]:
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind((host, 0))
        listener.listen()
        listener.settimeout(10)
        yield listener


def ends_of(accepted: socket.socket) -> Endpoints:
    return Endpoints(accepted.getsockname()[:2], accepted.getpeername()[:2])


@requirement("listen:peer-user")
@pytest.mark.parametrize(("family", "host"), HOSTS)
def test_a_connection_is_traced_to_its_user_and_socket(family, host):
    with listening(family, host) as listener:
        with socket.create_connection(listener.getsockname()[:2]) as peer:
            accepted, _ = listener.accept()
            with accepted:
                expected = TcpOwner(os.getuid(), os.fstat(peer.fileno()).st_ino)
                assert tcp_owner(ends_of(accepted)) == expected


@requirement("listen:peer-user")
@pytest.mark.parametrize(("family", "host"), HOSTS)
def test_the_table_of_sockets_says_the_same_as_the_kernel(family, host, monkeypatch):
    with listening(family, host) as listener:
        with socket.create_connection(listener.getsockname()[:2]):
            accepted, _ = listener.accept()
            with accepted:
                ends = ends_of(accepted)
                asked = tcp_owner(ends)
                monkeypatch.setattr(socket_owner, "_NETLINK_SOCK_DIAG", 21)
                assert tcp_owner(ends) == asked


@requirement("listen:peer-user")
@pytest.mark.parametrize("protocol", [socket_owner._NETLINK_SOCK_DIAG, 21])
def test_an_ipv6_socket_that_speaks_ipv4_is_found(protocol, monkeypatch):
    monkeypatch.setattr(socket_owner, "_NETLINK_SOCK_DIAG", protocol)
    with listening(socket.AF_INET, "127.0.0.1") as listener:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as peer:
            peer.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
            accepted, _ = listener.accept()
            with accepted:
                found = tcp_owner(ends_of(accepted))
                assert found == TcpOwner(os.getuid(), os.fstat(peer.fileno()).st_ino)


@requirement("listen:peer-orphan")
def test_a_socket_that_was_closed_after_sending_has_no_owner():
    with listening(socket.AF_INET, "127.0.0.1") as listener:
        peer = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            peer.sendall(b"said before the end")
            peer.close()
            found = tcp_owner(ends_of(accepted))
            assert found is None or found.is_orphan


@requirement("listen:peer-orphan")
def test_a_listener_is_not_taken_for_a_connection_that_is_gone():
    with listening(socket.AF_INET, "127.0.0.1") as listener:
        # Its port is taken until the end, and not only by the connection.
        holder = socket.socket()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        peer.bind(holder.getsockname())
        peer.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with holder, accepted:
            ends = ends_of(accepted)
            # This resets the connection, so that nothing of it is left.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            with socket.create_server(ends.theirs):
                assert tcp_owner(ends) is None


@requirement("listen:peer-user")
@pytest.mark.parametrize(("family", "host"), HOSTS)
def test_a_socket_that_is_bound_to_an_interface_is_found_without_the_table(
    family, host, monkeypatch
):
    # The table may be long, because every stranger can add lines to it.
    monkeypatch.delattr(socket_owner, "_read_table")
    with listening(family, host) as listener:
        with socket.socket(family, socket.SOCK_STREAM) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
            peer.connect(listener.getsockname()[:2])
            accepted, _ = listener.accept()
            with accepted:
                found = tcp_owner(ends_of(accepted))
                assert found == TcpOwner(os.getuid(), os.fstat(peer.fileno()).st_ino)


@requirement("listen:peer-user")
@pytest.mark.parametrize(("family", "host"), HOSTS)
def test_a_peer_that_does_not_exist_is_not_searched_in_the_table(family, host, monkeypatch):
    monkeypatch.delattr(socket_owner, "_read_table")
    with listening(family, host) as listener:
        assert tcp_owner(Endpoints(listener.getsockname()[:2], (host, 1))) is None


@requirement("listen:peer-user")
def test_the_addresses_of_this_machine_are_told_from_others():
    own = ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"]
    assert [is_own_address(host) for host in own] == [True] * len(own)
    assert not is_own_address("192.0.2.77")
    assert not is_own_address("2001:db8::77")


def test_a_connection_that_does_not_exist_has_no_owner():
    assert tcp_owner(Endpoints(("127.0.0.1", 1), ("127.0.0.1", 2))) is None


@requirement("listen:peer-user")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_told_from_ours():
    program = (
        "import os, socket, sys, encodings.idna; os.setuid(int(sys.argv[2]));"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.recv(1)"
    )
    with listening(socket.AF_INET, "127.0.0.1") as listener:
        port = str(listener.getsockname()[1])
        peer = subprocess.Popen([sys.executable, "-c", program, port, str(STRANGER)])
        try:
            accepted, _ = listener.accept()
            with accepted:
                found = tcp_owner(ends_of(accepted))
                assert found is not None and found.uid == STRANGER
        finally:
            peer.wait(timeout=10)


@requirement("listen:peer-user")
def test_a_unix_socket_tells_its_peer():
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert unix_owner(ours.fileno()) == (os.getpid(), os.getuid())
        assert is_peer_running(ours.fileno())


@requirement("listen:peer-orphan")
def test_a_unix_socket_tells_that_its_peer_has_ended(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        if not has_peer_pidfd(listener):
            pytest.skip("this kernel does not tell")
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        program = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])"
        subprocess.run([sys.executable, "-c", program, str(tmp_path / "socket")], check=True)
        accepted, _ = listener.accept()
        with accepted:
            assert not is_peer_running(accepted.fileno())


def has_peer_pidfd(sock: socket.socket) -> bool:
    try:
        sock.getsockopt(socket.SOL_SOCKET, socket_owner._SO_PEERPIDFD)
    except OSError as exc:
        return exc.errno != errno.ENOPROTOOPT
    return True
