"""A slow link between two network namespaces: packets of a TUN device, delayed and paced here.

It needs no module of the kernel such as netem, and no other machine: the namespaces belong to this
process and vanish with it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import subprocess
import threading
import time
from collections import deque
from types import TracebackType

HERE, THERE = "10.99.0.1", "10.99.0.2"
_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_PACKET_BYTES = 2048
# What the queue before the link holds, in seconds of its rate; more is dropped, as by a router.
_QUEUE_SECONDS = 0.1
_libc = ctypes.CDLL(None, use_errno=True)


class Direction:
    """One way of the link: packets come out later, and not faster than the rate."""

    def __init__(self, source: int, target: int, *, delay: float, bits: float) -> None:
        self.source = source
        self._target = target
        self._delay = delay
        self._bits = bits
        self._free_at = 0.0
        self._under_way: deque[tuple[float, bytes]] = deque()
        self.dropped = 0

    @property
    def next_at(self) -> float | None:
        return self._under_way[0][0] if self._under_way else None

    def take(self, now: float) -> None:
        """Take all packets that wait at the source."""
        while True:
            try:
                packet = os.read(self.source, _PACKET_BYTES)
            except BlockingIOError:
                return
            begin = max(now, self._free_at)
            if begin - now > _QUEUE_SECONDS:
                self.dropped += 1
                continue
            self._free_at = begin + len(packet) * 8 / self._bits
            self._under_way.append((self._free_at + self._delay, packet))

    def give(self, now: float) -> None:
        """Hand over all packets that have arrived."""
        while self._under_way and self._under_way[0][0] <= now:
            os.write(self._target, self._under_way.popleft()[1])


class SlowLink:
    """A link with the round trip *delay*, in seconds, and *bits* a second each way. Root only."""

    def __init__(self, *, delay: float, bits: float) -> None:
        own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._fds = [own]
        self.namespaces: list[int] = []
        try:
            tuns = [self._end(address) for address in (HERE, THERE)]
            _check(_libc.setns(own, _CLONE_NEWNET))
        except BaseException:
            self._close()
            raise
        self._directions = [
            Direction(source, target, delay=delay / 2, bits=bits)
            for source, target in (tuns, reversed(tuns))
        ]
        self._ended, self._end_writer = os.pipe()
        self._fds += [self._ended, self._end_writer]
        self._thread = threading.Thread(target=self._carry)

    def _end(self, address: str) -> int:
        """Make a namespace with one end of the link; this thread is in it afterwards."""
        _check(_libc.unshare(_CLONE_NEWNET))
        self.namespaces.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._fds += [self.namespaces[-1], tun]
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", b"slow0", _IFF_TUN | _IFF_NO_PI))
        for words in (
            f"address add {address}/24 dev slow0",
            "link set dev slow0 mtu 1500 txqueuelen 5000 up",
            "link set dev lo up",
        ):
            subprocess.run(["ip", *words.split()], check=True)
        return tun

    def __enter__(self) -> SlowLink:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.write(self._end_writer, b"x")
        self._thread.join()
        self._close()

    def _close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())

    @property
    def dropped(self) -> int:
        return sum(direction.dropped for direction in self._directions)

    def command(self, end: str, words: list[str]) -> list[str]:
        """The command that runs *words* at one *end* of the link."""
        fd = self.namespaces[(HERE, THERE).index(end)]
        return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{fd}", *words]

    def _carry(self) -> None:
        sources = [self._ended, *(direction.source for direction in self._directions)]
        while True:
            due = [at for each in self._directions if (at := each.next_at) is not None]
            wait = max(0.0, min(due) - time.monotonic()) if due else None
            if self._ended in select.select(sources, [], [], wait)[0]:
                return
            for direction in self._directions:
                now = time.monotonic()
                direction.take(now)
                direction.give(now)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
