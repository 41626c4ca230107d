"""The printed summary of a soak."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from soak.chaos import Chaos
from soak.harnesses import Harness

_MIB = 1 << 20


def text(harnesses: Sequence[Harness], chaos: Chaos) -> str:
    kills = ", ".join(f"{name} {count}" for name, count in sorted(chaos.kills.items()))
    lines = [
        f"kills: {sum(chaos.kills.values())} ({kills}); {chaos.revivals} started again",
        f"{'harness':18} {'MiB':>8} {'checked':>8} {'lost':>5} {'without':>9} {'silent':>9}",
    ]
    lines += [
        *map(_line, harnesses),
        "checked: commands and files that were right to the byte; lost: lost connections; without:",
        "longest time without a connection; silent: longest time without output, or for a file or",
        "a visit",
    ]
    return "\n".join(lines)


def _line(harness: Harness) -> str:
    connections = harness.connections
    return (
        f"{harness.name:18} {harness.bytes / _MIB:8.1f} {harness.checked:8} "
        f"{connections.losses:5} {connections.longest:7.2f} s {harness.longest:7.2f} s"
    )


def failure(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
