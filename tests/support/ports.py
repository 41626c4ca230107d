"""Ports of the loopback for programs that have to be told theirs."""

from __future__ import annotations

import contextlib
import os
import random
import socket

# Below the kernel's range for clients: no connection takes a port that is free for a moment.
PORTS = range(10_000, 32_000)


def free_port() -> int:
    """A port without a listener, which the other workers of pytest do not choose."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Ports without a listener, which the other workers of pytest do not choose."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    found: set[int] = set()
    while len(found) < count:
        port = random.choice(PORTS[worker::workers])
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.add(port)
    return list(found)
