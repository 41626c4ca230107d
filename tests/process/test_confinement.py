"""Telling processes of a sandbox from others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from exec_server.process import confinement
from exec_server.process.confinement import held_outside, is_confined
from tests.requirements import requirement
from tests.support.backends import needs_bubblewrap

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")

HERE = os.getpid()


def inode_of(sock: socket.socket) -> int:
    return os.fstat(sock.fileno()).st_ino


def is_held_outside(inode: int, *, uid: int, server: int | None) -> bool:
    return held_outside({inode: uid}, server=server) == {inode}


@requirement("listen:from-a-sandbox")
def test_a_socket_of_this_process_is_held_outside():
    with socket.socket() as sock:
        assert is_held_outside(inode_of(sock), uid=os.getuid(), server=HERE)


@requirement("listen:from-a-sandbox")
def test_a_socket_that_is_on_its_way_is_not_held():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sock = socket.socket()
        inode = inode_of(sock)
        socket.send_fds(ours, [b"x"], [sock.fileno()])
        sock.close()
        assert not is_held_outside(inode, uid=os.getuid(), server=HERE)


@needs_bubblewrap
@requirement("listen:from-a-sandbox")
def test_a_socket_is_not_held_outside_as_long_as_a_sandbox_holds_it_too():
    with socket.socket() as sock:
        argv = ["bwrap", "--unshare-user", "--ro-bind", "/", "/", "--", "cat"]
        fd = sock.fileno()
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[fd]
        ) as held:
            assert held.stdin is not None and held.stdout is not None
            held.stdin.write(b"x")
            held.stdin.flush()
            held.stdout.read(1)
            assert not is_held_outside(inode_of(sock), uid=os.getuid(), server=HERE)
            # A sandbox below another process is none of ours.
            other = os.getppid() if held.pid != os.getppid() else 1
            assert is_confined(held.pid, server=None) == is_confined(held.pid, server=other)
            held.stdin.close()


@requirement("listen:from-a-sandbox")
def test_a_process_that_is_gone_counts_as_confined():
    with subprocess.Popen(["true"]) as ended:
        pass
    assert is_confined(ended.pid, server=HERE)


@requirement("listen:from-a-sandbox")
def test_more_system_call_filters_than_our_own_are_a_sandbox(monkeypatch):
    assert not is_confined(HERE, server=HERE)
    monkeypatch.setattr(confinement, "_own_filters", lambda: -1)
    assert is_confined(HERE, server=HERE)
    # The parent of this process is not below it.
    assert not is_confined(os.getppid(), server=HERE)
    assert is_confined(os.getppid(), server=None)
