"""Output on its way to the host, without a host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from exec_server.screens import host_messages as messages
from exec_server.screens.screen_tap import ScreenTap

FLOOD = b"a line of output\r\n" * 1200


class SentPackets:
    """Takes the place of the link to a host."""

    has_room = True

    def __init__(self) -> None:
        self.feeds: list[messages.Feed] = []

    def send(self, message: messages.ToHost) -> None:
        if isinstance(message, messages.Feed):
            self.feeds.append(message)


class RetainedNothing:
    """The log of a process that has printed nothing."""

    next_seq = 1

    def has_after(self, seq: int) -> bool:
        return False

    def after(self, seq: int, max_bytes: int) -> SimpleNamespace:
        return SimpleNamespace(chunks=[], dropped_bytes=None)


def open_tap() -> tuple[ScreenTap, SentPackets]:
    child = SimpleNamespace(
        log=RetainedNothing(),
        stored_screen=None,
        state="running",
        sizes=[SimpleNamespace(seq=0, rows=24, cols=80)],
        sizes_dropped=0,
    )
    tap = ScreenTap(cast(Any, child), 1, answers_all=True, on_closed=lambda: None)
    link = SentPackets()
    tap.open(cast(Any, link))
    return tap, link


@pytest.mark.parametrize(
    "query", [b"\x1b[6n", b"\x1b[c", b"\x1b]11;?\x07", b"\x1bP+q544e\x1b\\", b"\x05"]
)
async def test_a_query_at_the_end_of_a_flood_is_sent_at_once(query: bytes) -> None:
    tap, link = open_tap()
    for seq in (1, 2, 3):
        tap.output(seq, "pty", FLOOD)
    tap.output(4, "pty", FLOOD + query)

    assert link.feeds[-1].seq == 4
    assert b"".join(feed.data for feed in link.feeds) == FLOOD * 4 + query


@pytest.mark.parametrize("end", [b"", b"\x1b[01;34mfolder\x1b[0m\r\n", b"folder\x1b[0", b"\x1b["])
async def test_a_flood_without_a_query_is_collected(end: bytes) -> None:
    tap, link = open_tap()
    for seq in range(1, 6):
        tap.output(seq, "pty", FLOOD + end)

    # The first one goes at once; a slow machine may send others meanwhile, but not each alone.
    assert len(link.feeds) < 5
