"""-L, -R, -D and -W by OpenSSH."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

from tests.requirements import requirement
from tests.support.ports import free_port
from tests.support.servers import start_server
from tests.support.ssh_host import PATIENCE, SshHost, needed, place_for_sockets


def exchange(sock: socket.socket, data: bytes = b"ping" * 50_000) -> None:
    """Send, end, and get everything back; the reader and the writer run at the same time."""
    sock.settimeout(PATIENCE)

    def send() -> None:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    sending = threading.Thread(target=send)
    sending.start()
    received = bytearray()
    while part := sock.recv(65536):
        received += part
    sending.join()
    assert bytes(received) == data + b"bye"


@contextlib.contextmanager
def forwarded(host: SshHost, *words: str) -> Iterator[str]:
    """Ask the master for a forwarding; its answer."""
    yield host.ssh("-O", "forward", *words, "build").stdout.decode().strip()
    host.ssh("-O", "cancel", *words, "build")


@requirement("ssh:direct-tcpip")
def test_a_port_over_there_is_one_here(host, echo):
    path = host.place / "l"
    with forwarded(host, "-L", f"{path}:127.0.0.1:{echo}"):
        for _ in range(2):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(str(path))
                exchange(sock)
    path.unlink(missing_ok=True)


@requirement("ssh:direct-tcpip")
def test_standard_input_and_output_are_a_connection(host, echo):
    done = host.ssh("-W", f"127.0.0.1:{echo}", "build", input=b"to and fro")
    assert done.stdout == b"to and frobye"


@requirement("ssh:direct-tcpip")
def test_a_port_without_a_listener_is_told(host):
    failed = host.ssh("-W", f"127.0.0.1:{free_port()}", "build", status=255)
    assert failed.stdout == b""


@requirement("ssh:tcpip-forward")
def test_a_port_here_is_one_over_there(host, echo):
    words = ("-R", f"127.0.0.1:0:127.0.0.1:{echo}")
    port = int(host.ssh("-O", "forward", *words, "build").stdout)
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
            exchange(sock)
    host.ssh("-O", "cancel", "-R", f"127.0.0.1:{port}:127.0.0.1:{echo}", "build")


@requirement("ssh:socks")
def test_a_socks_proxy_reaches_ports_over_there(host, echo):
    here = free_port()
    with (
        forwarded(host, "-D", f"127.0.0.1:{here}"),
        socket.create_connection(("127.0.0.1", here), PATIENCE) as sock,
    ):
        sock.sendall(b"\5\1\0")
        assert sock.recv(2) == b"\5\0"
        sock.sendall(b"\5\1\0\1" + socket.inet_aton("127.0.0.1") + struct.pack(">H", echo))
        assert sock.recv(10)[:2] == b"\5\0"
        exchange(sock)


@requirement("ssh:streamlocal")
def test_unix_sockets_over_there_are_refused_unless_allowed(host, tmp_path):
    path = host.place / "u"
    with (
        forwarded(host, "-L", f"{path}:{tmp_path}/sock"),
        socket.socket(socket.AF_UNIX) as sock,
    ):
        sock.settimeout(PATIENCE)
        sock.connect(str(path))
        assert sock.recv(1) == b""
    path.unlink(missing_ok=True)


@requirement("ssh:streamlocal")
def test_unix_sockets_that_are_allowed_are_forwarded_both_ways():
    needed("ssh")
    with (
        place_for_sockets() as place,
        start_server(
            *("--listen", "ws://127.0.0.1:0", "--stream-allow", f"unix:{place}/*")
        ) as ours,
        contextlib.closing(socket.socket(socket.AF_UNIX)) as far,
    ):
        far.bind(str(place / "far"))
        far.listen()
        far.settimeout(PATIENCE)
        host = SshHost(place, ours.url)
        words = ("-L", f"{place}/l:{place}/far", "-R", f"{place}/r:{place}/far")
        with host.master():
            host.ssh("-O", "forward", *words, "build")
            for name in ("l", "r"):
                with socket.socket(socket.AF_UNIX) as near:
                    near.settimeout(PATIENCE)
                    near.connect(str(place / name))
                    accepted, _ = far.accept()
                    with accepted:
                        near.sendall(name.encode())
                        accepted.settimeout(PATIENCE)
                        assert accepted.recv(1) == name.encode()
