"""Short commands: from process/start to process/closed."""

from __future__ import annotations

from bench.client import Client, Spawned, percentile, spawn
from bench.servers import Server
from bench.workload import Figures, Scale, workload

_TRUE = ["/bin/true"]


@workload()
def spawn_true(server: Server, scale: Scale) -> Figures:
    client = server.connect()
    spawn(client, _TRUE, count=5)
    one = spawn(client, _TRUE, count=scale.count(400), within=scale.seconds(2.5))
    cpu = server.cpu_seconds()
    some = _spawn_many(client, scale, at_once=16)
    many = _spawn_many(client, scale, at_once=64)
    cpu = server.cpu_seconds() - cpu
    client.close()
    return {
        "p50": percentile(one.times, 0.5),
        "p99": percentile(one.times, 0.99),
        "rate_16": some.rate,
        "rate_64": many.rate,
        "cpu": cpu / (len(some.times) + len(many.times)),
    }


@workload()
def spawn_shell(server: Server, scale: Scale) -> Figures:
    client = server.connect()
    argv = ["bash", "-c", "echo hi"]
    one = spawn(client, argv, count=scale.count(300), within=scale.seconds(1.5))
    client.close()
    return {"p50": percentile(one.times, 0.5)}


@workload()
def spawn_tty(server: Server, scale: Scale) -> Figures:
    client = server.connect()
    one = spawn(client, _TRUE, count=scale.count(300), within=scale.seconds(1.5), tty=True)
    some = _spawn_many(client, scale, at_once=16, tty=True)
    client.close()
    return {"p50": percentile(one.times, 0.5), "rate_16": some.rate}


def _spawn_many(client: Client, scale: Scale, *, at_once: int, tty: bool = False) -> Spawned:
    count = scale.count(600, least=2 * at_once)
    return spawn(client, _TRUE, count=count, at_once=at_once, within=scale.seconds(1), tty=tty)
