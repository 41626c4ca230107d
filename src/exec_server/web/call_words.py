"""Reads the members of a call of the page. Each has a kind and a bound; others are refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

_MAX_TEXT = 4096
_MAX_WORDS = 1000
# The largest terminal that a tab draws.
MAX_SIDE = 1000
# Names of signals are short, and so are the ids that we made.
_MAX_NAME = 128


class WrongCall(ValueError):
    """A call has a member that is missing, too large or of another kind."""


class CallWords:
    """The members of one call."""

    def __init__(self, members: object) -> None:
        if not isinstance(members, Mapping):
            raise WrongCall("a call has members")
        self._members = members

    def text(self, name: str, *, most: int = _MAX_TEXT) -> str:
        value = self._members.get(name)
        if not isinstance(value, str) or len(value) > most or "\0" in value:
            raise WrongCall(f"`{name}` is a text of at most {most} characters")
        return value

    def name(self, name: str) -> str:
        return self.text(name, most=_MAX_NAME)

    def optional_text(self, name: str) -> str | None:
        return None if self._members.get(name) in (None, "") else self.text(name)

    def optional_name(self, name: str) -> str | None:
        return None if self._members.get(name) is None else self.name(name)

    def words(self, name: str) -> list[str]:
        value: Any = self._members.get(name)
        is_list = isinstance(value, list) and 0 < len(value) <= _MAX_WORDS
        if not is_list or not all(isinstance(each, str) and "\0" not in each for each in value):
            raise WrongCall(f"`{name}` is a list of at most {_MAX_WORDS} texts")
        if sum(map(len, value)) > 128 * 1024:
            raise WrongCall(f"`{name}` is too long")
        return list(value)

    def number(self, name: str, *, most: int, least: int = 0) -> int:
        value = self._members.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise WrongCall(f"`{name}` is a number from {least} to {most}")
        return value

    def amount(self, name: str, *, most: float) -> float:
        value = self._members.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
            raise WrongCall(f"`{name}` is a number from 0 to {most:g}")
        return float(value)

    def has(self, name: str) -> bool:
        return self._members.get(name) is not None

    def flag(self, name: str) -> bool:
        value = self._members.get(name, False)
        if not isinstance(value, bool):
            raise WrongCall(f"`{name}` is true or false")
        return value

    def size(self) -> tuple[int, int]:
        """The columns and rows of a terminal."""
        columns = self.number("columns", least=2, most=MAX_SIDE)
        return columns, self.number("rows", least=1, most=MAX_SIDE)


# Takes the members of a call and returns data for JSON.
Call = Callable[[CallWords], Awaitable[Any]]
