"""A client that takes the output of `cat /dev/zero` until SIGTERM: ``flood PORT``."""

from __future__ import annotations

import signal
import sys

from bench.client import Client, drain

_PROCESS = "flood"


def main(port: int) -> None:
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stops.append(number))
    client = Client("127.0.0.1", port)
    client.initialize()
    client.start(_PROCESS, ["cat", "/dev/zero"])
    while not stops:
        client.frame()
    # A lost connection would leave it running, and printing, until its session expires.
    client.terminate(_PROCESS)
    drain(client)
    client.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
