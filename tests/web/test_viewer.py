"""What is sent to a tab: its window, tabs that sleep, fresh frames."""

from __future__ import annotations

from exec_server.web.replay_screen import OutputTail
from exec_server.web.viewer import Viewer
from tests.requirements import requirement


class Screen:
    """A viewer, and what it has sent."""

    def __init__(self, window: int = 100) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.picture = b""
        self.viewer = Viewer(
            lambda kind, data: self.sent.append((kind, data)), lambda: self.picture, window=window
        )

    @property
    def output(self) -> bytes:
        return b"".join(data for kind, data in self.sent if kind == "output")


@requirement("web/terminals:window")
def test_a_tab_that_draws_slowly_is_waited_for():
    screen = Screen(window=10)
    screen.viewer.hide(False)
    assert not screen.sent
    screen.viewer.begin()
    screen.viewer.offer(b"0123456789")
    assert screen.viewer.is_full
    screen.viewer.acknowledge(4)
    assert not screen.viewer.is_full


@requirement("web/terminals:sleeping")
def test_a_tab_that_sleeps_gets_one_frame_when_it_is_back():
    screen = Screen(window=10)
    screen.viewer.begin()
    screen.viewer.offer(b"x" * 20)
    screen.viewer.fall_behind()
    assert not screen.viewer.is_full
    for _ in range(1000):
        screen.viewer.offer(b"y" * 1000)
    assert screen.output == b"x" * 20
    screen.picture = b"now"
    screen.viewer.acknowledge(20)
    assert screen.sent[-1] == ("frame", b"now")
    screen.viewer.offer(b"z")
    assert screen.sent[-1] == ("output", b"z")


@requirement("web/terminals:sleeping")
def test_a_hidden_tab_is_never_waited_for():
    screen = Screen(window=10)
    screen.viewer.begin()
    screen.viewer.hide(True)
    for _ in range(5):
        screen.viewer.offer(b"x" * 5)
        assert not screen.viewer.is_full
    assert screen.output == b"x" * 10
    screen.viewer.acknowledge(10)
    assert screen.sent[-1][0] == "output"
    screen.picture = b"now"
    screen.viewer.hide(False)
    assert screen.sent[-1] == ("frame", b"now")


def test_a_hidden_tab_that_keeps_up_gets_everything():
    screen = Screen(window=10)
    screen.viewer.begin()
    screen.viewer.hide(True)
    for _ in range(5):
        screen.viewer.offer(b"x" * 5)
        screen.viewer.acknowledge(5)
    assert screen.output == b"x" * 25
    screen.viewer.hide(False)
    assert [kind for kind, _ in screen.sent].count("frame") == 1


def test_the_tail_of_output_begins_with_a_line():
    tail = OutputTail(most=10)
    tail.feed(b"short\n")
    assert tail.draw() == b"short\n"
    tail.feed(b"one\n")
    tail.feed(b"two\nthree\n")
    assert tail.draw() == b"three\n"
    tail.feed(b"x" * 50)
    assert tail.draw() == b"x" * 10
