"""Copy a large file over a slow link with `exec-server cp`, scp and rsync's own protocol.

    python bench/slow_transfer.py [--size 100] [--delay 50] [--rate 100] [--rounds 2]

The link is made here, between two network namespaces, so this needs root. The first row is one TCP
connection that sends the same bytes and does nothing else: what is above it is not the link.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine
from bench.slow_link import HERE, THERE, SlowLink
from bench.transfer import running

_MIB = 1 << 20
_START_SECONDS = 20.0
_SSH_PORT, _RSYNC_PORT, _RAW_PORT = 2222, 8730, 9000
_RAW_SERVER = """
import socket, sys
with socket.create_server(("{host}", {port})) as listener:
    while True:
        with listener.accept()[0] as peer:
            if peer.recv(1) == b"d":
                with open(sys.argv[1], "rb") as file:
                    peer.sendfile(file)
            else:
                while peer.recv(1 << 20):
                    pass
"""
_RAW_CLIENT = """
import socket, sys
with socket.create_connection(("{host}", {port})) as peer:
    peer.sendall(sys.argv[1].encode())
    if sys.argv[1] == "u":
        with open(sys.argv[2], "rb") as file:
            peer.sendfile(file)
        peer.shutdown(socket.SHUT_WR)
    while peer.recv(1 << 20):
        pass
"""

# The command that copies, by the direction: "up" or "down".
Copier = Callable[[str, Path, Path], list[str]]


def _raw(stack: contextlib.ExitStack, link: SlowLink, folder: Path) -> Copier:
    words = {"host": THERE, "port": _RAW_PORT}
    server = [sys.executable, "-c", _RAW_SERVER.format(**words), str(folder / "large")]
    stack.enter_context(running(link.command(THERE, server)))
    client = [sys.executable, "-c", _RAW_CLIENT.format(**words)]
    return lambda way, source, target: [*client, way[0], str(source)]


def _ours(stack: contextlib.ExitStack, link: SlowLink) -> Copier:
    program = [sys.executable, "-m", "exec_server"]
    serve = [*program, "--listen", f"ws://{THERE}:0", "--insecure-no-auth"]
    server = stack.enter_context(running(link.command(THERE, serve), stdout=subprocess.PIPE))
    assert server.stdout is not None
    url = server.stdout.readline().decode().strip()
    copy = [*program, "cp", "-q"]

    def words(way: str, source: Path, target: Path) -> list[str]:
        places = (str(source), f"{url}:{target}") if way == "up" else (f"{url}:{source}", target)
        return [*copy, *map(str, places)]

    return words


def _scp(stack: contextlib.ExitStack, link: SlowLink, folder: Path) -> Copier:
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    assert sshd is not None
    for name in ("host", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(key, check=True)
    lines = [
        f"ListenAddress {THERE}:{_SSH_PORT}",
        f"HostKey {folder}/host",
        f"AuthorizedKeysFile {folder}/user.pub",
        "StrictModes no\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\n",
    ]
    (folder / "sshd_config").write_text("\n".join(lines))
    # sshd needs this directory for its privilege separation.
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    serve = [sshd, "-D", "-f", str(folder / "sshd_config")]
    stack.enter_context(running(link.command(THERE, serve)))
    options = "-oStrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null -oLogLevel=ERROR"
    copy = ["scp", "-q", "-P", str(_SSH_PORT), "-i", str(folder / "user"), *options.split()]

    def words(way: str, source: Path, target: Path) -> list[str]:
        if way == "up":
            return [*copy, str(source), f"{THERE}:{target}"]
        return [*copy, f"{THERE}:{source}", str(target)]

    return words


def _rsync(stack: contextlib.ExitStack, link: SlowLink, folder: Path) -> Copier:
    config = folder / "rsyncd.conf"
    config.write_text(
        f"use chroot = no\nuid = root\ngid = root\n[all]\npath = {folder}\nread only = no\n"
    )
    serve = ["rsync", "--daemon", "--no-detach", f"--config={config}", f"--address={THERE}"]
    serve += [f"--port={_RSYNC_PORT}", f"--log-file={folder}/rsyncd.log"]
    stack.enter_context(running(link.command(THERE, serve)))
    place = f"rsync://{THERE}:{_RSYNC_PORT}/all"
    copy = ["rsync", "-a", "--whole-file"]

    def words(way: str, source: Path, target: Path) -> list[str]:
        if way == "up":
            return [*copy, str(source), f"{place}/{target.name}"]
        return [*copy, f"{place}/{source.name}", str(target)]

    return words


def _contestants(
    stack: contextlib.ExitStack, link: SlowLink, folder: Path
) -> dict[str, tuple[int, Copier]]:
    """By name: the port that has to answer first, or 0, and the command that copies."""
    found = {
        "TCP alone": (_RAW_PORT, _raw(stack, link, folder)),
        "exec-server cp": (0, _ours(stack, link)),
    }
    if shutil.which("scp") and shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin"):
        found["scp"] = (_SSH_PORT, _scp(stack, link, folder))
    if shutil.which("rsync"):
        found["rsync, its own protocol"] = (_RSYNC_PORT, _rsync(stack, link, folder))
    return found


def _wait_for(link: SlowLink, port: int) -> None:
    probe = f"import socket; socket.create_connection(('{THERE}', {port})).close()"
    deadline = time.monotonic() + _START_SECONDS
    command = link.command(HERE, [sys.executable, "-c", probe])
    while subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode:
        if time.monotonic() > deadline:
            raise SystemExit(f"nothing answers at port {port}")


def _race(folder: Path, options: argparse.Namespace) -> dict[tuple[str, str], list[float]]:
    times: dict[tuple[str, str], list[float]] = {}
    source, target = folder / "large", folder / "copy"
    bits, delay = options.rate * 1e6, options.delay / 1e3
    with SlowLink(delay=delay, bits=bits) as link, contextlib.ExitStack() as stack:
        contestants = _contestants(stack, link, folder)
        for port, _ in contestants.values():
            if port:
                _wait_for(link, port)
        for _ in range(options.rounds):
            for way in ("up", "down"):
                for name, (_, copier) in contestants.items():
                    command = link.command(HERE, copier(way, source, target))
                    begun = time.perf_counter()
                    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                    times.setdefault((name, way), []).append(time.perf_counter() - begun)
                    if target.exists():
                        assert target.stat().st_size == source.stat().st_size, name
                        target.unlink()
        print(f"packets that the queue of the link dropped: {link.dropped}", file=sys.stderr)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--size", type=int, default=100, help="MiB [default: 100]")
    add("--delay", type=float, default=50, help="ms of a round trip [default: 50]")
    add("--rate", type=float, default=100, help="Mbit/s each way [default: 100]")
    add("--rounds", type=int, default=2, help="how often everything is done [default: 2]")
    options = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("this makes network namespaces and needs root")
    with tempfile.TemporaryDirectory(prefix="slow-") as name:
        folder = Path(name)
        with open(folder / "large", "wb") as file:
            for _ in range(options.size):
                file.write(os.urandom(_MIB))
        times = _race(folder, options)
    least = options.size * _MIB * 8 / (options.rate * 1e6)
    print(
        f"{options.size} MiB, {options.delay:g} ms, {options.rate:g} Mbit/s; the bytes alone take "
        f"{least:.2f} s; load {machine.load():.1f}"
    )
    for (who, way), seconds in times.items():
        middle = statistics.median(seconds)
        share = least / middle
        print(f"{who:24} {way:5} {middle:7.2f} s ({min(seconds):.2f})  {share:4.0%} of the rate")


if __name__ == "__main__":
    main()
