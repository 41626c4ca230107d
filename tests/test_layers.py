"""Who may import whom: the tree of the package, enforced."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requirements import requirement

PACKAGE = "exec_server"
ROOT = Path(__file__).parent.parent / "src" / PACKAGE

# What each top-level module or package may import from ours besides itself.
# A dotted name allows that module only.
BELOW_SERVER = (
    "errors limits version timers protocol state transport rpc sandbox process files outbound host "
    "discovery network"
)
RULES = {
    # Pure: what may be said, what is remembered and decided.
    "errors": "",
    "limits": "",
    "version": "",
    "timers": "",
    "protocol": "errors limits",
    "state": "protocol errors limits",
    "relay": "protocol errors limits",
    # The edge, and calls over it.
    "transport": "errors limits",
    "rpc": "transport.connection state protocol errors limits",
    # The operating system.
    "sandbox": "protocol errors limits",
    "process": "timers sandbox state protocol errors limits",
    "files": "discovery sandbox protocol errors limits",
    "outbound": "protocol errors limits",
    "host": "protocol errors limits",
    "network": "protocol errors limits",
    "discovery": "host protocol errors limits",
    # What joins them; these do not know one another.
    "server": BELOW_SERVER,
    "client": "rpc transport version state protocol errors limits",
    "remote": "timers relay transport state protocol errors limits",
    "hub": "relay.frame relay.keys transport version errors limits",
    # Where they meet.
    "client_urls": "client remote errors limits",
    "remote_server": "server remote version errors limits",
    "local_server": "client_urls server client transport errors limits",
    "sync": "local_server client_urls client protocol transport version errors limits",
    "cli": f"{BELOW_SERVER} relay server client remote hub web local_server client_urls "
    "remote_server sync __init__",
    "web": f"{BELOW_SERVER} relay server client remote hub local_server sync __init__",
    "__init__": f"{BELOW_SERVER} relay server client remote local_server client_urls remote_server",
    "__main__": "cli",
}
PURE = {"errors", "limits", "version", "protocol", "state", "relay"}
IMPURE_IMPORTS = set(
    "asyncio concurrent fcntl multiprocessing os picows pty random secrets select selectors signal "
    "socket ssl subprocess threading time uvloop".split()
)
# Outsiders that one package alone may import.
SOLE_IMPORTERS = {"google": "relay", "nats": "hub", "picows": "transport", "psycopg": "hub"}
# Programs that run with `python -I -S`, where neither we nor what we depend on can be found.
STANDALONE = {"process.keeper", "network.namespace_listener"}


def is_module(name: str) -> bool:
    """Whether the dotted *name* below our package is a file or folder, not a name in one."""
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Yield the absolute names that *module* imports, wherever in it the import stands.

    A name that *module* takes from one of our packages is reported as the submodule it is, or else
    as the package. Dynamic imports count when their argument is a literal.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, module, is_package=is_package)
            for alias in node.names:
                yield submodule_or_package(base, alias.name)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in DYNAMIC and node.args:
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value


DYNAMIC = {"__import__", "import_module", "importlib.import_module"}


def absolute(node: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    base = parts[: len(parts) - node.level + is_package]
    return ".".join([*base, node.module] if node.module else base)


def submodule_or_package(base: str, name: str) -> str:
    if base == PACKAGE:
        return f"{base}.{name}" if is_module(name) else f"{base}.__init__"
    inner = base.removeprefix(f"{PACKAGE}.")
    if inner != base and is_module(f"{inner}.{name}"):
        return f"{base}.{name}"
    return base


def layer(name: str) -> str:
    """The top-level package of a dotted name below ours."""
    return name.partition(".")[0]


def is_allowed(target: str, rules: str) -> bool:
    return any(target == rule or target.startswith(f"{rule}.") for rule in rules.split())


def violations(source: str, name: str, *, is_package: bool = False) -> list[str]:
    """Say, one line each, which imports of our module *name* its layer does not allow."""
    found = []
    own = layer(name)
    module = PACKAGE if name == "__init__" else f"{PACKAGE}.{name}"
    for imported in imports(source, module, is_package=is_package):
        top = layer(imported)
        if name in STANDALONE and top not in sys.stdlib_module_names:
            found.append(f"{name} imports {imported}, and runs where only the standard library is")
        elif top == PACKAGE:
            target = imported.removeprefix(PACKAGE).removeprefix(".") or "__init__"
            if layer(target) != own and not is_allowed(target, RULES[own]):
                found.append(f"{name} imports {imported}; {own} may import: {RULES[own] or 'none'}")
        elif own in PURE and top in IMPURE_IMPORTS:
            found.append(f"{name} imports {imported}; {own} is pure")
        elif SOLE_IMPORTERS.get(top, own) != own:
            found.append(f"{name} imports {imported}; only {SOLE_IMPORTERS[top]} may")
    return found


def modules() -> dict[str, Path]:
    """Our modules by dotted name; a package's own is named without ``.__init__``."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(ROOT.rglob("*.py"))
    }


