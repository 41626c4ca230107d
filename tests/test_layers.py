"""Which package may import which: the tree of the package, enforced."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.requirements import requirement
from tests.support.source_tree import (
    PACKAGE,
    eager_imports,
    imports,
    is_package,
    modules,
    running_imports,
)

# The modules and packages of ours that each top-level module or package may import besides itself.
# A dotted name allows that module only. Every permission is used: see the test below.
RULES = {
    # Pure: these describe messages, remember and decide. They do no I/O.
    "defaults": "",
    "errors": "",
    "limits": "defaults",
    "version": "",
    "small_digests": "",
    "printable": "small_digests",
    "prometheus": "",
    "protocol": "errors limits",
    "state": "protocol errors limits",
    "relay": "errors limits",
    "terminal": "",
    "own_interpreter": "",
    "early_writeback": "",
    "recording": "errors own_interpreter terminal",
    # The edge: the event loop, sockets, and calls over them.
    "timers": "",
    "audit": "errors printable",
    "memory": "",
    "access": "errors protocol",
    "transport": "defaults errors limits",
    "rpc": "transport.connection protocol errors limits",
    "streams": "memory protocol",
    # The operating system: children, files, addresses.
    "sandbox": "protocol errors",
    "process": "audit.masking timers memory printable sandbox state protocol errors limits",
    "files": "early_writeback own_interpreter memory discovery sandbox state protocol errors "
    "limits",
    "outbound": "printable protocol errors limits",
    "host": "small_digests protocol",
    # The conformance kit must not depend on what it checks.
    "conformance": "",
    "schema": "protocol version errors limits",
    "screens": "own_interpreter terminal process protocol errors",
    "network": "printable protocol errors limits",
    "discovery": "host protocol errors limits",
    # These join the layers above. They do not import one another.
    "server": "access audit errors limits version printable prometheus timers protocol state "
    "transport rpc sandbox screens process files outbound host discovery network schema streams "
    "recording defaults",
    "client": "early_writeback terminal rpc transport version state streams protocol errors limits",
    "remote": "audit memory timers protocol.registry relay transport errors limits",
    "hub": "access audit memory protocol.registry relay.frame relay.keys prometheus transport "
    "version errors limits",
    # These join the joins.
    "connecting": "client remote protocol.registry errors",
    "client_urls": "client connecting",
    "remote_server": "audit.audit_file recording server remote version errors",
    "hidden_state": "remote.state_dir sandbox.own_places",
    "local_server": "connecting hidden_state server client transport limits",
    "sync": "local_server client_urls client protocol errors limits",
    "web": "access audit.masking client hub.http transport recording terminal protocol errors "
    "limits",
    "cli": "terminal access audit errors limits printable small_digests protocol transport sandbox "
    "relay server client remote hub hidden_state local_server connecting remote_server "
    "schema conformance version integrations.mcp ssh_door web recording defaults",
    # Channels of OpenSSH on the client.
    "ssh_door": "memory client protocol version errors",
    "__init__": "errors limits version protocol transport server client remote local_server "
    "client_urls remote_server",
    # Plugs for other projects use only what every user may import.
    "integrations": "__init__ sync",
    "__main__": "cli",
}
PURE = {
    "defaults",
    "errors",
    "limits",
    "version",
    "printable",
    "small_digests",
    "prometheus",
    "protocol",
    "state",
    "relay",
    "terminal",
}
IMPURE_IMPORTS = set(
    "asyncio concurrent fcntl multiprocessing os picows pty random secrets select selectors signal "
    "socket ssl subprocess threading time uvloop".split()
)
# Packages of others that only one package of ours may import.
SOLE_IMPORTERS = {
    "PIL": "terminal",
    "bittty": "terminal",
    "google.protobuf": "relay",
    "nats": "hub",
    "picows": "transport",
    "psycopg": "hub",
    "pyghostty": "terminal",
}
# Files that run where only the standard library and these files can be found: programs that are
# started with `python -I -S`, what these load by path, and what any of them imports.
STANDALONE = {
    "process.durable.durable_keeper",
    "process.durable.keeper_strangers",
    "process.durable.kept_input",
    "process.durable.kept_job",
    "process.exit_facts",
    "process.journal",
    "process.journaling.journal_files",
    "process.journaling.journal_format",
    "process.journaling.journal_index",
    "process.journaling.journal_space",
    "process.journaling.terminal_output",
    "process.keeper",
    "process.keeping.c_parts",
    "process.keeping.child_stdio",
    "process.keeping.held_outputs",
    "process.keeping.keeper_setup",
    "process.keeping.kept_descriptors",
    "process.keeping.late_parts",
    "process.keeping.process_trees",
    "process.keeping.program_launch",
    "process.keeping.sandbox_watch",
    "process.keeping.server_messages",
    "process.keeping.tree_marks",
    "process.kernel_log",
    "process.limiting.cgroup_places",
    "process.limiting.cgroups",
    "process.limiting.limited_start",
    "process.limiting.limited_tree",
    "process.limiting.limiter",
    "process.limiting.mechanisms",
    "process.limiting.spare_groups",
    "process.limiting.tree_usage",
    "process.signal_senders",
    "sandbox.as_user",
    "sandbox.guard",
    "sandbox.in_keeper",
    "sandbox.inner_command",
    "sandbox.placeholders",
    "sandbox.supervisor.attempts",
    "sandbox.supervisor.granted_work",
    "sandbox.supervisor.judge",
    "sandbox.supervisor.notifications",
    "sandbox.supervisor.record_channel",
    "sandbox.supervisor.record_file",
    "sandbox.supervisor.shortcuts",
    "sandbox.supervisor.supervised_start",
    "sandbox.supervisor.supervisor",
    "sandbox.wall_watch",
    "network.namespace_listener",
}


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
    if name in STANDALONE:
        found += [
            f"{name} imports {imported}, but runs with the standard library alone"
            for imported in running_imports(source, module, is_package=is_package)
            if layer(imported) not in sys.stdlib_module_names
            and imported.removeprefix(f"{PACKAGE}.") not in STANDALONE
        ]
    for imported in imports(source, module, is_package=is_package):
        top = layer(imported)
        if top == PACKAGE:
            target = imported.removeprefix(PACKAGE).removeprefix(".") or "__init__"
            if layer(target) != own and not is_allowed(target, RULES[own]):
                found.append(f"{name} imports {imported}; {own} may import: {RULES[own] or 'none'}")
        elif own in PURE and top in IMPURE_IMPORTS:
            found.append(f"{name} imports {imported}; {own} is pure")
        elif (sole := sole_importer(imported)) not in (None, own):
            found.append(f"{name} imports {imported}; only {sole} may")
    return found


def sole_importer(imported: str) -> str | None:
    owners = SOLE_IMPORTERS.items()
    return next((owner for package, owner in owners if is_allowed(imported, package)), None)


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
    found = violations(source, name, is_package=is_package(path))
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


def imported_layers(own: str) -> set[str]:
    """The modules of ours outside of *own* that some module of the layer *own* imports."""
    found = set()
    for name, path in modules().items():
        if layer(name) == own:
            module = PACKAGE if name == "__init__" else f"{PACKAGE}.{name}"
            source = path.read_text(encoding="utf-8")
            for imported in imports(source, module, is_package=is_package(path)):
                if layer(imported) == PACKAGE:
                    found.add(imported.removeprefix(PACKAGE).removeprefix(".") or "__init__")
    return found


@requirement("house/layers:every-permission-is-used")
def test_every_permission_is_used():
    imported = {own: imported_layers(own) for own in RULES}
    idle = [
        f"{own} may import {rule} and does not"
        for own, rules in RULES.items()
        for rule in rules.split()
        if not any(is_allowed(target, rule) for target in imported[own])
    ]
    assert not idle, "remove from RULES:\n  " + "\n  ".join(idle)


def running_alone() -> set[str]:
    """The modules of ours that other modules run as programs, or load as files.

    A call of `keeper_command` names them, or they are started as
    ``[sys.executable, "-I", "-S", MODULE.__file__]``, or a function that calls
    `spec_from_file_location` names their file.
    """
    found = set()
    for path in modules().values():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == "__file__":
                found |= {
                    other for other in modules() if other.endswith(f".{ast.unparse(node.value)}")
                }
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "keeper_command":
                found.add(ast.literal_eval(node.args[0]))
            elif isinstance(node, ast.FunctionDef) and "spec_from_file" in ast.unparse(node):
                for file in file_names(node):
                    found |= {other for other, its in modules().items() if its.name == file}
    return found


def imported_by(names: set[str]) -> set[str]:
    """The modules *names* and, of ours, all that they import."""
    found: set[str] = set()
    waiting = set(names)
    while waiting:
        found.add(name := waiting.pop())
        source = modules()[name].read_text(encoding="utf-8")
        ours = (
            imported.removeprefix(f"{PACKAGE}.")
            for imported in running_imports(source, f"{PACKAGE}.{name}")
            if layer(imported) == PACKAGE
        )
        waiting |= set(ours) - found
    return found


def file_names(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and str(node.value).endswith(".py"):
            # A docstring may end so as well; it names no module then.
            yield str(node.value)


@requirement("house/layers:keeper-stands-alone")
def test_everything_that_is_loaded_by_path_stands_alone():
    assert imported_by(running_alone()) == STANDALONE


def eager_graph() -> dict[str, set[str]]:
    """For each module, those of ours that importing it imports first.

    With a module, Python imports the packages that hold it. These are counted, except for those
    that hold the importing module too: their import has begun before.
    """
    graph = {}
    for name, path in modules().items():
        module = PACKAGE if name == "__init__" else f"{PACKAGE}.{name}"
        graph[name] = needed = set[str]()
        source = path.read_text(encoding="utf-8")
        for imported in eager_imports(source, module, is_package=is_package(path)):
            if layer(imported) == PACKAGE:
                target = imported.removeprefix(PACKAGE).removeprefix(".") or "__init__"
                needed |= {target, *holders(target)} - {*holders(name), name}
                needed |= {target} - {name}
    return graph


def holders(name: str) -> Iterator[str]:
    """The packages that hold the module *name*, the outermost first."""
    yield "__init__"
    parts = name.split(".")
    yield from (".".join(parts[:end]) for end in range(1, len(parts)))


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """One path through *graph* that ends where it began; empty if there is none."""
    finished: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name not in finished:
            for needed in sorted(graph.get(name, ())):
                if found := visit(needed, [*path, name]):
                    return found
            finished.add(name)
        return []

    for name in sorted(graph):
        if found := visit(name, []):
            return found
    return []


@requirement("house/layers:no-eager-cycle")
def test_modules_do_not_import_one_another_in_a_circle():
    found = cycle_in(eager_graph())
    assert not found, "imported while still being imported: " + " -> ".join(found)


# Reads from stdin the names to import. It loads what others wrote, then imports each module of
# ours in a child of its own, which has none of ours loaded before. A child costs only the import
# of our modules, where a new interpreter would first have to load everything else again.
IMPORT_EACH_ALONE = """
import gc, importlib, json, os, signal, sys, warnings

