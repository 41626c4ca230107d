"""Durable jobs beside plain ones of the same server, and what the next server has to do."""

from __future__ import annotations

import time
from typing import Any

from bench import proc
from bench.client import (
    CallFailed,
    Client,
    drain,
    expect_size,
    now,
    percentile,
    request,
    start_params,
    unique,
)
from bench.servers import Server
from bench.workload import MIB, Figures, Scale, workload
from bench.workloads.streams import zeros
from bench.workloads.terminal import type_keys, typewriter

_SETTLE_SECONDS = 0.5
# Less than this cannot be told from nothing.
_LEAST_BYTES = 64
# Plain and durable ones take turns in batches of this size, so that a busy moment meets both.
_TURN = 20
# So many streams of each kind, in turns.
_STREAMS = 3


@workload(server="durable")
def durable_start(server: Server, scale: Scale) -> Figures:
    """From process/start to its answer, and to process/closed."""
    client = server.connect()
    times: dict[bool, list[float]] = {True: [], False: []}
    wholes: dict[bool, list[float]] = {True: [], False: []}
    run_true(client, durable=True)
    for _ in range(scale.count(400) // _TURN + 1):
        for is_durable in (False, True):
            for _ in range(_TURN):
                answered, closed = run_true(client, durable=is_durable)
                times[is_durable].append(answered)
                wholes[is_durable].append(closed)
        client.call("job/prune", {})
    client.close()
    durable, plain = percentile(times[True], 0.5), percentile(times[False], 0.5)
    return {
        "p50": durable,
        "whole": percentile(wholes[True], 0.5),
        "slowdown": durable / plain,
        "slowdown_whole": percentile(wholes[True], 0.5) / percentile(wholes[False], 0.5),
    }


def run_true(client: Client, **members: Any) -> tuple[float, float]:
    """Start /bin/true with these *members*: the seconds until the answer, and until all is over."""
    params = start_params(unique("d"), ["/bin/true"])
    frame = request("process/start", {**params, **members}, 1)
    begin = now()
    client.send(frame)
    answered = 0.0
    while True:
        message = client.decode()
        if "error" in message:
            raise CallFailed(str(message["error"]))
        if "id" in message:
            answered = now() - begin
        elif message["method"] == "process/closed":
            return answered, now() - begin


@workload(server="durable")
def durable_output(server: Server, scale: Scale) -> Figures:
    """/dev/zero through a pipe, with the journal in memory."""
    size = scale.bytes(128 * MIB)
    rates: dict[bool, list[float]] = {True: [], False: []}
    used: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(_STREAMS):
        for each in (False, True):
            before = server.cpu_seconds()
            rates[each].append(_rate(server, size, is_durable=each))
            used[each].append(server.cpu_seconds() - before)
    # Other work on the machine makes both slower; the best of each is compared.
    return {
        "rate": max(rates[True]),
        "slowdown": max(rates[False]) / max(rates[True]),
        "cpu": min(used[True]) / min(used[False]),
    }


def _rate(server: Server, size: int, *, is_durable: bool) -> float:
    client = server.connect()
    begin = now()
    client.start(unique("o"), zeros(size), durable=is_durable)
    total = drain(client)
    seconds = now() - begin
    client.call("job/prune", {})
    client.close()
    expect_size(size, total)
    return size / seconds


@workload(server="durable")
def durable_echo(server: Server, scale: Scale) -> Figures:
    """Keys on a raw terminal, in turns on a plain and on a durable one."""
    client = server.connect()
    names = {each: typewriter(client, durable=each) for each in (False, True)}
    times: dict[bool, list[float]] = {True: [], False: []}
    for each in names:
        type_keys(client, names[each], 10, within=1)
    for _ in range(scale.count(1000) // _TURN + 1):
        for each, name in names.items():
            times[each] += type_keys(client, name, _TURN, within=scale.seconds(4)).times
    for name in names.values():
        client.terminate(name)
    drain(client, closes=len(names))
    client.close()
    durable, plain = percentile(times[True], 0.5), percentile(times[False], 0.5)
    return {"p50": durable, "more": max(0.0, durable - plain)}


@workload(server="durable", most_rounds=3)
def durable_adoption(server: Server, scale: Scale) -> Figures:
    """The server is killed; the next one lists all jobs as running."""
    count = scale.count(1000, least=20)
    client = server.connect()
    before = _keeper_memory(server, client)
    for _ in range(count):
        client.start(unique("a"), ["sleep", "1000"], durable=True)
    _await_answers(client, count)
    time.sleep(_SETTLE_SECONDS)
    after = proc.memory(server.durable_keeper()).private
    client.close()
    server.kill_and_restart()
    begin = server.launched_at
    client = server.connect()
    jobs = client.call("job/list", {})["jobs"]
    seconds = now() - begin
    running = sum(job["state"] == "running" for job in jobs)
    client.close()
    if running != count + 1:
        raise CallFailed(f"{count + 1} jobs were due and {running} run")
    return {"adopted": seconds, "keeper": max(_LEAST_BYTES, (after - before) / count)}


def _keeper_memory(server: Server, client: Client) -> int:
    """What the keeper takes with one job, which has brought everything that is loaded once."""
    client.start(unique("a"), ["sleep", "1000"], durable=True)
    _await_answers(client, 1)
    time.sleep(_SETTLE_SECONDS)
    return proc.memory(server.durable_keeper()).private


def _await_answers(client: Client, count: int) -> None:
    while count:
        message = client.decode()
        if "error" in message:
            raise CallFailed(str(message["error"]))
        count -= "id" in message
