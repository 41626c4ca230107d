"""What a sandbox costs: /bin/true from start to closed on every backend, and small file calls.

    python bench/sandbox.py [--count 40] [--rounds 5]

Each row is one kind of start, on this server and, where it can be had, on the reference. Rounds go
through all rows in turn, so that a busy machine is busy for all of them. Columns: the median of one
start after the other, and starts a second with 8 under way; both the best round's. Of file calls
the first, which starts a helper, is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import websockets

ROOT = Path(__file__).parents[1]
AT_ONCE = 8


def managed(*entries: dict[str, Any], **members: Any) -> dict[str, Any]:
    files = {"type": "restricted", "entries": list(entries)}
    permissions = {"type": "managed", "file_system": files, "network": "restricted"}
    return {"permissions": permissions, "windowsSandboxLevel": "disabled", **members}


def special(kind: str, access: str) -> dict[str, Any]:
    return {"path": {"type": "special", "value": {"kind": kind}}, "access": access}


def sandboxes(workspace: str) -> dict[str, dict[str, Any] | None]:
    read = special("root", "read")
    uri = f"file://{workspace}"
    external = {"permissions": {"type": "external", "network": "restricted"}}
    return {
        "without a sandbox": None,
        "filter only": {**external, "windowsSandboxLevel": "disabled"},
        "Landlock, read-only": managed(read, useLegacyLandlock=True),
        "bubblewrap, read-only": managed(read),
        "bubblewrap, workspace-write": managed(
            read, special("project_roots", "write"), cwd=uri, workspaceRoots=[uri]
        ),
    }


def file_calls(workspace: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Requests that the reference, too, leaves to a confined helper."""
    path = {"path": {"type": "path", "path": f"file://{workspace}"}, "access": "write"}
    sandbox = managed(special("minimal", "read"), path)
    content = {"path": f"file://{workspace}/file", "sandbox": sandbox}
    written = {**content, "dataBase64": "eHh4" * 1024}
    return {
        "fs/writeFile, 3 KiB": ("fs/writeFile", written),
        "fs/readFile, 3 KiB": ("fs/readFile", content),
    }


class Figures(NamedTuple):
    p50: float
    rate: float


class Client:
    """One connection, after the handshake."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self._socket = socket
        self._last = 0

    async def shake_hands(self) -> None:
        await self._send({"id": 0, "method": "initialize", "params": {"clientName": "bench"}})
        await self._socket.recv()
        await self._send({"method": "initialized", "params": {}})

    async def _send(self, message: dict[str, Any]) -> None:
        await self._socket.send(json.dumps(message))

    async def _begin(self, sandbox: dict[str, Any] | None) -> None:
        self._last += 1
        params = {
            "processId": f"p{self._last}",
            "argv": ["/bin/true"],
            "cwd": "file:///tmp",
            "env": {"PATH": "/usr/bin:/bin"},
            "tty": False,
            "sandbox": sandbox,
        }
        await self._send({"id": self._last, "method": "process/start", "params": params})

    async def run(self, sandbox: dict[str, Any] | None, count: int, at_once: int) -> None:
        """Start *count* commands, so many of them under way, and wait until all are closed."""
        begun = closed = 0
        while closed < count:
            while begun < count and begun - closed < at_once:
                await self._begin(sandbox)
                begun += 1
            message = json.loads(await self._socket.recv())
            assert "error" not in message, message
            if message.get("method") == "process/exited":
                assert message["params"]["exitCode"] == 0, message
            closed += message.get("method") == "process/closed"

    async def measure(self, sandbox: dict[str, Any] | None, count: int) -> Figures:
        times = []
        for _ in range(count):
            begun = time.perf_counter()
            await self.run(sandbox, 1, 1)
            times.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        await self.run(sandbox, count, AT_ONCE)
        return Figures(statistics.median(times), count / (time.perf_counter() - begun))

    async def measure_calls(self, method: str, params: dict[str, Any], count: int) -> Figures:
        await self._call(method, params)
        times = []
        for _ in range(count):
            begun = time.perf_counter()
            await self._call(method, params)
            times.append(time.perf_counter() - begun)
        return Figures(statistics.median(times), count / sum(times))

    async def _call(self, method: str, params: dict[str, Any]) -> None:
        self._last += 1
        await self._send({"id": self._last, "method": method, "params": params})
        answer = json.loads(await self._socket.recv())
        assert "result" in answer, answer


@contextlib.asynccontextmanager
async def connected(command: list[str], env: dict[str, str]) -> AsyncIterator[Client]:
    with server(command, env) as url:
        async with websockets.connect(url, compression=None, ping_interval=None) as socket:
            client = Client(socket)
            await client.shake_hands()
            yield client


@contextlib.contextmanager
def server(command: list[str], env: dict[str, str]) -> Iterator[str]:
    process = subprocess.Popen(
        [*command, "--listen", "ws://127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().decode().strip()
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


def reference() -> str | None:
    script = ROOT / "scripts" / "reference.sh"
    found = subprocess.run([script], capture_output=True, text=True, check=False).stdout.strip()
    return found or None


def row(name: str, figures: Figures | None, theirs: Figures | None) -> str:
    def words(found: Figures | None) -> str:
        return f"{found.p50 * 1e3:8.2f} ms {found.rate:7.0f}/s" if found else f"{'-':>21}"

    ratio = f"{figures.rate / theirs.rate:6.2f}x" if figures and theirs else ""
    return f"{name:28} {words(figures)} {words(theirs)} {ratio}"


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    found: dict[tuple[str, str], list[Figures]] = {}
    async with contextlib.AsyncExitStack() as stack:
        # Not below the temporary folder, where the reference keeps no helpers of its own.
        home = stack.enter_context(tempfile.TemporaryDirectory(dir=Path.home()))
        workspace = stack.enter_context(tempfile.TemporaryDirectory(dir=Path.home()))
        ours = connected([sys.executable, "-m", "exec_server"], {"PATH": "/usr/bin:/bin"})
        clients = {"ours": await stack.enter_async_context(ours)}
        if binary := reference():
            env = {"PATH": "/usr/bin:/bin", "CODEX_HOME": home}
            theirs = connected([binary, "exec-server"], env)
            clients["reference"] = await stack.enter_async_context(theirs)
        rows = sandboxes(workspace)
        calls = file_calls(workspace)
        for _ in range(options.rounds):
            for name, sandbox in rows.items():
                for who, client in clients.items():
                    if who == "reference" and name.startswith("Landlock"):
                        # It refuses.
                        continue
                    figures = await client.measure(sandbox, options.count)
                    found.setdefault((name, who), []).append(figures)
            for name, (method, params) in calls.items():
                for who, client in clients.items():
                    figures = await client.measure_calls(method, params, options.count)
                    found.setdefault((name, who), []).append(figures)
    print(f"{'':28} {'ours':>21} {'reference':>21} {'rate':>7}")
    for name in (*rows, *calls):
        print(row(name, best(found, name, "ours"), best(found, name, "reference")))


def best(found: dict[tuple[str, str], list[Figures]], name: str, who: str) -> Figures | None:
    rounds = found.get((name, who))
    if not rounds:
        return None
    return Figures(min(each.p50 for each in rounds), max(each.rate for each in rounds))


if __name__ == "__main__":
    asyncio.run(main())
