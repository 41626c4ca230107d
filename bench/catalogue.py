"""What is measured: every row of the tables, its unit, and the target that is set for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

ORDINARY, QUICK, PINNED = "ordinary", "quick acks", "one core"


class Unit(NamedTuple):
    words: Callable[[float], str]
    # None: the figure is a server's own, and a ratio of two of them says nothing.
    higher_is_better: bool | None


class Target(NamedTuple):
    """At least this ratio to the reference, or at most this figure of ours.

    A ratio may have an alternative: at most this many times the floor.
    """

    ratio: float | None = None
    figure: float | None = None
    above_floor: float | None = None


class Row(NamedTuple):
    workload: str
    metric: str
    label: str
    unit: Unit
    targets: Mapping[str, Target] = {}
    is_charted: bool = True


class Group(NamedTuple):
    title: str
    rows: tuple[Row, ...]


def digits(number: float) -> str:
    """Three digits that matter, and the whole number when it has more."""
    if abs(number) >= 99.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 9.995 else f"{number:.2f}"


def _seconds(value: float) -> str:
    if value < 1e-3:
        return f"{digits(value * 1e6)} µs"
    return f"{digits(value * 1e3)} ms" if value < 1 else f"{digits(value)} s"


def _bytes(value: float) -> str:
    return f"{digits(value / 1e6)} MB" if value >= 1e6 else f"{digits(value / 1e3)} kB"


SECONDS = Unit(_seconds, False)
BYTES = Unit(_bytes, False)
PER_SECOND = Unit(lambda value: f"{digits(value)}/s", True)
BYTES_PER_SECOND = Unit(lambda value: f"{_bytes(value)}/s", True)
CPU_PER_GIB = Unit(lambda value: f"{digits(value)} s", False)
TIMES = Unit(lambda value: f"{value:.2f}x", None)


def at_least(ratio: float, *sections: str) -> dict[str, Target]:
    return {section: Target(ratio=ratio) for section in sections or (ORDINARY,)}


def at_most(figure: float) -> dict[str, Target]:
    return {ORDINARY: Target(figure=figure)}


# "No slower" and "flat" hold within 5 %; rounds of one and the same server differ by more.
_LEVEL = 1.05
# Less than a frame of a screen.
_NOTICED = 0.010

GROUPS = (
    Group(
        "Small calls",
        (
            Row(
                "rpc",
                "p50",
                "one at a time, p50",
                SECONDS,
                {ORDINARY: Target(ratio=2), PINNED: Target(ratio=1.3, above_floor=1.15)},
            ),
            Row("rpc", "p99", "one at a time, p99", SECONDS, is_charted=False),
            Row("rpc", "pipelined", "64 in flight", PER_SECOND, at_least(2.5, ORDINARY, PINNED)),
            Row("rpc", "cpu", "64 in flight, CPU per call", SECONDS, is_charted=False),
            Row("connect", "p50", "connect and initialize, p50", SECONDS),
            Row("connect", "rate", "connect and initialize, rate", PER_SECOND, is_charted=False),
            Row("replay", "p50", "process/read of 768 KiB, p50", SECONDS),
        ),
    ),
    Group(
        "Commands, from start to closed",
        (
            Row(
                "spawn_true",
                "p50",
                "/bin/true, one at a time, p50",
                SECONDS,
                {ORDINARY: Target(ratio=5), QUICK: Target(ratio=1.3)},
            ),
            Row("spawn_true", "p99", "/bin/true, one at a time, p99", SECONDS, is_charted=False),
            Row(
                "spawn_true",
                "rate_16",
                "/bin/true, 16 at once",
                PER_SECOND,
                at_least(5, ORDINARY, QUICK),
            ),
            Row(
                "spawn_true",
                "rate_64",
                "/bin/true, 64 at once",
                PER_SECOND,
                at_least(5, ORDINARY, QUICK),
            ),
            Row("spawn_true", "cpu", "server CPU per command", SECONDS, is_charted=False),
            Row("spawn_shell", "p50", "bash -c 'echo hi', p50", SECONDS),
            Row("spawn_tty", "p50", "/bin/true on a terminal, p50", SECONDS),
            Row("spawn_tty", "rate_16", "/bin/true on a terminal, 16 at once", PER_SECOND),
        ),
    ),
    Group(
        "Commands beside 1,000 live processes",
        (
            Row("crowd", "p50", "/bin/true in the crowd, p50", SECONDS),
            Row("crowd", "rate_16", "/bin/true in the crowd, 16 at once", PER_SECOND),
            Row("crowd", "slowdown", "p50 against a fresh server", TIMES, at_most(_LEVEL)),
            Row("crowd", "slowdown_16", "16 at once against fresh", TIMES, at_most(_LEVEL)),
            Row("crowd", "resident", "resident memory of the server", BYTES, is_charted=False),
        ),
    ),
    Group(
        "Output through pipes",
        (
            Row("pipe_zero", "rate", "/dev/zero", BYTES_PER_SECOND, at_least(4)),
            Row("pipe_zero", "cpu", "/dev/zero, server CPU per GiB", CPU_PER_GIB, at_least(4)),
            Row("pipe_seq", "rate", "seq", BYTES_PER_SECOND, at_least(2.5)),
            Row("pipe_seq", "cpu", "seq, server CPU per GiB", CPU_PER_GIB, at_least(4)),
            Row("pipe_4_processes", "rate", "4 processes at once", BYTES_PER_SECOND, at_least(4)),
            Row("pipe_4_processes", "cpu", "4 processes, CPU per GiB", CPU_PER_GIB, at_least(4)),
            Row("pipe_4_connections", "rate", "4 connections", BYTES_PER_SECOND, at_least(4)),
            Row(
                "pipe_4_connections", "cpu", "4 connections, CPU per GiB", CPU_PER_GIB, at_least(4)
            ),
            Row("pipe_small_writes", "rate", "writes of 16 bytes", PER_SECOND),
        ),
    ),
    Group(
        "Output through terminals",
        (
            Row("pty_zero", "rate", "/dev/zero", BYTES_PER_SECOND, at_least(1)),
            Row("pty_zero", "cpu", "/dev/zero, server CPU per GiB", CPU_PER_GIB, is_charted=False),
            Row("pty_seq", "rate", "seq", BYTES_PER_SECOND, at_least(1)),
            Row("pty_seq", "cpu", "seq, server CPU per GiB", CPU_PER_GIB, is_charted=False),
        ),
    ),
    Group(
        "Keystrokes, until they come back",
        (
            Row(
                "echo",
                "p50",
                "one key after the other, p50",
                SECONDS,
                {ORDINARY: Target(ratio=50), QUICK: Target(ratio=1.5)},
            ),
            Row("echo", "p99", "one key after the other, p99", SECONDS, is_charted=False),
            Row(
                "echo_flooded",
                "p50",
                "flood on the same connection, p50",
                SECONDS,
                at_least(10, ORDINARY, QUICK),
            ),
            Row("echo_flooded", "p99", "flood, same connection, p99", SECONDS, is_charted=False),
            Row("echo_flooded", "flood", "the flood meanwhile", BYTES_PER_SECOND, is_charted=False),
            Row(
                "echo_beside_flood",
                "p50",
                "flood on another connection, p50",
                SECONDS,
                at_least(1, QUICK),
            ),
            Row(
                "echo_beside_flood",
                "p99",
                "flood, other one, p99",
                SECONDS,
                at_least(4, QUICK),
                is_charted=False,
            ),
            Row(
                "echo_beside_flood",
                "flood",
                "that flood meanwhile",
                BYTES_PER_SECOND,
                is_charted=False,
            ),
        ),
    ),
    Group(
        "Input",
        (
            Row("stdin_bulk", "rate", "writes of 64 KiB", BYTES_PER_SECOND, at_least(2)),
            Row("stdin_bulk", "cpu", "the same, CPU per GiB", CPU_PER_GIB, is_charted=False),
            Row("stdin_small", "rate", "writes of 10 bytes", PER_SECOND, at_least(1.8)),
        ),
    ),
    Group(
        "Files",
        (
            Row("file_metadata", "p50", "getMetadata, p50", SECONDS),
            Row("file_metadata", "pipelined", "getMetadata, 64 in flight", PER_SECOND, at_least(4)),
            Row("file_read_4k", "p50", "readFile of 4 KiB, p50", SECONDS, at_least(2)),
            Row("file_read_4k", "pipelined", "readFile, 64 in flight", PER_SECOND, at_least(2.5)),
            Row("file_write_4k", "p50", "writeFile of 4 KiB, p50", SECONDS),
            Row("file_write_4k", "pipelined", "writeFile, 64 in flight", PER_SECOND, at_least(3)),
            Row("file_read_64m", "rate", "readFile of 64 MiB", BYTES_PER_SECOND, at_least(4)),
            Row("file_read_64m", "peak", "the same, peak memory", BYTES, at_least(2)),
            Row("file_write_8m", "rate", "writeFile of 8 MiB", BYTES_PER_SECOND, at_least(2)),
            Row("file_write_8m", "peak", "the same, peak memory", BYTES, at_least(2)),
            Row("file_write_48m", "rate", "writeFile of 48 MiB", BYTES_PER_SECOND, at_least(2)),
            Row("file_write_48m", "peak", "the same, peak memory", BYTES, at_least(2)),
            Row("file_blocks", "rate", "readBlock, 4 in flight", BYTES_PER_SECOND, at_least(3)),
            Row("file_directory", "p50", "readDirectory, 10,000 names", SECONDS, at_least(2)),
            Row("file_metadata", "cpu", "getMetadata, CPU per call", SECONDS, is_charted=False),
            Row("file_read_4k", "cpu", "readFile, CPU per call", SECONDS, is_charted=False),
            Row("file_write_4k", "cpu", "writeFile, CPU per call", SECONDS, is_charted=False),
            Row("file_read_64m", "cpu", "readFile, CPU per GiB", CPU_PER_GIB, is_charted=False),
            Row("file_write_8m", "cpu", "8 MiB, CPU per GiB", CPU_PER_GIB, is_charted=False),
            Row("file_write_48m", "cpu", "48 MiB, CPU per GiB", CPU_PER_GIB, is_charted=False),
            Row("file_blocks", "cpu", "readBlock, CPU per GiB", CPU_PER_GIB, is_charted=False),
        ),
    ),
    Group(
        "Keystrokes beside work with files",
        (
            Row("echo_beside_read", "p50", "reading of 512 MiB, p50", SECONDS),
            Row(
                "echo_beside_read",
                "p99",
                "reading of 512 MiB, p99",
                SECONDS,
                at_most(_NOTICED),
                is_charted=False,
            ),
            Row("echo_beside_walk", "p50", "walk of 50,000 files, p50", SECONDS),
            Row(
                "echo_beside_walk",
                "p99",
                "walk of 50,000 files, p99",
                SECONDS,
                at_most(_NOTICED),
                is_charted=False,
            ),
        ),
    ),
    Group(
        "Commands with limits, beside plain ones of the same server",
        (
            Row("limited_start", "p50", "start with memory=1G, p50", SECONDS),
            Row("limited_start", "more", "more than a plain start", SECONDS, at_most(150e-6)),
            Row(
                "limited_start", "more_in_a_row", "the same, 200 in a row", SECONDS, at_most(150e-6)
            ),
            Row("limited_start", "all", "start with eight limits, p50", SECONDS, is_charted=False),
            Row(
                "bystander",
                "slowdown",
                "another process, beside a greedy command",
                TIMES,
                at_most(1.2),
            ),
        ),
    ),
    Group(
        "Models of terminals",
        (
            Row(
                "screen_wait", "p50", "a wait, after the deciding byte, p50", SECONDS, at_most(2e-3)
            ),
            Row("screen_wait", "p99", "the same, p99", SECONDS, at_most(10e-3), is_charted=False),
            Row("screen_cost", "rate", "seq, with a model", BYTES_PER_SECOND),
            Row("screen_cost", "slowdown", "against none", TIMES, at_most(1.11)),
            Row("screen_dump", "size", "a picture of 120x40 in colour", BYTES, at_most(100e3)),
            Row("screen_dump", "p50", "the time to get one, p50", SECONDS, is_charted=False),
        ),
    ),
    Group(
        "Durable jobs, with the journal in memory",
        (
            Row("durable_start", "p50", "start, until it is answered, p50", SECONDS),
            Row("durable_start", "slowdown", "against a plain start", TIMES),
            Row("durable_start", "whole", "/bin/true, until it is closed, p50", SECONDS),
            Row(
                "durable_start", "slowdown_whole", "against a plain /bin/true", TIMES, at_most(1.2)
            ),
            Row("durable_output", "rate", "/dev/zero", BYTES_PER_SECOND),
            # 0.7 of the throughput of a plain one.
            Row("durable_output", "slowdown", "plain against durable", TIMES, at_most(1 / 0.7)),
            Row("durable_output", "cpu", "CPU time of the server against plain", TIMES),
            Row("durable_echo", "p50", "one key after the other, p50", SECONDS),
            Row("durable_echo", "more", "more than on a plain terminal", SECONDS, at_most(30e-6)),
            Row("durable_adoption", "adopted", "start, adopt and list 1,000", SECONDS, at_most(1)),
            Row("durable_adoption", "keeper", "keeper's memory per job", BYTES, at_most(8192)),
        ),
    ),
    Group(
        "Doors, in turns with ssh",
        (
            Row("forward_direct", "down", "`exec-server port -L`, down", BYTES_PER_SECOND),
            Row("forward_direct", "down_ssh", "`ssh -L`, down", BYTES_PER_SECOND),
            Row("forward_direct", "up", "`exec-server port -L`, up", BYTES_PER_SECOND),
            Row("forward_direct", "up_ssh", "`ssh -L`, up", BYTES_PER_SECOND),
            Row("forward_relay", "down", "through the relay, down", BYTES_PER_SECOND),
            Row("forward_relay", "up", "through the relay, up", BYTES_PER_SECOND),
            Row("rsync_ssh", "up", "rsync through the ssh door, up", BYTES_PER_SECOND),
            Row("rsync_ssh", "up_sshd", "rsync through sshd, up", BYTES_PER_SECOND),
            Row("rsync_ssh", "down", "rsync through the ssh door, down", BYTES_PER_SECOND),
            Row("rsync_ssh", "down_sshd", "rsync through sshd, down", BYTES_PER_SECOND),
        ),
    ),
    Group(
        "Memory",
        (
            Row("idle_connections", "resident", "per idle connection", BYTES, at_least(1 / 0.3)),
            Row("sleeping_processes", "resident", "per sleeping process", BYTES, at_least(1)),
            Row("sleeping_ttys", "resident", "per sleeping terminal", BYTES, at_least(1)),
            Row("growth", "peak_64", "peak after 64 MiB of output", BYTES, is_charted=False),
            Row("growth", "peak_1024", "peak after 1 GiB of output", BYTES),
            Row("growth", "growth", "peak at 1 GiB against 64 MiB", TIMES, at_most(_LEVEL)),
            Row("stalled_client", "resident", "held for a stalled client", BYTES),
            Row(
                "stalled_client",
                "other_p50",
                "another client's call, p50",
                SECONDS,
                is_charted=False,
            ),
            Row("sleeping_processes", "start", "start 200 processes", PER_SECOND, is_charted=False),
            Row("sleeping_processes", "end", "end 200 processes", PER_SECOND, is_charted=False),
            Row("sleeping_ttys", "start", "start 200 terminals", PER_SECOND, is_charted=False),
            Row("sleeping_ttys", "end", "end 200 terminals", PER_SECOND, is_charted=False),
        ),
    ),
    Group(
        "Cold start",
        (
            Row("cold_start", "ready", "start to first /readyz", SECONDS, is_charted=False),
            Row("cold_start", "initialized", "start to first initialize", SECONDS, at_most(0.150)),
            Row("cold_start", "cpu", "CPU of it", SECONDS, is_charted=False),
            Row("cold_start", "resident", "resident memory at rest", BYTES, at_least(1)),
            Row("cold_start", "private", "private memory at rest", BYTES, is_charted=False),
        ),
    ),
)
