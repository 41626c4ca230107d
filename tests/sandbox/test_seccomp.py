"""The filters, by what programs under them can do."""

from __future__ import annotations

import ctypes.util
import platform
import sys

import pytest

from exec_server.sandbox import seccomp
from exec_server.sandbox.model import Unenforceable
from exec_server.sandbox.seccomp import Kind
from tests.requirements import requirement
from tests.sandbox.confined import attempt

RELATED = Kind("related", "nothing")
PROXIED = Kind("proxied", "namespaces")
ENABLED = Kind("no-vsock", "namespaces")


@requirement("sandbox/seccomp:restricted")
@pytest.mark.parametrize(
    "code",
    [
        "socket.socket(socket.AF_INET)",
        "socket.socket(socket.AF_INET6)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socket(socket.AF_VSOCK)",
        "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_UNIX, socket.SOCK_RAW)",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)",
        "socket.socket(socket.AF_UNIX).connect('/nonesuch')",
        "socket.socket(socket.AF_UNIX).bind('\\0exec-server-test')",
        "socket.socketpair()[0].shutdown(socket.SHUT_WR)",
    ],
)
def test_a_restricted_network_refuses(code):
    assert attempt(f"import socket; {code}", RELATED) == "EPERM"


@requirement("sandbox/seccomp:restricted")
def test_related_processes_may_talk_through_a_pair():
    code = "import socket; a, b = socket.socketpair(); a.sendmsg([b'x']); b.recv(1)"
    assert attempt(code, RELATED) == "done"


@requirement("sandbox/seccomp:enabled")
def test_with_a_network_only_vsock_is_refused():
    assert attempt("import socket; socket.socket(socket.AF_INET)", ENABLED) == "done"
    code = "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)"
    assert attempt(f"import socket; {code}", ENABLED) == "done"
    assert attempt("import socket; socket.socket(socket.AF_VSOCK)", ENABLED) == "EPERM"


@requirement("sandbox/seccomp:proxied")
def test_for_a_proxy_only_the_internet_is_let_through():
    for family in ("AF_INET", "AF_INET6"):
        assert attempt(f"import socket; socket.socket(socket.{family})", PROXIED) == "done"
    for family in ("AF_UNIX", "AF_NETLINK", "AF_VSOCK", "AF_PACKET"):
        assert attempt(f"import socket; socket.socket(socket.{family})", PROXIED) == "EPERM"
    assert attempt("import socket; socket.socketpair()", PROXIED) == "done"


@requirement("sandbox/seccomp:restricted", "sandbox/seccomp:enabled")
@pytest.mark.parametrize("kind", [RELATED, ENABLED], ids=["restricted", "enabled"])
def test_rings_are_refused(kind):
    assert attempt("call(425, 1, 0)", kind) == "EPERM"


@requirement("sandbox/seccomp:terminal")
def test_typing_into_a_terminal_is_refused():
    code = "call({ioctl}, 0, ctypes.c_ulong({request}), ctypes.byref(ctypes.c_char(b'x')))"
    number = {"x86_64": 16, "aarch64": 29}[platform.machine()]
    for request in (0x5412, 0x541C, 0x100005412):
        assert attempt(code.format(ioctl=number, request=request), ENABLED) == "EPERM"


@requirement("sandbox/seccomp:other-abis")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="x32 is of x86-64")
def test_an_x32_call_ends_the_process():
    # This is getpid; a kernel without x32 would merely not know it.
    assert attempt("call(0x40000000 + 39)", ENABLED) == "SIGSYS"


@pytest.mark.parametrize("code", ["call(250, 0, 0, 0, 0, 0)", "call(321, 0, 0, 0)"])
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86-64")
def test_keyrings_and_bpf_are_refused_beside_namespaces(code):
    assert attempt(code, ENABLED) == "EPERM"


@requirement("sandbox/seccomp:missing")
def test_without_the_library_nothing_can_be_filtered(monkeypatch):
    seccomp.load.cache_clear()
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)

    def refuse(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    try:
        with pytest.raises(Unenforceable, match="libseccomp is not installed"):
            seccomp.load()
    finally:
        seccomp.load.cache_clear()


def test_every_kind_can_be_compiled_and_equal_ones_are_the_same():
    for sockets in ("related", "proxied", "no-vsock"):
        for company in ("nothing", "namespaces", "landlock"):
            program = seccomp.program(Kind(sockets, company))
            assert len(program) % 8 == 0
            assert seccomp.program(Kind(sockets, company)) is program


def test_a_filter_leaves_python_working():
    code = "import subprocess; subprocess.run(['true'], check=True); print('fine')"
    assert attempt(code, Kind("related", "landlock"), program=sys.executable) == "done"
