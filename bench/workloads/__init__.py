"""All workloads, in the order in which they run."""

from __future__ import annotations

from bench.workload import Workload
from bench.workloads import (
    cold_start,
    crowd,
    latency,
    memory,
    spawn,
    stdin,
    streams,
    terminal,
    verify,
)

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        verify.verify,
        cold_start.cold_start,
        latency.connect,
        latency.rpc,
        latency.replay,
        spawn.spawn_true,
        spawn.spawn_shell,
        spawn.spawn_tty,
        streams.pipe_zero,
        streams.pipe_seq,
        streams.pipe_small_writes,
        streams.pipe_4_processes,
        streams.pipe_4_connections,
        terminal.pty_zero,
        terminal.pty_seq,
        terminal.echo,
        terminal.echo_flooded,
        terminal.echo_beside_flood,
        stdin.stdin_bulk,
        stdin.stdin_small,
        memory.idle_connections,
        memory.sleeping_processes,
        memory.sleeping_ttys,
        memory.growth,
        memory.stalled_client,
        crowd.crowd,
    )
}
