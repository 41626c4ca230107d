"""Copy a tree of small files and one large file with `exec-server cp`, scp, sftp and rsync.

    make transfer ARGS='--rounds 1'

All of them talk to a server of their own on the loopback: ours, and an sshd with throwaway keys.
What is not installed is named and left out. The ssh ones encrypt, and ours over ws:// does not; it
is meant for the loopback, a Unix socket, or a tunnel that does. rsync's own protocol does not
encrypt either.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine

_START_TIMEOUT = 10.0
_SSHD_CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PidFile none
Subsystem sftp internal-sftp
"""
_SSH_CONFIG = """\
Host there
    HostName 127.0.0.1
    Port {port}
    IdentityFile {folder}/user
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
"""

# Copies a path to another one; either is on the server.
Copier = Callable[[Path, Path], list[str]]


class Contestant(NamedTuple):
    name: str
    up: Copier
    down: Copier
    # Commands on stdin, for sftp alone.
    reads_commands: bool = False


class Task(NamedTuple):
    name: str
    source: Path
    is_upload: bool


def main(words: list[str]) -> int:
    options = _options(words)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="transfer-") as name:
        folder = Path(name)
        _make_files(folder, options)
        tree, large = folder / "tree", folder / "large"
        tasks = [
            Task(f"{options.files} files {direction}", tree, is_upload)
            for direction, is_upload in (("up", True), ("down", False))
        ] + [
            Task(f"{options.size} MiB {direction}", large, is_upload)
            for direction, is_upload in (("up", True), ("down", False))
        ]
        with contextlib.ExitStack() as stack:
            contestants = [*_ours(stack), *_others(stack, folder), *_rsync_daemon(stack, folder)]
            if options.only:
                contestants = [each for each in contestants if each.name in options.only]
            times = _race(contestants, tasks, folder, options.rounds)
    print(_table(contestants, tasks, times))
    return 0


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench/transfer.py",
        description=__doc__.split("\n\n")[0] if __doc__ else None,
    )
    add = parser.add_argument
    add("--files", type=int, default=10_000, help="how many small files [default: 10000]")
    add("--size", type=int, default=1024, help="MiB of the large file [default: 1024]")
    add("--rounds", type=int, default=3, help="how often everything is done [default: 3]")
    add("--only", action="append", metavar="NAME", help="those alone, the first as the measure")
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    add("--folder", default=memory, help="where to work; memory tells more than a disk")
    return parser.parse_args(words)


def _make_files(folder: Path, options: argparse.Namespace) -> None:
    """Files of up to 8 KiB, a hundred in each directory, and one large one."""
    chance = random.Random(1)
    for number in range(options.files):
        path = folder / "tree" / f"d{number // 100}" / f"file-{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(chance.randrange(8 * 1024)))
    with open(folder / "large", "wb") as file:
        for _ in range(options.size):
            file.write(chance.randbytes(1024 * 1024))


# The contestants.


def _ours(stack: contextlib.ExitStack) -> list[Contestant]:
    program = [sys.executable, "-m", "exec_server"]
    server = stack.enter_context(running(program, stdout=subprocess.PIPE))
    assert server.stdout is not None
    url = server.stdout.readline().decode().strip()
    copy = [*program, "cp", "-r", "-q"]
    return [
        Contestant(
            "exec-server cp",
            lambda source, target: [*copy, str(source), f"{url}:{target}"],
            lambda source, target: [*copy, f"{url}:{source}", str(target)],
        )
    ]


def _others(stack: contextlib.ExitStack, folder: Path) -> list[Contestant]:
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    programs = {name: shutil.which(name) for name in ("ssh", "ssh-keygen", "scp", "sftp", "rsync")}
    missing = [name for name, path in {"sshd": sshd, **programs}.items() if path is None]
    if missing:
        print(f"not installed: {', '.join(missing)}", file=sys.stderr)
    if sshd is None or programs["ssh"] is None or programs["ssh-keygen"] is None:
        return []
    config = start_sshd(stack, sshd, folder)
    shell = f"ssh -F {config}"
    found = {
        "scp": Contestant(
            "scp",
            lambda source, target: ["scp", "-qrpF", config, str(source), f"there:{target}"],
            lambda source, target: ["scp", "-qrpF", config, f"there:{source}", str(target)],
        ),
        "sftp": Contestant(
            "sftp",
            lambda source, target: [f"put -rp {source} {target}"],
            lambda source, target: [f"get -rp {source} {target}"],
            reads_commands=True,
        ),
        "rsync": Contestant(
            "rsync -a",
            # A slash, because it would put a directory into a new one otherwise.
            lambda source, target: ["rsync", "-ae", shell, _inside(source), f"there:{target}"],
            lambda source, target: ["rsync", "-ae", shell, f"there:{_inside(source)}", str(target)],
        ),
    }
    return [contestant for name, contestant in found.items() if programs[name] is not None]


