"""What the relay costs: output, a large file and a keystroke, through it and directly.

    python bench/remote.py [--rounds 3] [--megabytes 256] [--no-reference] [--beside OLD/src]

Everything is on the loopback: a server that listens, the same program behind a rendezvous that does
nothing else, behind a registry of ours, and the reference's executor behind that rendezvous, where
it is installed. The node has a process of its own and takes its share of the machine, so a second
table has the processor time of each process for a GiB of output, and the rate that it would allow
if every process had a core of its own, where the busiest one decides.

With --beside, the programs of another source tree are measured in the same rounds, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import machine, proc
from bench.registries import make_tokens
from bench.rendezvous import QuickRendezvous
from exec_server.relay.effects import Send, Validate
from exec_server.relay.harness_end import HarnessEnd
from exec_server.relay.keys import SEED_BYTES, KeyPair
from exec_server.relay.mux import Mux
from tests.support.rendezvous import TOKEN
from tests.support.servers import OURS, reference_binary

_ROOT = Path(__file__).resolve().parent.parent
_GIB = 1 << 30
_FILE_BYTES = 40 << 20
_HANDSHAKES = 200
_CLIENT = [sys.executable, str(_ROOT / "bench" / "remote_client.py")]
_QUIET = ("--log-level", "error")
_ONLINE_SECONDS = 10.0
# A keeper is there soon; the reference has none.
_KEEPER_LOOKS = 40

# MB/s of `output` and `file`, seconds of `echo`, and `cpu`: seconds for a GiB of output by process.
Figures = dict[str, Any]


class Target(NamedTuple):
    """A URL for the client, its token, and the processes on the way."""

    url: str
    token: str | None
    pids: dict[str, int]


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


# Programs.


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
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.communicate()


async def _line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(10):
        return (await process.stdout.readline()).decode().strip()


async def _parts(name: str, server: asyncio.subprocess.Process) -> dict[str, int]:
    """The server, and the keeper whose ended children are the producers, if it has one."""
    for _ in range(_KEEPER_LOOKS):
        if children := proc.family(server.pid)[1:]:
            keeper = children[0].pid
            return {name: server.pid, "keeper": keeper, "producer": keeper}
        await asyncio.sleep(0.05)
    return {name: server.pid}


# The ways from a client to a process.


@contextlib.asynccontextmanager
async def _directly(tree: Path) -> AsyncIterator[Target]:
    async with _program(*OURS, *_QUIET, PYTHONPATH=str(tree)) as server:
        yield Target(await _line(server), None, await _parts("server", server))


@contextlib.asynccontextmanager
async def _behind_rendezvous(words: list[str], **env: str) -> AsyncIterator[Target]:
    async with _program(sys.executable, __file__, "--serve-rendezvous") as relay:
        url = await _line(relay)
        options = ("--remote", url, "--environment-id", "env-1")
        async with _program(*words, *options, **env) as executor:
            assert await _line(relay) == "online"
            pids = {**await _parts("executor", executor), "node": relay.pid}
            yield Target(f"noise+{url}/env-1", TOKEN, pids)


@contextlib.asynccontextmanager
async def _behind_node(tree: Path) -> AsyncIterator[Target]:
    with tempfile.TemporaryDirectory(prefix="exec-bench-") as folder:
        state = f"{folder}/state"
        (enrolment,), token = await make_tokens(state, 1)
        env = {"PYTHONPATH": str(tree), "EXEC_SERVER_REGISTRY_TOKEN": enrolment}
        words = (*OURS, "registry", "--state", state, *_QUIET)
        async with _program(*words, **env) as node:
            url = await _line(node)
            options = ("--remote", url, "--environment-id", "env-1", *_QUIET)
            async with _program(*OURS, *options, **env) as executor:
                await _online(url, token)
                pids = {**await _parts("executor", executor), "node": node.pid}
                yield Target(f"noise+{url}/env-1", token, pids)


async def _online(url: str, token: str) -> None:
    import aiohttp

    headers = {"Authorization": f"Bearer {token}"}
    async with asyncio.timeout(_ONLINE_SECONDS), aiohttp.ClientSession() as web:
        while True:
            async with web.get(f"{url}/api/environments", headers=headers) as response:
                if any(each["isOnline"] for each in await response.json()):
                    return
            await asyncio.sleep(0.05)


async def _serve_rendezvous() -> None:
    relay = QuickRendezvous()
    await relay.start()
    print(relay.url, flush=True)
    await relay.until(relay.is_online)
    print("online", flush=True)
    await asyncio.get_running_loop().create_future()


async def _measure(target: Target, tree: Path, file: str, megabytes: int) -> Figures:
    words = [*_CLIENT, target.url, "--file", file, "--megabytes", str(megabytes)]
    if target.token is not None:
        words += ["--token", target.token]
    for name, pid in target.pids.items():
        words += ["--clock", f"{name}={pid}"]
    async with _program(*words, PYTHONPATH=str(tree)) as client:
        assert client.stdout is not None
        return json.loads(await client.stdout.readline())  # type: ignore[no-any-return]


async def _round(options: argparse.Namespace, file: str, trees: dict[str, Path]) -> Figures:
    found = {}
    for name, tree in trees.items():
        env = {"PYTHONPATH": str(tree), "EXEC_SERVER_REGISTRY_TOKEN": TOKEN}
        ways = {
            "direct": _directly(tree),
            "quick node": _behind_rendezvous([*OURS, *_QUIET], **env),
            "our node": _behind_node(tree),
        }
        for way, opened in ways.items():
            async with opened as target:
                measured = await _measure(target, tree, file, options.megabytes)
                found[f"{name}{way}"] = measured
    if options.reference is not None:
        with tempfile.TemporaryDirectory() as home:
            env = {"CODEX_API_KEY": "sk-loopback", "CODEX_HOME": home}
            words = [str(options.reference), "exec-server"]
            async with _behind_rendezvous(words, **env) as target:
                tree = trees[""]
                found["reference"] = await _measure(target, tree, file, options.megabytes)
    return found


# The report.


def _report(rounds: list[Figures]) -> None:
    print(f"handshake, both ends: {_handshake() * 1e3:.2f} ms of CPU")
    best = {way: _best([each[way] for each in rounds]) for way in rounds[0]}
    print(f"\n{'':20}{'output MB/s':>14}{'readFile MB/s':>16}{'keystroke ms':>15}  of direct")
    for way, found in best.items():
        direct = best[_direct_of(way)]
        ratios = ", ".join(f"{found[key] / direct[key]:.2f}" for key in ("output", "file", "echo"))
        print(
            f"{way:20}{found['output']:14.0f}{found['file']:16.0f}{found['echo'] * 1e3:15.2f}"
            f"  {ratios}"
        )
    print("\nCPU seconds for a GiB of output, and the rate with a core for each process:")
    for way, found in best.items():
        parts = ", ".join(f"{name} {spent:.2f}" for name, spent in found["cpu"].items())
        rate, most = _modelled(found), _modelled(best[_direct_of(way)])
        print(f"{way:20}{rate:6.0f} MB/s, {rate / most:.2f} of direct: {parts}")


def _direct_of(way: str) -> str:
    return "before: direct" if way.startswith("before: ") else "direct"


def _best(rounds: list[Figures]) -> Figures:
    """The best of each figure: other work of the machine makes all of them worse."""
    names = rounds[0]["cpu"]
    return {
        "output": max(each["output"] for each in rounds),
        "file": max(each["file"] for each in rounds),
        "echo": min(each["echo"] for each in rounds),
        "cpu": {name: min(each["cpu"][name] for each in rounds) for name in names},
    }


def _modelled(found: Figures) -> float:
    """MB/s if each process had a core of its own."""
    busiest: float = max(found["cpu"].values())
    return _GIB / 1e6 / busiest


async def _main(options: argparse.Namespace) -> None:
    options.reference = None if options.no_reference else reference_binary()
    trees = {"": _ROOT / "src"}
    if options.beside is not None:
        trees = {"before: ": options.beside.resolve(), **trees}
    for tree in trees.values():
        compileall.compile_dir(tree, quiet=2)
    with tempfile.NamedTemporaryFile() as file:
        file.write(os.urandom(_FILE_BYTES))
        file.flush()
        rounds = [await _round(options, file.name, trees) for _ in range(options.rounds)]
        _report(rounds)
    print(f"Load after: {machine.load():.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--no-reference", action="store_true")
    parser.add_argument("--beside", type=Path, metavar="SRC", help="another source tree")
    parser.add_argument("--serve-rendezvous", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    import uvloop

    work = _serve_rendezvous() if options.serve_rendezvous else _main(options)
    uvloop.run(work)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
