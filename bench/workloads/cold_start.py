"""The time from the start to the first answer, and the memory of a server without clients."""

from __future__ import annotations

import time

from bench.servers import Server
from bench.workload import Figures, Scale, workload


@workload(server="cold")
def cold_start(server: Server, scale: Scale) -> Figures:
    time.sleep(0.5)
    memory = server.memory()
    return {
        "ready": server.ready_seconds,
        "initialized": server.initialized_seconds,
        "cpu": server.cpu_seconds(),
        "resident": memory.resident,
        "private": memory.private,
    }
