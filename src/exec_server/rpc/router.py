"""The table of routes: which function answers which method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any, Generic, TypeVar

import msgspec

from exec_server.protocol.method import Encoded, Method

C = TypeVar("C")
P = TypeVar("P")
R = TypeVar("R")

# A handler that does not have to wait returns its result, which costs no task. One that returns a
# future may rely on when its answer is sent: see `Peer`.
Handler = Callable[[C, P], R | Encoded | Awaitable[R | Encoded]]


class Route(msgspec.Struct, frozen=True):
    """A method and the function that answers it."""

    method: Method[Any, Any]
    handler: Callable[[Any, Any], Any]


class _Handled(Generic[C, P, R]):
    """A handler as `handles` leaves it in a module: the function together with its method."""

    def __init__(self, method: Method[P, R], handler: Handler[C, P, R]) -> None:
        self.route = Route(method, handler)
        self.__doc__ = handler.__doc__

    def __call__(self, context: C, params: P) -> R | Encoded | Awaitable[R | Encoded]:
        result: R | Encoded | Awaitable[R | Encoded] = self.route.handler(context, params)
        return result


def handles(method: Method[P, R]) -> Callable[[Handler[C, P, R]], _Handled[C, P, R]]:
    """Mark a function as the one that answers *method*; mypy compares their shapes."""
    return lambda handler: _Handled(method, handler)


class Router:
    """Every route of the given modules, by name."""

    def __init__(self, *modules: ModuleType) -> None:
        self.routes: dict[str, Route] = {}
        for module in modules:
            for value in vars(module).values():
                if isinstance(value, _Handled):
                    name = value.route.method.name
                    assert name not in self.routes, f"{name} has two handlers"
                    self.routes[name] = value.route
