"""Measure forwards: `exec-server port -L`, direct and through a relay, beside `ssh -L`.

    make ports ARGS='--megabytes 500'

Each forward leads to the same sink and source on the loopback. The rate is that of one connection,
with the processor time of both ends of the forward (and of the registry) for each megabyte; the
processor time says more than the rate on a machine that has other work. The echo is the time of one
byte there and back: alone, and while another connection of the same forward is saturated, down and
up. The share is what the slowest of two, and of four, saturated connections gets, compared with
their mean. ssh encrypts, and a direct connection over ws:// does not.
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
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine, proc
from bench.transfer import running, start_sshd, wait_for

_OURS = [sys.executable, "-m", "exec_server"]
_BLOCK = bytes(1 << 20)
_ECHOES = 200
_BETWEEN_KEYS = 0.005
_ECHO_ROUNDS = 3
# Reads from the target behind a port for ever, or writes to it.
_SATURATE = """\
import socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
kind, block = sys.argv[2].encode(), bytes(1 << 20)
sock.sendall(kind)
print(flush=True)
while kind == b"r": sock.sendall(block)
while sock.recv(1 << 20): pass
"""
# It reads, but it counts for a while from the first line of its input on.
_COUNT = """\
import socket, sys, time
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sock.sendall(b"s")
sock.recv(1)
print(flush=True)
sys.stdin.readline()
count, end = 0, time.monotonic() + float(sys.argv[2])
while time.monotonic() < end: count += len(sock.recv(1 << 20))
print(count, flush=True)
"""
_SHARE_SECONDS = 2.0
_SHARE_ROUNDS = 3
_SATURATED = (2, 4)
_KINDS = ["direct", "relay", "ssh"]
# How often a client asks for a server that is registering.
_ATTEMPTS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure forwards beside `ssh -L`.")
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--forwards", nargs="+", choices=_KINDS, default=_KINDS)
    options = parser.parse_args()
    size = options.megabytes
    for name, value in machine.facts().items():
        print(f"{name}: {value}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ports-")))
        os.environ["XDG_STATE_HOME"] = str(folder)
        far = stack.enter_context(target())
        print(
            f"{'':24}{'MB/s':>14}{'CPU ms/MB':>16}{'echo p50, p99 ms':>20}{'beside a load':>20}"
            f"{'beside a load':>20}{'least share':>14}{'load':>8}"
        )
        print(
            f"{'forward':24}{'down, up':>14}{'down, up':>16}{'alone':>20}{'down':>20}{'up':>20}"
            f"{'of 2, of 4':>14}{'average':>8}"
        )
        for forward in forwards(stack, folder, far, options.forwards):
            rates = [rate(forward, kind, size) for kind in (b"s", b"r")]
            shown = [" ".join(f"{each:6.1f}" for each in pair) for pair in zip(*rates, strict=True)]
            alone, down, up = (_words(each) for each in _echo(forward.port))
            least = " ".join(f"{_least_share(forward.port, count):.2f}" for count in _SATURATED)
            print(
                f"{forward.name:24}{shown[0]:>14}{shown[1]:>16}{alone:>20}{down:>20}{up:>20}"
                f"{least:>14}{machine.load():8.1f}",
                flush=True,
            )


def _words(times: list[float]) -> str:
    return f"{statistics.median(times):.2f} {statistics.quantiles(times, n=100)[98]:.2f}"


class Forward(NamedTuple):
    """A port that leads to the target, and the processes that carry what goes through it."""

    name: str
    port: int
    pids: tuple[int, ...] = ()

    def processor_seconds(self) -> float:
        return proc.cpu_seconds(proc.Identity(pid, 0) for pid in self.pids)


def forwards(
    stack: contextlib.ExitStack, folder: Path, far: int, kinds: list[str]
) -> Iterator[Forward]:
    yield Forward("no forward", far)
    if "direct" in kinds:
        listen = [*_OURS, "--listen", "ws://127.0.0.1:0"]
        server = stack.enter_context(running(listen, subprocess.PIPE))
        port, pid = our_forward(stack, _last_word(server), far)
        yield Forward("exec-server port -L", port, (server.pid, pid))
    if "relay" in kinds:
        relayed, words, pids = behind_registry(stack, folder)
        port, pid = our_forward(stack, relayed, far, *words)
        yield Forward("the same through a relay", port, (*pids, pid))
    if "ssh" in kinds and (found := ssh_forward(stack, folder, far)):
        yield found


def ssh_forward(stack: contextlib.ExitStack, folder: Path, far: int) -> Forward | None:
    """The same by `ssh -L`, if ssh is installed."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if sshd is None or shutil.which("ssh") is None:
        print("not installed: ssh", file=sys.stderr)
        return None
    config = start_sshd(stack, sshd, folder)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ssh = stack.enter_context(
        running(["ssh", "-F", config, "-N", "-L", f"{port}:127.0.0.1:{far}", "there"])
    )
    wait_for(port)
    # The far end is a child of sshd, whose time is not counted.
    return Forward("ssh -L (near end alone)", port, (ssh.pid,))


