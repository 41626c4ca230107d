"""Windows of output: what they hold, who gets one, and when a client acknowledges."""

from __future__ import annotations

from collections import deque

# What a chunk counts for beyond its bytes, so that a flood of tiny ones is bounded, too; both ends
# have to agree on it.
CHUNK_COST = 256


def cost(data: bytes) -> int:
    """What a chunk takes of its process's window."""
    return len(data) + CHUNK_COST


class WindowBudget:
    """What the windows of all processes of a server may hold together.

    Only what a window has beyond *free_bytes*, which every process is kept anyway, counts. Nobody
    is refused: what does not fit gets a window of that size.
    """

    def __init__(self, *, total_bytes: int, max_window: int, free_bytes: int) -> None:
        self._left = total_bytes
        self._max_window = max_window
        self._free_bytes = free_bytes

    @property
    def left(self) -> int:
        return self._left

    def take(self, asked: int) -> int:
        """The window that is granted."""
        granted = min(asked, self._max_window)
        if self._extra(granted) > self._left:
            granted = min(granted, self._free_bytes)
        self._left -= self._extra(granted)
        return granted

    def give_back(self, granted: int) -> None:
        self._left += self._extra(granted)

    def _extra(self, window: int) -> int:
        return max(0, window - self._free_bytes)


class Credit:
    """When a client acknowledges what was taken of a process: by quarters of its window.

    So a server whose window is full hears of it at the latest when everything was taken.
    """

    def __init__(self, window: int, *, after: int = 0) -> None:
        """Nothing up to *after* is wanted any more."""
        self.window = window
        # The newest chunk heard of, and the last number that was acknowledged.
        self.received = after
        self.acknowledged = 0
        # Chunks that were received and not taken, their cost, and that of those taken since.
        self._untaken: deque[tuple[int, int]] = deque()
        self._untaken_cost = 0
        self._owed = 0

    @property
    def is_withheld(self) -> bool:
        """Whether so much is not taken that the process may have to wait for it."""
        return 4 * self._untaken_cost > self.window

    def receive(self, seq: int, data: bytes) -> None:
        self.received = seq
        self._untaken.append((seq, cost(data)))
        self._untaken_cost += cost(data)

    def take(self, seq: int) -> bool:
        """Everything up to *seq* was taken; whether it is time to acknowledge that."""
        untaken = self._untaken
        while untaken and untaken[0][0] <= seq:
            taken = untaken.popleft()[1]
            self._untaken_cost -= taken
            self._owed += taken
        return 4 * self._owed >= self.window

    def acknowledge(self, seq: int) -> None:
        """The server is told that everything up to *seq* was taken."""
        self.acknowledged = max(self.acknowledged, seq)
        self._owed = 0
