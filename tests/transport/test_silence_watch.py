"""A socket that swallows everything is given up, and a slow or idle one is not."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest

from exec_server.limits import Limits
from exec_server.transport.silence_watch import SilenceWatch, unacknowledged_bytes
from tests.requirements import requirement

# The tests look themselves, so the timer never fires.
LIMITS = Limits(silence=3000.0, silence_limit=8000.0)
UNTIL_PING, UNTIL_END = 3, 8


class FakeSocket:
    def __init__(self) -> None:
        self.is_reading = True
        self.undelivered_bytes = 0
        self.pings = 0
        self.is_given_up = False

    def ping(self) -> None:
        self.pings += 1

    def give_up(self) -> None:
        self.is_given_up = True


class Scene:
    def __init__(self) -> None:
        self.socket = FakeSocket()
        self.is_needed = True
        self.watch = SilenceWatch(self.socket, lambda: self.is_needed, limits=LIMITS)

    def look(self, times: int) -> None:
        for _ in range(times):
            self.watch._look()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    made.watch.stop()


@requirement("remote/executor:silence")
async def test_silence_is_asked_about_once_and_then_the_end(scene):
    scene.look(UNTIL_PING - 1)
    assert scene.socket.pings == 0
    scene.look(1)
    assert scene.socket.pings == 1
    scene.look(UNTIL_END - UNTIL_PING - 1)
    assert (scene.socket.pings, scene.socket.is_given_up) == (1, False)
    scene.look(1)
    assert scene.socket.is_given_up


@requirement("remote/executor:silence")
async def test_any_sign_of_life_begins_anew(scene):
    for _ in range(10):
        scene.look(UNTIL_END - 1)
        scene.watch.heard()
    assert not scene.socket.is_given_up


@requirement("remote/executor:silence")
async def test_a_line_on_which_bytes_leave_is_alive(scene):
    # A ping waits behind them.
    for left in range(100, 0, -1):
        scene.socket.undelivered_bytes = left
        scene.look(1)
    assert not scene.socket.is_given_up
    # From here on nothing leaves.
    scene.look(UNTIL_END)
    assert scene.socket.is_given_up


@requirement("remote/executor:silence")
@pytest.mark.parametrize("what", ["not needed", "not reading"])
async def test_who_needs_nothing_or_does_not_read_hears_nothing(scene, what):
    scene.is_needed = what != "not needed"
    scene.socket.is_reading = what != "not reading"
    scene.look(100)
    assert not scene.socket.pings and not scene.socket.is_given_up
    scene.is_needed = scene.socket.is_reading = True
    scene.look(UNTIL_END - 1)
    assert not scene.socket.is_given_up


def test_the_kernel_tells_what_has_not_arrived():
    # The connection is accepted by no program, so nothing is read.
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as sock,
    ):
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                sock.send(bytes(1 << 20))
        assert unacknowledged_bytes(sock.fileno()) > 0
    assert unacknowledged_bytes(-1) == 0
