"""All workloads, in the order in which they run, by what they are about."""

from __future__ import annotations

from bench.workload import Workload
from bench.workloads import (
    cold_start,
    crowd,
    doors,
    durable,
    files,
    latency,
    limited,
    memory,
    screens,
    spawn,
    stdin,
    streams,
    terminal,
    verify,
)

# Names under which several can be asked for at once.
FAMILIES: dict[str, tuple[Workload, ...]] = {
    "verify": (verify.verify,),
    "start": (cold_start.cold_start,),
    "calls": (latency.connect, latency.rpc, latency.replay),
    "commands": (spawn.spawn_true, spawn.spawn_shell, spawn.spawn_tty),
    "pipes": (
        streams.pipe_zero,
        streams.pipe_seq,
        streams.pipe_small_writes,
        streams.pipe_4_processes,
        streams.pipe_4_connections,
    ),
    "terminals": (
        terminal.pty_zero,
        terminal.pty_seq,
        terminal.echo,
        terminal.echo_flooded,
        terminal.echo_beside_flood,
    ),
    "input": (stdin.stdin_bulk, stdin.stdin_small),
    "files": (
        files.file_metadata,
        files.file_read_4k,
        files.file_write_4k,
        files.file_read_64m,
        files.file_write_8m,
        files.file_write_48m,
        files.file_blocks,
        files.file_directory,
        terminal.echo_beside_read,
        terminal.echo_beside_walk,
    ),
    "memory": (
        memory.idle_connections,
        memory.sleeping_processes,
        memory.sleeping_ttys,
        memory.growth,
        memory.stalled_client,
    ),
    "many": (crowd.crowd,),
    "limits": (limited.limited_start, limited.bystander),
    "screens": (screens.screen_wait, screens.screen_cost, screens.screen_dump),
    "durable": (
        durable.durable_start,
        durable.durable_output,
        durable.durable_echo,
        durable.durable_adoption,
    ),
    "doors": (doors.forward_direct, doors.forward_relay, doors.rsync_ssh),
}
WORKLOADS: dict[str, Workload] = {
    workload.name: workload for family in FAMILIES.values() for workload in family
}


def chosen(words: str) -> tuple[Workload, ...]:
    """Those that *words* name, with commas between them: families or single ones.

    Raises ValueError for a name that there is not.
    """
    names = [name for name in words.split(",") if name]
    if strange := [name for name in names if name not in FAMILIES and name not in WORKLOADS]:
        raise ValueError(f"no such workload: {', '.join(strange)}")
    found = [each for name in names for each in FAMILIES.get(name) or (WORKLOADS[name],)]
    return tuple(dict.fromkeys(found))
