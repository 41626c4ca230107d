"""Measure the ssh door beside sshd on the loopback, and beside asyncssh alone.

    make ssh-bench ARGS='--rounds 3 --size 200'

The door's ssh server runs on this machine, and its server on the loopback. "asyncssh alone" runs
the same commands as its own children. All use the same cipher, and take turns. The best of several
rounds counts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine
from bench.transfer import running, start_sshd

_CIPHER = "aes128-gcm@openssh.com"
_CONNECT = "connect+true"

_ASYNCSSH = """\
import asyncio, sys
import asyncssh, uvloop
async def handle(stdin, stdout, stderr):
    child = await asyncio.create_subprocess_shell(
        stdout.channel.get_command(), stdin=-1, stdout=-1, limit=1 << 20)
    async def feed():
        while data := await stdin.read(1 << 18):
            child.stdin.write(data)
            await child.stdin.drain()
        child.stdin.close()
    feeding = asyncio.create_task(feed())
    while data := await child.stdout.read(1 << 18):
        stdout.write(data)
        await stdout.drain()
    stdout.channel.exit(await child.wait())
    feeding.cancel()
class Server(asyncssh.SSHServer):
    def begin_auth(self, username):
        return False
async def main():
    listener = await asyncssh.listen("127.0.0.1", 0, server_factory=Server, session_factory=handle,
        server_host_keys=[sys.argv[1]], encoding=None, sftp_factory=asyncssh.SFTPServer,
        line_editor=False)
    print(listener.get_port(), flush=True)
    await asyncio.Future()
uvloop.run(main())
"""

_ASYNCSSH_CONFIG = """\
Host there
    HostName 127.0.0.1
    Port {port}
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
"""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=200, help="MB [default: %(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="[default: %(default)s]")
    options = parser.parse_args(words)
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with (
        tempfile.TemporaryDirectory(dir=memory, prefix="ssh-") as name,
        contextlib.ExitStack() as stack,
    ):
        folder = Path(name)
        (folder / "large").write_bytes(os.urandom(1_000_000) * options.size)
        hosts = _hosts(stack, folder)
        table = _measure(hosts, folder, options)
    print("\n".join(f"{name}: {fact}" for name, fact in machine.facts().items()))
    print(f"Load: {machine.load():.1f}\n\n{table}")
    return 0


def _hosts(stack: contextlib.ExitStack, folder: Path) -> dict[str, list[str]]:
    """The options of ssh for each of them."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if sshd is None or shutil.which("rsync") is None:
        raise SystemExit("sshd and rsync have to be installed")
    beside = start_sshd(stack, sshd, folder)
    config = door_config(stack, folder)
    control = tempfile.TemporaryDirectory(prefix="cp-")
    stack.enter_context(control)
    shared = ["-F", config, "-o", f"ControlPath={control.name}/c"]
    stack.enter_context(running(["ssh", *shared, "-M", "-N", "there"]))
    cold = folder / "cold"
    cold.write_text(Path(config).read_text().replace("--linger 30", "--linger 0"))
    return {
        "sshd": ["-F", beside],
        "asyncssh alone": ["-F", _asyncssh_config(stack, folder)],
        "door": ["-F", config],
        "door, not warm": ["-F", str(cold)],
        "door, ControlMaster": shared,
    }


def door_config(stack: contextlib.ExitStack, folder: Path) -> str:
    program = [sys.executable, "-m", "exec_server"]
    server = stack.enter_context(running(program, stdout=subprocess.PIPE))
    assert server.stdout is not None
    url = server.stdout.readline().decode().strip()
    os.environ["XDG_STATE_HOME"] = str(folder)
    command = [str(Path(sys.executable).with_name("exec-server")), "ssh-config", "--linger", "30"]
    made = subprocess.run([*command, f"there={url}"], check=True, capture_output=True).stdout
    (folder / "door_config").write_bytes(made)
    return str(folder / "door_config")


def _asyncssh_config(stack: contextlib.ExitStack, folder: Path) -> str:
    words = [sys.executable, "-c", _ASYNCSSH, str(folder / "ssh/host")]
    server = stack.enter_context(running(words, stdout=subprocess.PIPE))
    assert server.stdout is not None
    path = folder / "asyncssh_config"
    path.write_text(_ASYNCSSH_CONFIG.format(port=server.stdout.readline().decode().strip()))
    return str(path)


def _measure(hosts: dict[str, list[str]], folder: Path, options: argparse.Namespace) -> str:
    """All hosts have their turns in each round, so that a busy moment meets all of them."""
    best: dict[str, dict[str, float]] = {name: {} for name in hosts}
    for turn in range(options.rounds + 1):
        for name, words in hosts.items():
            for task, (command, given) in _tasks(words, folder).items():
                # The first round of `true` opens the doors, and counts for nothing.
                for _ in range(3 if task == _CONNECT else bool(turn)):
                    seconds = _timed(command, given, folder / "copy")
                    if turn:
                        best[name][task] = min(seconds, best[name].get(task, seconds))
        print(f"round {turn} of {options.rounds}", file=sys.stderr)
    return _table(best, options.size)


def _tasks(words: list[str], folder: Path) -> dict[str, tuple[list[str], bytes | Path]]:
    large, copy = folder / "large", folder / "copy"
    words = [*words, "-o", f"Ciphers={_CIPHER}"]
    ssh, shell = ["ssh", *words, "there"], " ".join(["ssh", *words])
    sftp = ["sftp", "-q", *words, "-b", "-", "there"]
    return {
        _CONNECT: ([*ssh, "true"], b""),
        "out": ([*ssh, f"cat {large}"], b""),
        "in": ([*ssh, "cat > /dev/null"], large),
        "sftp get": (sftp, f"get {large} {copy}".encode()),
        "sftp put": (sftp, f"put {large} {copy}".encode()),
        "rsync up": (["rsync", "-We", shell, str(large), f"there:{copy}"], b""),
        "rsync down": (["rsync", "-We", shell, f"there:{large}", str(copy)], b""),
    }


def _table(best: dict[str, dict[str, float]], size: int) -> str:
    def cell(task: str, seconds: float) -> str:
        return f"{seconds * 1000:.0f} ms" if task == _CONNECT else f"{size / seconds:.0f} MB/s"

    alone, door = best["asyncssh alone"], best["door"]
    rows = [("host", *alone)]
    rows += [(name, *(cell(*each) for each in times.items())) for name, times in best.items()]
    rows.append(("door : asyncssh alone", *(f"{alone[task] / door[task]:.2f}" for task in alone)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows
    )


def _timed(command: list[str], given: bytes | Path, copy: Path) -> float:
    copy.unlink(missing_ok=True)
    started = time.perf_counter()
    if isinstance(given, bytes):
        subprocess.run(command, input=given, stdout=subprocess.DEVNULL, check=True)
    else:
        with given.open("rb") as file:
            subprocess.run(command, stdin=file, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
