"""How many steps of Python a message takes in the server, function by function.

    python bench/steps.py [--tree SRC] calls|stats|writes|bulk|keys

A step is a bytecode instruction; the steps of C functions are not seen. The number does not depend
on the load of the machine, so a change of a hundredth shows. `calls`, `stats` and `writes` have 64
messages in flight, `bulk` writes 64 KiB each, and `keys` come one after the other.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.client import Client, now, pipelined, repeat, request
from bench.servers import free_port
from bench.workloads.stdin import Bulk, bulk_writes, small_writes, write_all
from bench.workloads.terminal import type_keys, typewriter

_ROOT = Path(__file__).resolve().parent.parent
_DEPTH, _COUNT, _KEYS, _BULK = 64, 2000, 300, 600


class _Steps:
    """Counts while it is switched on; one message is one call of the first entry."""

    def __init__(self) -> None:
        self.is_on = False
        self.messages = 0
        self.steps: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def enter(self, owner: type, name: str, *, is_message: bool = False) -> None:
        """Count in this method, which the event loop calls, and in all that it calls."""
        inner: Callable[..., Any] = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            if not self.is_on:
                return inner(*arguments)
            self.messages += is_message
            sys.settrace(self._trace)
            try:
                return inner(*arguments)
            finally:
                sys.settrace(None)

        setattr(owner, name, counted)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        name = f"{Path(code.co_filename).name}  {code.co_qualname}"
        self.calls[name] += 1
        frame.f_trace_opcodes, frame.f_trace_lines = True, False

        def count(_: FrameType, kind: str, __: object) -> Any:
            self.steps[name] += kind == "opcode"
            return count

        return count

    def report(self) -> str:
        lines = [f"{sum(self.steps.values()) / self.messages:8.0f} steps for a message"]
        for name, steps in self.steps.most_common():
            if steps / self.messages >= 1:
                calls = self.calls[name] / self.messages
                lines.append(f"{steps / self.messages:8.0f}{calls:7.2f}  {name}")
        return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps of Python for each message.")
    parser.add_argument("kind", choices=sorted(_LOADS))
    parser.add_argument("--tree", type=Path, default=_ROOT / "src", metavar="SRC")
    options = parser.parse_args()
    sys.path.insert(0, str(options.tree.resolve()))
    from exec_server.cli.main import main as serve
    from exec_server.process.pump import Pump
    from exec_server.process.stdin import Stdin
    from exec_server.transport.websocket import WebSocketConnection

    steps = _Steps()
    steps.enter(WebSocketConnection, "on_ws_frame", is_message=True)
    steps.enter(Pump, "_ready")
    steps.enter(Stdin, "_gathered")
    port = free_port()
    with tempfile.TemporaryDirectory() as home:
        os.environ["CODEX_HOME"] = os.environ["XDG_STATE_HOME"] = home
        threading.Thread(target=_load, args=(options.kind, port, steps), daemon=True).start()
        sys.argv = ["exec-server", "--listen", f"ws://127.0.0.1:{port}"]
        serve()


def _load(kind: str, port: int, steps: _Steps) -> None:
    """In a thread: put the load on the server, and end the process."""
    client = _connected(port)
    try:
        warm_up, load = _LOADS[kind](client)
        warm_up()
        steps.is_on = True
        load()
        steps.is_on = False
        print(steps.report(), flush=True)
    finally:
        os._exit(0 if steps.messages else 1)


def _connected(port: int) -> Client:
    until = now() + 30
    while True:
        try:
            client = Client("127.0.0.1", port)
        except ConnectionRefusedError:
            if now() > until:
                raise
            time.sleep(0.05)
            continue
        client.initialize()
        return client


Load = tuple[Callable[[], object], Callable[[], object]]


def _calls(client: Client) -> Load:
    frames = repeat(lambda number: request("environment/status", {}, number), _COUNT)
    return _in_flight(client, frames)


def _stats(client: Client) -> Load:
    params = {"path": "file:///tmp", "sandbox": None}
    return _in_flight(client, repeat(lambda n: request("fs/getMetadata", params, n), _COUNT))


def _writes(client: Client) -> Load:
    client.start("p", ["sh", "-c", "cat >/dev/null"], stdin=True)
    client.frame()
    return _in_flight(client, small_writes("p", b"y" * 10, _COUNT))


def _in_flight(client: Client, frames: list[bytes]) -> Load:
    half = len(frames) // 2
    return (
        lambda: pipelined(client, frames[:half], depth=_DEPTH),
        lambda: pipelined(client, frames[half:], depth=_DEPTH),
    )


def _bulk(client: Client) -> Load:
    client.start("p", ["sh", "-c", "cat >/dev/null"], stdin=True)
    client.frame()
    load = bulk_writes("p", _BULK)

    warm_up, counted = Bulk(load.heads[:64], load.tail), Bulk(load.heads[64:], load.tail)
    return lambda: write_all(client, warm_up), lambda: write_all(client, counted)


def _keys(client: Client) -> Load:
    process = typewriter(client)
    return (
        lambda: type_keys(client, process, 50, within=60),
        lambda: type_keys(client, process, _KEYS, within=60),
    )


_LOADS: dict[str, Callable[[Client], Load]] = {
    "calls": _calls,
    "stats": _stats,
    "writes": _writes,
    "bulk": _bulk,
    "keys": _keys,
}


if __name__ == "__main__":
    main()