def behind_registry(
    stack: contextlib.ExitStack, folder: Path
) -> tuple[str, list[str], tuple[int, int]]:
    """A server behind a registry of its own.

    Its URL, the words that let a client in, and the processes of both.
    """
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
    server = stack.enter_context(running([*_OURS, *words, str(files["enrol"])]))
    access = ["--token-file", str(files["harness"])]
    place = f"noise+{url}/bench"
    for _ in range(_ATTEMPTS):
        if subprocess.run(
            [*_OURS, "run", *access, place, "--", "true"], capture_output=True, check=False
        ).returncode:
            continue
        return place, access, (registry.pid, server.pid)
    raise RuntimeError("the server has not registered")


def our_forward(stack: contextlib.ExitStack, url: str, far: int, *access: str) -> tuple[int, int]:
    """The port of a forward, and its process."""
    words = [*_OURS, "port", url, *access, "-o", "json", "-L", f"0:127.0.0.1:{far}"]
    process = stack.enter_context(running(words, subprocess.PIPE))
    assert process.stdout is not None
    text = b""
    while not text.endswith(b"]\n"):
        text += process.stdout.readline()
    return int(json.loads(text)[0]["listen"].rpartition(":")[2]), process.pid


def _last_word(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().split()[-1]


@contextlib.contextmanager
def target() -> Iterator[int]:
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


def rate(forward: Forward, kind: bytes, megabytes: int) -> tuple[float, float]:
    """Megabytes in a second, and milliseconds of processor time for a megabyte."""
    with socket.create_connection(("127.0.0.1", forward.port)) as sock:
        used = forward.processor_seconds()
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
        rate = count / (time.perf_counter() - begun) / 1e6
        return rate, (forward.processor_seconds() - used) * 1e9 / count


def _echo(port: int) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds for a byte there and back: alone, and beside a saturated connection.

    That connection is saturated down, then up. All are measured in turn, because the other work of
    the machine changes from second to second. Another process saturates the connection: a thread of
    this one would delay the keys.
    """
    alone: list[float] = []
    beside: dict[str, list[float]] = {"s": [], "r": []}
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        sock.sendall(b"e")
        _keys(sock)
        for _ in range(_ECHO_ROUNDS):
            alone += _keys(sock)
            for kind, times in beside.items():
                words = [sys.executable, "-c", _SATURATE, str(port), kind]
                with running(words, subprocess.PIPE) as process:
                    assert process.stdout is not None
                    process.stdout.readline()
                    # The other connection has to get going.
                    _keys(sock)
                    times += _keys(sock)
    return alone, beside["s"], beside["r"]


def _least_share(port: int, count: int) -> float:
    """What the slowest of *count* saturated connections gets of their mean; median of rounds."""
    return statistics.median(_one_least_share(port, count) for _ in range(_SHARE_ROUNDS))


def _one_least_share(port: int, count: int) -> float:
    words = [sys.executable, "-c", _COUNT, str(port), str(_SHARE_SECONDS)]
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(running(words, subprocess.PIPE, stdin=subprocess.PIPE))
            for _ in range(count)
        ]
        for each in readers:
            assert each.stdout is not None
            each.stdout.readline()
        for each in readers:
            assert each.stdin is not None
            each.stdin.write(b"\n")
            each.stdin.flush()
        got = [int(_last_word(each)) for each in readers]
    return min(got) / statistics.mean(got)


def _keys(sock: socket.socket) -> list[float]:
    times = []
    for _ in range(_ECHOES):
        begun = time.perf_counter()
        sock.sendall(b"k")
        sock.recv(1)
        times.append((time.perf_counter() - begun) * 1e3)
        # As keys are typed: not without a pause.
        time.sleep(_BETWEEN_KEYS)
    return times


if __name__ == "__main__":
    main()