@requirement(
    "house/layers:imports-follow-the-tree",
    "house/layers:pure-is-pure",
    "house/layers:one-importer-of-picows",
    "house/layers:keeper-stands-alone",
)
@pytest.mark.parametrize("name", [name for name in modules() if layer(name) in RULES])
def test_a_module_imports_only_what_its_layer_may(name):
    path = modules()[name]
    source = path.read_text(encoding="utf-8")
    found = violations(source, name, is_package=path.name == "__init__.py")
    assert not found, "\n".join(found)


@requirement("house/layers:every-package-has-a-rule")
def test_every_top_level_package_has_a_rule():
    unruled = {layer(name) for name in modules()} - set(RULES)
    assert not unruled, f"add to RULES what these may import: {', '.join(sorted(unruled))}"


def test_rules_name_only_layers():
    named = {layer(rule) for rules in RULES.values() for rule in rules.split()}
    assert named <= set(RULES)


def test_layers_do_not_import_in_a_circle():
    done: set[str] = set()
    while ready := {
        name
        for name, rules in RULES.items()
        if name not in done and {layer(rule) for rule in rules.split()} <= done
    }:
        done |= ready
    assert done == set(RULES)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("state.output_log", "import exec_server.rpc.peer"),
        ("state.output_log", "from exec_server import client"),
        ("state.output_log", "from exec_server import connect"),
        ("state.output_log", "import exec_server"),
        ("state.output_log", "from ..rpc import peer"),
        ("state.output_log", "from .. import rpc"),
        ("state.output_log", "def f():\n    from exec_server.server import server"),
        ("state.output_log", "if TYPE_CHECKING:\n    from exec_server.rpc.peer import Peer"),
        ("state.output_log", "importlib.import_module('exec_server.rpc')"),
        ("state.output_log", "import os.path"),
        ("protocol.envelope", "from time import monotonic"),
        ("errors", "from exec_server.limits import Limits"),
        ("rpc.peer", "from exec_server.transport.websocket import WebSocketConnection"),
        ("rpc.peer", "from exec_server.transport import Connection"),
        ("server.server", "from picows import ws_create_server"),
        ("server.server", "import exec_server.client"),
        ("client.client", "import exec_server.server"),
        ("hub.relay.routing", "import exec_server.relay.noise"),
        ("relay.mux", "from os import urandom"),
        ("relay.mux", "from exec_server.transport.connection import Connection"),
        ("remote.executor.executor", "from google.protobuf.message import Message"),
        ("__main__", "import exec_server.server"),
        ("process.keeper", "from exec_server.errors import ExecServerError"),
        ("process.keeper", "from . import spawn"),
        ("process.keeper", "import msgspec"),
    ],
)
def test_an_import_down_the_tree_is_found(name, source):
    assert len(violations(source, name)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("state.output_log", "from exec_server.protocol import process"),
        ("state.output_log", "from ..errors import RpcError"),
        ("state.output_log", "from . import write_ids"),
        ("state.output_log", "import collections, msgspec"),
        ("rpc.peer", "from exec_server.transport.connection import Connection"),
        ("transport.websocket", "from picows import WSListener"),
        ("relay.frame", "from google.protobuf.message import DecodeError"),
        ("server.handlers.fs", "from ...files.operations import local"),
        ("server.handlers.fs", "from ..context import Context"),
        ("cli.main", "from exec_server import connect"),
        ("__init__", "from exec_server.client.client import ExecServerClient"),
        ("__main__", "from exec_server.cli.main import main"),
        ("process.keeper", "import os, select, signal"),
    ],
)
def test_an_import_up_the_tree_is_allowed(name, source):
    assert violations(source, name) == []


def test_a_package_resolves_relative_imports_from_itself():
    assert list(imports("from . import errors", PACKAGE, is_package=True)) == ["exec_server.errors"]
    assert list(imports("from .peer import Peer", "exec_server.rpc", is_package=True)) == [
        "exec_server.rpc.peer"
    ]
