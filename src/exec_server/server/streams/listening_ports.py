"""The TCP ports that processes of a client listen on, as /proc tells them."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from exec_server.process.keeping.process_trees import below, processes
from exec_server.process.keeping.tree_marks import mark_of
from exec_server.protocol.streams import ListeningPort, PortsResult

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


class StartedTree(NamedTuple):
    """A process of a client, with its number on this machine and its mark (see the keeper).

    The number is 0 once it has ended. What it has left behind is found by the mark.
    """

    process_id: str
    pid: int
    mark: int


class _Bound(NamedTuple):
    address: str
    port: int


def find_ports(started: Iterable[StartedTree]) -> PortsResult:
    """The ports that *started*, and what they have started, listen on. It blocks for a moment.

    Only ports that the server can reach are found: those of a sandbox without a network are not.
    """
    bound = dict(_listening())
    known = list(started)
    if not bound or not known:
        return PortsResult([])
    found: dict[tuple[int, int], ListeningPort] = {}
    for pid, process_id in sorted(_owners(known).items()):
        for inode in _sockets(pid):
            if inode in bound:
                address, port = bound[inode]
                entry = found.get((pid, port))
                if entry is None:
                    entry = ListeningPort(port, [], process_id, pid, _command(pid))
                    found[pid, port] = entry
                if address not in entry.addresses:
                    entry.addresses.append(address)
    return PortsResult(_each_once(found.values()))


def _each_once(ports: Iterable[ListeningPort]) -> list[ListeningPort]:
    """One entry for a port that a parent and its workers share."""
    chosen: dict[tuple[str, int], ListeningPort] = {}
    for port in ports:
        chosen.setdefault((port.process_id, port.port), port)
    return sorted(chosen.values(), key=lambda each: (each.port, each.process_id))


def _listening() -> Iterator[tuple[int, _Bound]]:
    """The sockets of this network namespace that listen, by their inodes."""
    for path in _TABLES:
        try:
            with open(path, encoding="ascii") as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] == _LISTENS:
                address, _, port = words[1].partition(":")
                yield int(words[9]), _Bound(_address(address), int(port, 16))


def _address(text: str) -> str:
    """An address as the kernel prints it: words of 32 bits in the order of this machine."""
    words = [text[start : start + 8] for start in range(0, len(text), 8)]
    data = b"".join(bytes.fromhex(word)[::-1] for word in words)
    return str(ipaddress.ip_address(data))


def _owners(known: list[StartedTree]) -> dict[int, str]:
    """The processes of each start, by their numbers: its descendants, and all with its mark."""
    table = processes()
    marks = {each.mark: each.process_id for each in known if each.mark}
    owners: dict[int, str] = {}
    if marks:
        for pid in table:
            mark = mark_of(pid)
            if mark in marks:
                owners[pid] = marks[mark]
    for each in known:
        if each.pid in table:
            for pid in {each.pid, *below({each.pid}, table)}:
                owners.setdefault(pid, each.process_id)
    return owners


def _sockets(pid: int) -> Iterator[int]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        try:
            found = _SOCKET.fullmatch(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
        if found is not None:
            yield int(found[1])


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""
