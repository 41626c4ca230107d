"""Models of terminals: how soon a wait ends, what a model costs, and how large a picture is."""

from __future__ import annotations

import base64
import statistics
import sys
import time

from bench.client import Client, drain, expect_size, now, percentile, start_params, unique
from bench.servers import Server
from bench.workload import Figures, Scale, workload
from bench.workloads.streams import seq_size

# Prints the clock of this machine a moment after each line that it reads, so that the wait is there
# before.
_CLOCK = """
import sys, time
for number, line in enumerate(sys.stdin):
    time.sleep(0.005)
    print(f"answer {number} {time.perf_counter_ns()}", flush=True)
"""
_LINE = r"printf '\033[3%dm%d\033[0m some words of output\r\n' $((n % 8)) $n"
_LINES = f"for n in $(seq 1 300); do {_LINE}; done"
_TURNS = 3


# Only servers that keep a state have models, too.
@workload(server="durable")
def screen_wait(server: Server, scale: Scale) -> Figures:
    """From the deciding byte to the answer of process/waitFor."""
    client = server.connect()
    process = unique("w")
    _start(client, process, [sys.executable, "-u", "-c", _CLOCK], screen=True)
    times = []
    for number in range(scale.count(500)):
        line = {"processId": process, "chunk": base64.b64encode(b"\n").decode()}
        client.call("process/write", {**line, "writeId": unique("k")})
        pattern = rf"^answer {number} \d+"
        condition = {"kind": "regex", "pattern": pattern}
        asked = {"processId": process, "conditions": [condition], "timeoutMs": 60_000}
        text = client.call("process/waitFor", asked)["text"]
        times.append((time.perf_counter_ns() - int(text.split()[2])) / 1e9)
    client.terminate(process)
    client.close()
    return {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99)}


@workload(server="durable")
def screen_cost(server: Server, scale: Scale) -> Figures:
    """The same output with a model and without, in turns."""
    client = server.connect()
    last = scale.count(2_000_000)
    size = seq_size(last, line_end=2)
    # The host of the models takes a moment to start.
    _run(client, 10, screen=True)
    ratios, rates = [], []
    for _ in range(_TURNS):
        plain, modelled = (_run(client, last, screen=screen) for screen in (False, True))
        ratios.append(modelled / plain)
        rates.append(size / modelled)
    client.close()
    return {"rate": statistics.median(rates), "slowdown": statistics.median(ratios)}


@workload(server="durable")
def screen_dump(server: Server, scale: Scale) -> Figures:
    """The picture that one who joins late is sent: 120 columns, 40 rows, in colour."""
    client = server.connect()
    process = unique("d")
    _start(client, process, ["sh", "-c", f"{_LINES}; echo ready; cat"], screen=True)
    condition = {"kind": "text", "text": "ready"}
    client.call("process/waitFor", {"processId": process, "conditions": [condition]})
    watch = {"processId": process, "once": True}
    times = []
    for _ in range(scale.count(50)):
        begin = now()
        shown = client.call("process/watch", {**watch, "watchId": unique("v")})["screen"]
        times.append(now() - begin)
    client.terminate(process)
    client.close()
    return {"size": len(base64.b64decode(shown["data"])), "p50": percentile(times, 0.5)}


def _start(client: Client, process: str, argv: list[str], *, screen: bool) -> None:
    size = {"rows": 40, "cols": 120, "screen": screen}
    client.call("process/start", {**start_params(process, argv, tty=True), **size})


def _run(client: Client, last: int, *, screen: bool) -> float:
    begin = now()
    _start(client, unique("s"), ["seq", "1", str(last)], screen=screen)
    total = drain(client)
    seconds = now() - begin
    expect_size(seq_size(last, line_end=2), total)
    return seconds
