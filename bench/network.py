"""How much of a direct download is left when it goes through the managed proxy.

`python -m bench.network [--reference PROGRAM]`: 256 MiB from a local server, with curl, directly,
through our proxy as HTTP, CONNECT and SOCKS5, and through the reference's where it is given. The
best of some rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from tests.support.proxied import launch
from tests.support.servers import start_reference, start_server
from tests.support.wire import Wire

MIB = 1 << 20
SIZE = 256 * MIB
ROUNDS = 5


def serve_file(listener: socket.socket, path: Path) -> None:
    """Answer every request with the whole of *path*, by the kernel alone."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % path.stat().st_size

    def answer(sock: socket.socket) -> None:
        with sock, path.open("rb") as file, contextlib.suppress(OSError):
            sock.recv(65536)
            sock.sendall(head)
            sock.sendfile(file)

    while True:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=answer, args=(sock,), daemon=True).start()


def download(url: str, *options: str) -> float:
    """MiB per second of one download."""
    command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{size_download} %{time_total}"]
    done = subprocess.run([*command, *options, url], capture_output=True, text=True, check=True)
    size, seconds = done.stdout.split()
    assert int(size) == SIZE, done
    return SIZE / MIB / float(seconds)


async def ways(url: str) -> tuple[Wire, dict[str, tuple[str, ...]]]:
    """A server's proxy, for as long as the connection stays: curl's options for each way."""
    wire = await Wire(url).__aenter__()
    await wire.initialize()
    http, socks = await launch(wire, domains={"127.0.0.1": "allow"})
    return wire, {
        "http": ("-x", f"http://127.0.0.1:{http}"),
        "connect": ("-p", "-x", f"http://127.0.0.1:{http}"),
        "socks5": ("-x", f"socks5h://127.0.0.1:{socks}"),
    }


async def measure(servers: dict[str, str], origin: str) -> dict[str, float]:
    """The best of some rounds, in which everybody takes turns."""
    wires = []
    todo: dict[str, tuple[str, ...]] = {"direct": ()}
    for name, url in servers.items():
        wire, options = await ways(url)
        wires.append(wire)
        todo.update({f"{name} {way}": words for way, words in options.items()})
    best: dict[str, float] = dict.fromkeys(todo, 0.0)
    for _ in range(ROUNDS):
        for name, words in todo.items():
            best[name] = max(best[name], await asyncio.to_thread(download, origin, *words))
    for wire in wires:
        await wire.__aexit__(None, None, None)
    return best


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", type=Path, help="the reference's program")
    chosen = parser.parse_args(words)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        file = folder / "file"
        file.write_bytes(os.urandom(MIB) * (SIZE // MIB))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        threading.Thread(target=serve_file, args=(listener, file), daemon=True).start()
        servers: dict[str, Any] = {"ours": stack.enter_context(start_server())}
        if chosen.reference is not None:
            servers["reference"] = stack.enter_context(start_reference(chosen.reference))
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        urls = {name: server.url for name, server in servers.items()}
        best = asyncio.run(measure(urls, origin))
    for name, rate in best.items():
        print(f"{name:20} {rate:8.0f} MiB/s  {rate / best['direct']:5.2f} of direct")


if __name__ == "__main__":
    main(sys.argv[1:])