names = json.load(sys.stdin)
warnings.simplefilter("ignore")
for name in names["others"]:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
assert not [name for name in sys.modules if name.partition(".")[0] == names["package"]]
gc.disable()
for name in names["ours"]:
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        try:
            importlib.import_module(name)
        except BaseException as exc:
            # A plug needs its framework, which need not be installed.
            is_plug = name.startswith(names["plugs"]) and isinstance(exc, ModuleNotFoundError)
            if not is_plug or exc.name.startswith(names["package"]):
                print(f"{name}: {type(exc).__name__}: {exc}", flush=True)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if status:
        print(f"{name}: ended with status {status}", flush=True)
"""


@requirement("house/layers:every-module-imports-alone")
# It imports some hundred modules, each in a process of its own.
@pytest.mark.timeout(300)
def test_every_module_can_be_imported_alone():
    # `__main__` is a program: importing it runs the command line.
    ours = [f"{PACKAGE}.{name}" for name in modules() if name not in {"__init__", "__main__"}]
    others = {
        imported
        for name, path in modules().items()
        for imported in eager_imports(path.read_text(encoding="utf-8"), f"{PACKAGE}.{name}")
        if layer(imported) not in {PACKAGE, "__future__"}
    }
    names = {
        "package": PACKAGE,
        "plugs": f"{PACKAGE}.integrations.",
        "ours": ours,
        "others": sorted(others),
    }
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH_ALONE],
        input=json.dumps(names),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert not done.stdout, f"these cannot be imported alone:\n{done.stdout}"


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
        ("cli.main", "from exec_server import connecting"),
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


def test_what_is_imported_late_is_not_imported_eagerly():
    source = """
import a
if TYPE_CHECKING:
    import b
else:
    import c
def f():
    import d
try:
    import e
except ImportError:
    import f
class G:
    import g
"""
    assert list(eager_imports(source, PACKAGE)) == ["a", "c", "e", "f", "g"]


def test_a_cycle_is_found():
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
