"""Measure forwards: `exec-server port -L`, direct and through a relay, beside `ssh -L`.

    make ports ARGS='--megabytes 500'

Each forward leads to the same sink and source on the loopback. The rate is that of one connection,
and the echo is the time of one byte there and back while another connection of the same forward
is saturated. ssh encrypts, and a direct connection over ws:// does not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine
from bench.transfer import running, start_sshd, wait_for

_OURS = [sys.executable, "-m", "exec_server"]
_BLOCK = bytes(1 << 20)
_ECHOES = 200
# How often a client asks for a server that is registering.
_ATTEMPTS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure forwards beside `ssh -L`.")
    parser.add_argument("--megabytes", type=int, default=300)
    size = parser.parse_args().megabytes
    for name, value in machine.facts().items():
        print(f"{name}: {value}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ports-")))
        os.environ["XDG_STATE_HOME"] = str(folder)
        far = stack.enter_context(_target())
        print(f"{'forward':24}{'down MB/s':>12}{'up MB/s':>12}{'echo p50 ms':>14}{'p99 ms':>10}")
        for name, port in _forwards(stack, folder, far):
            down, up = _rate(port, b"s", size), _rate(port, b"r", size)
            middle, late = _echo(port)
            print(f"{name:24}{down:12.0f}{up:12.0f}{middle:14.2f}{late:10.2f}", flush=True)


def _forwards(stack: contextlib.ExitStack, folder: Path, far: int) -> Iterator[tuple[str, int]]:
    yield "no forward", far
    server = stack.enter_context(running([*_OURS, "--listen", "ws://127.0.0.1:0"], subprocess.PIPE))
    yield "exec-server port -L", _our_forward(stack, _last_word(server), far)
    relayed, words = _behind_registry(stack, folder)
    yield "the same through a relay", _our_forward(stack, relayed, far, *words)
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if sshd is None or shutil.which("ssh") is None:
        print("not installed: ssh", file=sys.stderr)
        return
    config = start_sshd(stack, sshd, folder)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    stack.enter_context(
        running(["ssh", "-F", config, "-N", "-L", f"{port}:127.0.0.1:{far}", "there"])
    )
    wait_for(port)
    yield "ssh -L", port


def _behind_registry(stack: contextlib.ExitStack, folder: Path) -> tuple[str, list[str]]:
    """A server behind a registry of its own: its URL, and the words that let a client in."""
    registry = stack.enter_context(
        running([*_OURS, "registry", "--listen", "ws://127.0.0.1:0"], subprocess.PIPE)
    )
    url = _last_word(registry)
    files = {}
    for kind in ("enrol", "harness"):
        words = [*_OURS, "registry", "token", "create", kind, kind, "--env", "bench"]
        files[kind] = folder / kind
        files[kind].write_bytes(subprocess.check_output(words))
    words = ["--remote", url, "--environment-id", "bench", "--registry-token-file"]
    stack.enter_context(running([*_OURS, *words, str(files["enrol"])]))
    access = ["--token-file", str(files["harness"])]
    place = f"noise+{url}/bench"
    for _ in range(_ATTEMPTS):
        if subprocess.run(
            [*_OURS, "run", *access, place, "--", "true"], capture_output=True, check=False
        ).returncode:
            continue
        return place, access
    raise RuntimeError("the server has not registered")


def _our_forward(stack: contextlib.ExitStack, url: str, far: int, *access: str) -> int:
    words = [*_OURS, "port", url, *access, "-o", "json", "-L", f"0:127.0.0.1:{far}"]
    process = stack.enter_context(running(words, subprocess.PIPE))
    assert process.stdout is not None
    text = b""
    while not text.endswith(b"]\n"):
        text += process.stdout.readline()
    return int(json.loads(text)[0]["listen"].rpartition(":")[2])


def _last_word(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().split()[-1]


@contextlib.contextmanager
def _target() -> Iterator[int]:
    """The port of a server in another process that sends, receives or echoes."""
    program = (
        "import socket, threading\n"
        "def serve(c):\n"
        "    try:\n"
        "        kind, block = c.recv(1), bytes(1 << 20)\n"
        "        if kind == b's':\n"
        "            while True: c.sendall(block)\n"
        "        elif kind == b'r':\n"
        "            while c.recv(1 << 20): pass\n"
        "            c.sendall(b'x')\n"
        "        else:\n"
        "            while d := c.recv(1): c.sendall(d)\n"
        "    except OSError: pass\n"
        "s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        "while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()\n"
    )
    with running([sys.executable, "-c", program], subprocess.PIPE) as process:
        yield int(_last_word(process))


def _rate(port: int, kind: bytes, megabytes: int) -> float:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        begun, count = time.perf_counter(), 0
        sock.sendall(kind)
        while count < megabytes << 20:
            if kind == b"s":
                count += len(sock.recv(1 << 20))
            else:
                sock.sendall(_BLOCK)
                count += len(_BLOCK)
        if kind == b"r":
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1)
        return count / (time.perf_counter() - begun) / 1e6


def _echo(port: int) -> tuple[float, float]:
    """Milliseconds for a byte there and back while another connection is saturated."""
    is_over = threading.Event()

    def saturate() -> None:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(b"s")
            while not is_over.is_set():
                sock.recv(1 << 20)

    thread = threading.Thread(target=saturate)
    thread.start()
    try:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            sock.sendall(b"e")
            times = []
            for _ in range(_ECHOES):
                begun = time.perf_counter()
                sock.sendall(b"k")
                sock.recv(1)
                times.append((time.perf_counter() - begun) * 1e3)
    finally:
        is_over.set()
        thread.join()
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


if __name__ == "__main__":
    main()
