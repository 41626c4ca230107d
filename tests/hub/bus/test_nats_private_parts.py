"""The private parts of nats-py that `hub/bus/nats_client.py` relies on, in the installed release.

When a test here fails, a new release has moved one of them: read what it does now, change
`nats_client.py`, and only then raise the upper bound of nats-py in pyproject.toml.
"""

from __future__ import annotations

import ast
import inspect
import tomllib
from importlib.metadata import version

import pytest
from nats.aio.client import PING_PROTO, Client
from nats.aio.transport import TcpTransport
from nats.protocol.parser import Parser

from tests.requirements import requirement
from tests.support.source_tree import ROOT

BUS = ROOT / "hub" / "bus"
PYPROJECT = ROOT.parent.parent / "pyproject.toml"
# Methods that we override or call: their parameters, and whether they are coroutines.
METHODS = {
    "_connect_command": (["self"], False),
    "_flush_pending": (["self", "force_flush"], True),
    "_process_pong": (["self"], True),
    "_send_command": (["self", "cmd", "priority"], True),
    "_send_ping": (["self", "future"], True),
}
# The methods of the library that have to call our overrides.
CALLERS: list[tuple[type, str, str]] = [
    (Client, "flush", "_send_ping"),
    (Client, "_ping_interval", "_send_ping"),
    (Client, "_process_connect_init", "_connect_command"),
    (Parser, "parse", "_process_pong"),
]
ATTRIBUTES: dict[str, type] = {
    "_pongs": list,
    "_reconnection_task": type(None),
    "_server_info": dict,
    "_transport": type(None),
}


def moved(what: str) -> str:
    return f"nats-py {version('nats-py')} has moved {what}, on which hub/bus/nats_client.py relies"


@requirement("hub/bus/nats:private-parts")
@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_called_as_before(name):
    method = getattr(Client, name, None)
    assert method is not None, moved(f"Client.{name}")
    parameters, is_coroutine = METHODS[name]
    assert list(inspect.signature(method).parameters) == parameters, moved(f"Client.{name}")
    assert inspect.iscoroutinefunction(method) == is_coroutine, moved(f"Client.{name}")


@requirement("hub/bus/nats:private-parts")
@pytest.mark.parametrize(("owner", "caller", "name"), CALLERS)
def test_an_override_is_still_called(owner, caller, name):
    method = getattr(owner, caller, None)
    assert method is not None, moved(f"{owner.__name__}.{caller}")
    assert name in method.__code__.co_names, moved(f"the call of {name} in {caller}")


@requirement("hub/bus/nats:private-parts")
@pytest.mark.parametrize("name", ATTRIBUTES)
async def test_an_attribute_is_what_it_was(name):
    assert isinstance(getattr(Client(), name, ...), ATTRIBUTES[name]), moved(f"Client.{name}")


@requirement("hub/bus/nats:private-parts")
def test_a_transport_has_its_writer():
    assert hasattr(TcpTransport(), "_io_writer"), moved("TcpTransport._io_writer")


@requirement("hub/bus/nats:private-parts")
def test_a_subscription_takes_a_future():
    # Each message is its result: `tests/hub/bus/test_bus.py` shows that it arrives.
    assert "future" in inspect.signature(Client.subscribe).parameters, moved("the future")


@requirement("hub/bus/nats:private-parts")
def test_a_ping_is_a_line():
    assert PING_PROTO == b"PING\r\n", moved("PING_PROTO")


@requirement("hub/bus/nats:private-parts")
@pytest.mark.parametrize("path", sorted(BUS.glob("nats_*.py")), ids=lambda path: path.name)
async def test_one_module_uses_private_parts(path):
    private = {name for name in dir(Client()) if name.startswith("_") and not name.endswith("__")}
    used = {
        node.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    }
    if path.name != "nats_client.py":
        assert not used & private, f"{path.name} uses private parts of nats-py"


@requirement("hub/bus/nats:private-parts")
def test_untested_releases_are_excluded():
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    extra = project["project"]["optional-dependencies"]["cluster"]
    (bound,) = [each.partition("<")[2] for each in extra if each.startswith("nats-py")]
    release, limit = _numbers(version("nats-py")), _numbers(bound)
    assert release[:2] < limit == (release[0], release[1] + 1)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
