"""The states of an executor, for people who watch it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

# serving: connected for the first time. lost: the rendezvous is dialled again. back: connected
# again. replaced: another executor has registered under the same name.
ExecutorState = Literal["serving", "lost", "back", "replaced"]
OnState = Callable[[ExecutorState], None]


class StateReport:
    """Reports each change of the state once."""

    def __init__(self, on_state: OnState) -> None:
        self._on_state = on_state
        self._state: ExecutorState | None = None

    def connected(self) -> None:
        self._report("serving" if self._state is None else "back")

    def lost(self, *, is_replaced: bool) -> None:
        """Report the loss of a connection; a failed attempt to connect is not reported."""
        self._report("replaced" if is_replaced else "lost")

    def _report(self, state: ExecutorState) -> None:
        self._state = state
        self._on_state(state)
