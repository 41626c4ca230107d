"""How methods and events are declared: a wire name with the shapes of its messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

P = TypeVar("P")
R = TypeVar("R")

# Where a method or an event comes from: Codex documents it, its server has it without a word in its
# documents, or it is an extension of ours.
Dialect = Literal["documented", "undocumented", "ours"]


class Nothing(msgspec.Struct, frozen=True):
    """Parameters of a method that takes none; also the empty answer ``{}``."""


NOTHING = Nothing()


class Encoded(msgspec.Struct, frozen=True):
    """A result that is JSON already, in pieces, so that megabytes are not copied.

    With *bulk* there are two parts, and its base64 belongs between them.
    """

    parts: tuple[bytes, ...]
    bulk: bytes | None = None


# A handler of a method with the result R returns the answer, or an awaitable of it.
Reply: TypeAlias = R | Encoded | Awaitable[R | Encoded]


class Method(Generic[P, R]):
    """A request: its name, its parameters, its result, and the family that its errors name."""

    __slots__ = ("dialect", "family", "is_control", "name", "params", "result", "usual_params")

    def __init__(
        self,
        name: str,
        params: type[P],
        result: type[R],
        *,
        family: str,
        is_control: bool = False,
        dialect: Dialect = "ours",
        usual_params: Callable[[Any], P | None] | None = None,
    ) -> None:
        self.name = name
        self.params = params
        # Decodes the parameters in their usual form, in less time; None for all others.
        self.usual_params = usual_params
        self.result = result
        self.family = family
        # Control methods have their own lane, so that long polls never delay them.
        self.is_control = is_control
        self.dialect = dialect

    def __repr__(self) -> str:
        return f"Method({self.name!r})"


class Event(Generic[P]):
    """A notification: its name and its parameters."""

    __slots__ = ("dialect", "name", "params")

    def __init__(self, name: str, params: type[P], *, dialect: Dialect = "ours") -> None:
        self.name = name
        self.params = params
        self.dialect = dialect

    def __repr__(self) -> str:
        return f"Event({self.name!r})"


def is_unit(params: Any) -> bool:
    """True if a method without parameters accepts *params*: nothing, null or ``{}``."""
    return params is None or params == {}
