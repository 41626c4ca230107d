"""Reliable channels with small bounds, and a bus without faults between them."""

from __future__ import annotations

from exec_server.hub.cluster.reliable import ReliableChannel
from exec_server.hub.cluster.reliable_halves import HEAD, HEADER_BYTES, KIND, STATUS

WINDOW = 400
FRAGMENT = 100
PATIENCE = 6
LIMIT = WINDOW + HEADER_BYTES


def channel(
    *, window: int = WINDOW, fragment: int = FRAGMENT, patience: int = PATIENCE
) -> ReliableChannel:
    return ReliableChannel(window=window, fragment=fragment, patience=patience)


def bring(packets: list[bytes], to: ReliableChannel) -> list[bytes]:
    """Deliver *packets*, and return the messages that arrive."""
    messages = []
    for packet in packets:
        to.receive(packet)
        messages += to.messages()
    return messages


def kind_of(packet: bytes) -> int:
    return packet[0] & KIND


def numbers(packets: list[bytes]) -> list[int]:
    return [HEAD.unpack_from(packet)[1] for packet in packets if kind_of(packet) != STATUS]


def payload_bytes(packets: list[bytes]) -> int:
    return sum(len(packet) - HEADER_BYTES for packet in packets)


def header(kind: int, *, number: int = 0, expected: int = 0, credit: int = LIMIT) -> bytes:
    return HEAD.pack(kind, number, expected, credit)


def settle(*ends: ReliableChannel, rounds: int = 1000) -> list[list[bytes]]:
    """Deliver all packets without faults, and return the messages that each end got."""
    got: list[list[bytes]] = [[], []]
    for _ in range(rounds):
        while any(moved := [end.packets() for end in ends]):
            got[0] += bring(moved[1], ends[0])
            got[1] += bring(moved[0], ends[1])
        if not any(end.needs_ticks for end in ends):
            return got
        for end in ends:
            end.tick()
    raise AssertionError("the channels never came to rest")
