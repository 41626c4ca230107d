"""What the relay costs: output, a large file and a keystroke, through it and directly.

    python bench/remote.py [--rounds 3] [--megabytes 256] [--no-reference]

Everything is on the loopback: a server that listens, the same program behind a rendezvous, and the
reference's executor behind it too, where it is installed. The rendezvous has a process of its own
and takes its share of the machine, so the ratios are a lower bound for what the ends can do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import exec_server
from bench.rendezvous import QuickRendezvous
from exec_server.relay.effects import Send, Validate
from exec_server.relay.harness_end import HarnessEnd
from exec_server.relay.keys import SEED_BYTES, KeyPair
from exec_server.relay.mux import Mux
from tests.support.rendezvous import TOKEN
from tests.support.servers import OURS, reference_binary

_MIB = 1 << 20
_FILE_BYTES = 40 * _MIB
_ECHOES = 500
_HANDSHAKES = 200


class Measured(NamedTuple):
    """MB/s, MB/s, and seconds."""

    output: float
    file: float
    echo: float


async def measure(client: exec_server.ExecServerClient, megabytes: int, path: str) -> Measured:
    return Measured(
        await _output(client, megabytes), await _file(client, path), await _echo(client)
    )


async def _output(client: exec_server.ExecServerClient, megabytes: int) -> float:
    size = megabytes * _MIB
    began = time.perf_counter()
    process = await client.start(["head", "-c", str(size), "/dev/zero"])
    received = 0
    async for chunk in process:
        received += len(chunk.data)
    assert received == size
    return size / 1e6 / (time.perf_counter() - began)


async def _file(client: exec_server.ExecServerClient, path: str) -> float:
    began = time.perf_counter()
    data = await client.fs.read_file(path)
    assert len(data) == _FILE_BYTES
    return _FILE_BYTES / 1e6 / (time.perf_counter() - began)


async def _echo(client: exec_server.ExecServerClient) -> float:
    """The median of keystrokes to a terminal and back."""
    process = await client.start(["sh", "-c", "stty raw -echo; echo ready; exec cat"], tty=True)
    seen = b""
    async for chunk in process:
        seen += chunk.data
        if b"ready" in seen:
            break
    times = []
    for _ in range(_ECHOES):
        began = time.perf_counter()
        await process.write(b"x")
        await anext(process)
        times.append(time.perf_counter() - began)
    await process.terminate()
    return sorted(times)[_ECHOES // 2]


def _handshake() -> float:
    """Seconds of CPU for both ends of one handshake, without the registry."""
    ours, theirs = (KeyPair(os.urandom(SEED_BYTES)) for _ in range(2))
    began = time.process_time()
    for number in range(_HANDSHAKES):
        mux = Mux(theirs, environment_id="e", registration_id="r", random_bytes=os.urandom)
        harness = HarnessEnd(
            ours,
            theirs.public,
            environment_id="e",
            registration_id="r",
            stream_id=f"stream-{number}",
            random_bytes=os.urandom,
        )
        _, hello = harness.start("authorization")
        assert isinstance(hello, Send)
        (question,) = mux.receive(hello.data, now=0.0)
        assert isinstance(question, Validate)
        answer, _ = mux.settle(question.ticket, is_valid=True, now=0.0)
        assert isinstance(answer, Send)
        harness.receive(answer.data)
        assert harness.is_open
    return (time.process_time() - began) / _HANDSHAKES


@contextlib.asynccontextmanager
async def _program(*words: str, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, **env},
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()


async def _line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(10):
        return (await process.stdout.readline()).decode().strip()


@contextlib.asynccontextmanager
async def _behind(words: list[str], **env: str) -> AsyncIterator[str]:
    """An executor behind a rendezvous; its URL for clients."""
    async with _program(sys.executable, __file__, "--serve-rendezvous") as relay:
        url = await _line(relay)
        options = ("--remote", url, "--environment-id", "env-1")
        async with _program(*words, *options, **env):
            assert await _line(relay) == "online"
            yield f"noise+{url}/env-1"


async def _serve_rendezvous() -> None:
    relay = QuickRendezvous()
    await relay.start()
    print(relay.url, flush=True)
    await relay.until(relay.is_online)
    print("online", flush=True)
    await asyncio.get_running_loop().create_future()


async def _round(megabytes: int, path: str, reference: Path | None) -> dict[str, Measured]:
    found = {}
    async with _program(*OURS) as server:
        async with exec_server.connect(await _line(server)) as client:
            found["direct"] = await measure(client, megabytes, path)
    async with _behind(OURS, EXEC_SERVER_REGISTRY_TOKEN=TOKEN) as url:
        async with exec_server.connect(url, token=TOKEN) as client:
            found["relay"] = await measure(client, megabytes, path)
    if reference is not None:
        with tempfile.TemporaryDirectory() as home:
            env = {"CODEX_API_KEY": "sk-loopback", "CODEX_HOME": home}
            async with _behind([str(reference), "exec-server"], **env) as url:
                async with exec_server.connect(url, token=TOKEN) as client:
                    found["reference"] = await measure(client, megabytes, path)
    return found


def _report(rounds: list[dict[str, Measured]]) -> None:
    print(f"handshake, both ends: {_handshake() * 1e3:.2f} ms of CPU")
    best = {
        way: Measured(
            max(each[way].output for each in rounds),
            max(each[way].file for each in rounds),
            min(each[way].echo for each in rounds),
        )
        for way in rounds[0]
    }
    print(f"{'':12}{'output MB/s':>14}{'readFile MB/s':>16}{'keystroke ms':>15}")
    for way, found in best.items():
        print(f"{way:12}{found.output:14.0f}{found.file:16.0f}{found.echo * 1e3:15.2f}")
    direct = best["direct"]
    for way, found in best.items():
        if way != "direct":
            ratios = (
                found.output / direct.output,
                found.file / direct.file,
                found.echo / direct.echo,
            )
            print(f"{way} / direct: " + ", ".join(f"{ratio:.2f}" for ratio in ratios))


async def _main(options: argparse.Namespace) -> None:
    reference = None if options.no_reference else reference_binary()
    with tempfile.NamedTemporaryFile() as file:
        file.write(os.urandom(_FILE_BYTES))
        file.flush()
        _report(
            [await _round(options.megabytes, file.name, reference) for _ in range(options.rounds)]
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--no-reference", action="store_true")
    parser.add_argument("--serve-rendezvous", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    import uvloop

    work = _serve_rendezvous() if options.serve_rendezvous else _main(options)
    uvloop.run(work)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
