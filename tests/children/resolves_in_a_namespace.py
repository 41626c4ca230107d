"""Runs a managed proxy beside a DNS server in a network namespace without a route.

Start it with `unshare --net --mount`. Standard input is a JSON object: `search` (the search list),
`zone` (absolute names and their records), `rules` (the members of the proxy), `hosts` (the names
that a process sends to SOCKS5). Standard output is one JSON list: for each host the code of
the SOCKS5 reply, and the absolute names under which the DNS server found something for it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.proxied import Decides, socks, wanted

PORT = 8080
# This address is public for the rules, and belongs to the loopback of the namespace.
ADDRESS = "93.184.216.34"


class NameServer(asyncio.DatagramProtocol):
    """Answers questions for A records; a record is an address, or the name that it stands for."""

    def __init__(self, zone: dict[str, str]) -> None:
        self._zone = zone
        self.found: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        labels, at = [], 12
        while size := data[at]:
            labels.append(data[at + 1 : at + 1 + size].decode("latin-1").lower())
            at += 1 + size
        question, kind = data[12 : at + 5], int.from_bytes(data[at + 1 : at + 3], "big")
        name = ".".join(labels)
        records = self._records(name, is_ipv4=kind == 1)
        flags = b"\x81\x80" if name in self._zone else b"\x81\x83"
        counts = b"\0\1" + len(records).to_bytes(2, "big") + bytes(4)
        self._transport.sendto(data[:2] + flags + counts + question + b"".join(records), address)

    def _records(self, name: str, *, is_ipv4: bool) -> list[bytes]:
        made = []
        while name in self._zone:
            value = self._zone[name]
            if value[0].isdigit():
                if is_ipv4:
                    self.found.append(name)
                    made.append(_record(name, 1, socket.inet_aton(value)))
                break
            self.found.append(name)
            made.append(_record(name, 5, _encoded(value)))
            name = value
        return made


def _encoded(name: str) -> bytes:
    return b"".join(bytes([len(each)]) + each.encode() for each in name.split(".")) + b"\0"


def _record(name: str, kind: int, data: bytes) -> bytes:
    head = _encoded(name) + kind.to_bytes(2, "big") + b"\0\1" + bytes(4)
    return head + len(data).to_bytes(2, "big") + data


def prepare(search: str) -> None:
    """Give the namespace a loopback, and this program a configuration of the resolver."""
    for words in ("link set lo up", f"addr add {ADDRESS}/32 dev lo"):
        subprocess.run(["ip", *words.split()], check=True)
    folder = Path(tempfile.mkdtemp())
    texts = {
        "resolv.conf": f"nameserver 127.0.0.1\nsearch {search}\noptions timeout:1 attempts:1\n",
        "nsswitch.conf": "hosts: files dns\n",
        "hosts": "127.0.0.1 localhost\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
        subprocess.run(["mount", "--bind", folder / name, f"/etc/{name}"], check=True)


async def attempts(asked: dict[str, Any]) -> list[Any]:
    import msgspec

    from exec_server.limits import Limits
    from exec_server.network.proxy import ManagedProxy
    from exec_server.protocol import network

    loop = asyncio.get_running_loop()
    _, server = await loop.create_datagram_endpoint(
        lambda: NameServer(asked["zone"]), local_addr=("127.0.0.1", 53)
    )
    listener = await asyncio.start_server(lambda _, writer: writer.close(), ADDRESS, PORT)
    made = ManagedProxy(
        "p",
        msgspec.convert(wanted(**asked["rules"]), network.NetworkProxy),
        client=Decides(),
        limits=Limits(proxy_resolve_timeout=20.0),
        server_env={},
    )
    port = int(made.listen()["ALL_PROXY"].rpartition(":")[2])
    results = []
    for host in asked["hosts"]:
        server.found.clear()
        _, writer, reply = await socks(port, host.encode(), PORT)
        writer.close()
        results.append([reply[1], sorted(set(server.found))])
    made.close()
    listener.close()
    return results


if __name__ == "__main__":
    given = json.load(sys.stdin)
    prepare(given["search"])
    print(json.dumps(asyncio.run(attempts(given))))