def _rsync_daemon(stack: contextlib.ExitStack, folder: Path) -> list[Contestant]:
    if shutil.which("rsync") is None:
        return []
    there = start_rsync_daemon(stack, folder)
    return [
        Contestant(
            "rsync's protocol",
            lambda source, target: ["rsync", "-a", _inside(source), f"{there}/{target.name}"],
            lambda source, target: [
                "rsync",
                "-a",
                f"{there}/{source.name}" + ("/" if source.is_dir() else ""),
                str(target),
            ],
        )
    ]


def start_rsync_daemon(stack: contextlib.ExitStack, folder: Path) -> str:
    """Start rsync's own server for *folder* on the loopback; its URL."""
    port = _free_port()
    config = folder / "rsyncd.conf"
    owner = "uid = root\ngid = root\n" if os.geteuid() == 0 else ""
    config.write_text(f"use chroot = no\n{owner}[all]\npath = {folder}\nread only = no\n")
    serve = ["rsync", "--daemon", "--no-detach", f"--config={config}", "--address=127.0.0.1"]
    serve += [f"--port={port}", f"--log-file={folder}/rsyncd.log"]
    stack.enter_context(running(serve))
    wait_for(port)
    return f"rsync://127.0.0.1:{port}/all"


def _inside(path: Path) -> str:
    return f"{path}/" if path.is_dir() else str(path)


def start_sshd(stack: contextlib.ExitStack, sshd: str, folder: Path) -> str:
    """Start a server that accepts the new key; returns the client's configuration."""
    keys = folder / "ssh"
    keys.mkdir()
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / name], check=True
        )
    port = _free_port()
    for name, text in (("sshd_config", _SSHD_CONFIG), ("ssh_config", _SSH_CONFIG)):
        (keys / name).write_text(text.format(port=port, folder=keys))
    if os.geteuid() == 0:
        # sshd needs this directory for its privilege separation.
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    stack.enter_context(running([sshd, "-D", "-f", str(keys / "sshd_config")]))
    wait_for(port)
    return str(keys / "ssh_config")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


@contextlib.contextmanager
def running(
    command: list[str], stdout: int = subprocess.DEVNULL, *, stdin: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdin=stdin, stdout=stdout)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + _START_TIMEOUT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


# The race.


def _race(
    contestants: list[Contestant], tasks: list[Task], folder: Path, rounds: int
) -> dict[tuple[str, str], list[float]]:
    """Seconds by contestant and task; everybody takes turns, so that a bad moment hits all."""
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        for task in tasks:
            for contestant in contestants:
                seconds = _run(contestant, task, folder)
                times.setdefault((contestant.name, task.name), []).append(seconds)
                line = f"round {number + 1}: {task.name:<18} {contestant.name:<15} {seconds:7.2f} s"
                print(line, file=sys.stderr)
    return times


def _run(contestant: Contestant, task: Task, folder: Path) -> float:
    target = folder / "copy"
    copier = contestant.up if task.is_upload else contestant.down
    command, commands = copier(task.source, target), b""
    if contestant.reads_commands:
        commands = "\n".join(command).encode()
        command = ["sftp", "-q", "-b", "-", "-F", str(folder / "ssh" / "ssh_config"), "there"]
    started = time.perf_counter()
    subprocess.run(command, input=commands, stdout=subprocess.DEVNULL, check=True)
    seconds = time.perf_counter() - started
    if _measured(target) != _measured(task.source):
        raise SystemExit(f"{contestant.name} has not copied everything")
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    return seconds


def _measured(path: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times of all files."""
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    stats = [(file, file.stat()) for file in files]
    return [(str(f.relative_to(path)), s.st_size, int(s.st_mtime)) for f, s in stats]


def _table(
    contestants: list[Contestant], tasks: list[Task], times: dict[tuple[str, str], list[float]]
) -> str:
    """Medians in seconds, the fastest in brackets, and how many times as long as ours."""
    rows = [["", *(task.name for task in tasks)]]
    ours = contestants[0].name
    for contestant in contestants:
        cells = []
        for task in tasks:
            seconds = times[contestant.name, task.name]
            ratio = statistics.median(seconds) / statistics.median(times[ours, task.name])
            cells.append(f"{statistics.median(seconds):.2f} ({min(seconds):.2f})  {ratio:.1f}x")
        rows.append([contestant.name, *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    facts = [f"{name}: {fact}" for name, fact in machine.facts().items()]
    return "\n".join([*facts, f"Load: {machine.load():.1f}", "", *lines])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
