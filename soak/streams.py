"""Cut the connection again and again during many streams: ``python soak/streams.py --help``.

Each stream sends random bytes to an echo on the server's machine, half of them over a listener
there. Every byte has to come back once, whatever was cut; one that differs is a failure.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import random
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the packages are found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import exec_server
from bench.ports import behind_registry
from tests.support.fault_proxy import Fault, FaultProxy, fault_proxy
from tests.support.listening import echo, listening
from tests.support.servers import start_server

_BLOCK = 64 * 1024
# Where a connection is cut: so many bytes after it was made.
_FIRST, _LAST = 100_000, 900_000
_SECONDS = 900


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=64, help="[default: %(default)s]")
    parser.add_argument("--cuts", type=int, default=100, help="[default: %(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="[default: %(default)s]")
    parser.add_argument("--relay", action="store_true", help="through a registry and its relay")
    options = parser.parse_args(words)
    if options.relay:
        with contextlib.ExitStack() as stack:
            os.environ["XDG_STATE_HOME"] = stack.enter_context(tempfile.TemporaryDirectory())
            place, access, _ = behind_registry(stack, Path(os.environ["XDG_STATE_HOME"]))
            token = Path(access[-1]).read_text().strip()
            url, _, name = place.removeprefix("noise+").rpartition("/")
            url = url.replace("http://", "ws://")
            return asyncio.run(_soak(url, options, f"noise+http{{}}/{name}", token))
    with start_server("--listen", "ws://127.0.0.1:0") as server:
        return asyncio.run(_soak(server.url, options, "ws{}", None))


async def _soak(url: str, options: argparse.Namespace, place: str, token: str | None) -> int:
    """*place* is the URL of the server, with braces for the address of the proxy that cuts."""
    chance = random.Random(options.seed)
    faults = [
        Fault(chance.randrange(_FIRST, _LAST), chance.choice(("up", "down")))
        # Requests to a registry have connections of their own, which are too short to be cut.
        for _ in range(4 * options.cuts if options.relay else options.cuts)
    ]
    began = time.monotonic()
    async with (
        asyncio.timeout(_SECONDS),
        fault_proxy(url, faults) as proxy,
        exec_server.connect(place.format(proxy.url.removeprefix("ws")), token=token) as client,
        listening(echo) as port,
        await client.start_server(echo) as remote,
    ):

        async def stream(number: int) -> bool:
            opening = (
                client.open_connection("127.0.0.1", port)
                if number % 2
                else asyncio.open_connection(*remote.address)
            )
            return await _exchange(*await opening, random.Random(number), proxy, options.cuts)

        same = await asyncio.gather(*(stream(number) for number in range(options.streams)))
    seconds = time.monotonic() - began
    print(
        f"{options.streams} streams, {proxy.faults} cuts: {same.count(False)} altered, "
        f"{seconds:.0f} s"
    )
    return 0 if all(same) and proxy.faults >= options.cuts else 1


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    chance: random.Random,
    proxy: FaultProxy,
    cuts: int,
) -> bool:
    """Send until all cuts have happened, then end; True if the same bytes came back."""
    sent, received = hashlib.sha256(), hashlib.sha256()

    async def send() -> None:
        while proxy.faults < cuts:
            data = chance.randbytes(_BLOCK)
            sent.update(data)
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    sending = asyncio.create_task(send())
    try:
        while data := await reader.read(_BLOCK):
            received.update(data)
        await sending
    finally:
        sending.cancel()
        writer.close()
    return sent.digest() == received.digest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
