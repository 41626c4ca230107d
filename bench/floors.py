"""Floors: what the same work costs without a server, or with one that does the least.

There are two. *kernel* is the kernel alone: this process starts the program itself, with the same
pipes and terminals. *floor* is a server on the event loop and the WebSocket library of ours, with
no line of ours: for small calls, connections and starts one that answers everything with the same
words (constant_answers.py), for input, keystrokes and small files one that does the least that
they need (bare_server.py).
"""

from __future__ import annotations

import contextlib
import os
import pty
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.client import now, percentile
from bench.servers import Command
from bench.workload import MIB, Figures, Scale

KERNEL, FLOOR = "kernel", "floor"
FLOORS = (KERNEL, FLOOR)
_READ_BYTES = 256 * 1024
_INPUT_PIPE = 1024 * 1024
_CHUNK_BYTES = 64 * 1024
# The servers of the floor, and the workloads that each of them takes part in.
_SERVERS = {
    "constant_answers.py picows": frozenset({"rpc", "connect", "cold_start"}),
    "bare_server.py": frozenset(
        {
            "echo",
            "echo_flooded",
            "echo_beside_flood",
            "stdin_bulk",
            "stdin_small",
            "file_metadata",
            "file_read_4k",
        }
    ),
}
_TYPEWRITER = ["bash", "-c", "stty raw -echo; echo READY; exec cat"]


def spawn_true(scale: Scale) -> Figures:
    """Start /bin/true with three pipes and wait for their ends and its own."""
    times = [_run_true() for _ in range(scale.count(400))]
    return {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99)}


def _run_true() -> float:
    begin = now()
    pipes = [os.pipe() for _ in range(3)]
    moves = [(os.POSIX_SPAWN_DUP2, pipes[fd][fd != 0], fd) for fd in range(3)]
    pid = os.posix_spawn("/bin/true", ["/bin/true"], {}, file_actions=moves)
    (own_end, *outputs) = (pipes[0][0], pipes[1][1], pipes[2][1])
    for fd in (own_end, *outputs):
        os.close(fd)
    for fd in (pipes[1][0], pipes[2][0]):
        os.read(fd, 1)
        os.close(fd)
    os.waitpid(pid, 0)
    os.close(pipes[0][1])
    return now() - begin


def pipe_zero(scale: Scale) -> Figures:
    """The output of `head` through a pipe and a socket, with one process between the two."""
    size = scale.bytes(512 * MIB)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        begin = now()
        carrier = os.fork()
        if not carrier:
            _carry(listener.getsockname(), size)
        with contextlib.closing(listener.accept()[0]) as sock:
            buffer, received = bytearray(_READ_BYTES), 0
            while got := sock.recv_into(buffer):
                received += got
        seconds = now() - begin
        os.waitpid(carrier, 0)
    assert received == size, f"{received} of {size} bytes came"
    return {"rate": size / seconds}


def _carry(address: tuple[str, int], size: int) -> None:
    """In a child: copy what the program prints to the socket, and exit."""
    try:
        sock = socket.create_connection(address)
        words = ["head", "-c", str(size), "/dev/zero"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, pipesize=_READ_BYTES) as program:
            assert program.stdout is not None
            while data := os.read(program.stdout.fileno(), _READ_BYTES):
                sock.sendall(data)
    finally:
        os._exit(0)


def echo(scale: Scale) -> Figures:
    """Keys to `cat` on a raw terminal of our own, and back."""
    pid, fd = pty.fork()
    if not pid:
        os.execvp(_TYPEWRITER[0], _TYPEWRITER)
    try:
        seen = b""
        while b"READY" not in seen:
            seen += os.read(fd, 1024)
        times = [_type(fd) for _ in range(scale.count(1500))]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)
    return {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99)}


def _type(fd: int) -> float:
    begin = now()
    os.write(fd, b"x")
    while os.read(fd, 64) != b"x":
        # The end of the line of the program's first words.
        pass
    return now() - begin


def stdin_bulk(scale: Scale) -> Figures:
    """Bytes through a socket and a pipe into `head`, with one process between the two."""
    size = scale.count(6000, least=32) * _CHUNK_BYTES
    chunk = os.urandom(_CHUNK_BYTES)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        carrier = os.fork()
        if not carrier:
            _carry_input(listener.getsockname(), size)
        with contextlib.closing(listener.accept()[0]) as sock:
            # The program runs.
            sock.recv(1)
            begin = now()
            for _ in range(size // _CHUNK_BYTES):
                sock.sendall(chunk)
            taken = sock.recv(1)
        seconds = now() - begin
        os.waitpid(carrier, 0)
    assert taken, "the program has not taken all of its input"
    return {"rate": size / seconds}


def _carry_input(address: tuple[str, int], size: int) -> None:
    """In a child: copy what the socket brings to the program, tell of its end, and exit."""
    try:
        sock = socket.create_connection(address)
        words = ["sh", "-c", f"head -c {size} >/dev/null"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, pipesize=_INPUT_PIPE) as program:
            assert program.stdin is not None
            sock.sendall(b"+")
            buffer = memoryview(bytearray(_READ_BYTES))
            while size:
                got = sock.recv_into(buffer)
                size -= got
                data = buffer[:got]
                while data:
                    data = data[os.write(program.stdin.fileno(), data) :]
            program.wait()
        sock.sendall(b"+")
    finally:
        os._exit(0)


# Those of the kernel alone, by the workload to which they belong.
KERNEL_FLOORS: dict[str, Callable[[Scale], Figures]] = {
    each.__name__: each for each in (spawn_true, pipe_zero, echo, stdin_bulk)
}


def floors(name: str) -> list[Command]:
    """The floor of that name as one more server, which takes part in a few workloads.

    It may be several processes, each for workloads of its own.
    """
    if name == KERNEL:
        return [Command(KERNEL, "", workloads=frozenset(KERNEL_FLOORS))]
    python, folder = shlex.quote(sys.executable), Path(__file__).parent
    commands = []
    for words, workloads in _SERVERS.items():
        script, *kind = words.split()
        line = " ".join([python, shlex.quote(str(folder / script)), *kind, "{port}"])
        commands.append(Command(FLOOR, line, workloads=workloads))
    return commands
