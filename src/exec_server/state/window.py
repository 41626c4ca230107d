"""Windows of output: their size, the budget of all of them, and when a client acknowledges."""

from __future__ import annotations

from collections import deque

# What a chunk costs beyond its bytes, so that a flood of tiny chunks is bounded, too. Client and
# server have to agree on this number.
CHUNK_COST = 256


def cost(data: bytes) -> int:
    """How much of its process's window a chunk takes."""
    return len(data) + CHUNK_COST


class WindowBudget:
    """The memory that the windows of all processes of a server may use together.

    Every process keeps *free_bytes* anyway, so only the part of a window beyond that counts. No
    request is refused: a window that does not fit the budget is granted with *free_bytes*.
    """

    def __init__(self, *, total_bytes: int, max_window: int, free_bytes: int) -> None:
        self._left = total_bytes
        self._max_window = max_window
        self._free_bytes = free_bytes

    @property
    def left(self) -> int:
        return self._left

    def take(self, asked: int) -> int:
        """Grant a window, as large as *asked* if the limits and the budget allow it."""
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
    """When a client acknowledges the output it took from a process: by quarters of the window.

    So a server whose window is full hears of it at the latest when everything was taken.
    """

    def __init__(self, window: int, *, after: int = 0) -> None:
        """Output up to the number *after* is not wanted any more."""
        self.window = window
        # The number of the newest chunk received, and the last number that was acknowledged.
        self.received = after
        self.acknowledged = 0
        # Chunks that were received and not taken, with their cost; then the sum of these costs, and
        # the cost of what was taken since the last acknowledgement.
        self._untaken: deque[tuple[int, int]] = deque()
        self._untaken_cost = 0
        self._owed = 0

    @property
    def is_withheld(self) -> bool:
        """True if so much is not taken that the process may have to wait for the reader."""
        return 4 * self._untaken_cost > self.window

    def receive(self, seq: int, data: bytes) -> None:
        self.received = seq
        self._untaken.append((seq, cost(data)))
        self._untaken_cost += cost(data)

    def take(self, seq: int) -> bool:
        """Everything up to *seq* was taken; True if it is time to acknowledge that."""
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
