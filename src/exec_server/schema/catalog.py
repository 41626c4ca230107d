"""Every method, event and error of the protocol."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any, Literal, NamedTuple

import exec_server.protocol
from exec_server import errors
from exec_server.protocol.method import Event, Method
from exec_server.schema.comments import comments_of

Side = Literal["client", "server", "both"]

# All other methods are answered by servers, and all other events are sent by servers.
_SENDERS: dict[str, Side] = {
    "initialized": "client",
    "network/policyRequest": "server",
    "process/ack": "client",
    "session/ping": "both",
    "stream/data": "both",
    "stream/end": "both",
    "stream/ack": "both",
    "stream/reset": "both",
}


class Declared(NamedTuple):
    """A method or an event, with what is said about it."""

    item: Method[Any, Any] | Event[Any]
    description: str
    # The side that sends the request or the event.
    sender: Side


@cache
def declared() -> tuple[Declared, ...]:
    """All methods and events of the protocol, by their names."""
    found = []
    for info in pkgutil.iter_modules(exec_server.protocol.__path__):
        module = importlib.import_module(f"{exec_server.protocol.__name__}.{info.name}")
        comments = comments_of(module)
        for name, value in vars(module).items():
            if isinstance(value, Method | Event):
                usual: Side = "client" if isinstance(value, Method) else "server"
                sender = _SENDERS.get(value.name, usual)
                found.append(Declared(value, comments.texts.get(("", name), ""), sender))
    return tuple(sorted(found, key=lambda each: each.item.name))


@cache
def error_kinds() -> tuple[type[errors.RpcError], ...]:
    """The errors that answer requests, by their codes."""
    kinds = {kind for kind in vars(errors).values() if _is_answer(kind)}
    return tuple(sorted(kinds, key=lambda kind: (-kind.code, kind.__name__)))


def _is_answer(value: Any) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, errors.RpcError)
        and "code" in vars(value)
        and value is not errors.RpcError
    )
