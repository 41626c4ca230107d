"""The synchronous client cannot drift from the asynchronous one."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import exec_server
from exec_server import sync
from exec_server.sync import sync_api
from tests.requirements import requirement
from tests.support.servers import ROOT

SCRIPT = ROOT / "scripts" / "sync_twin.py"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sync_twin", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TWIN = load_script()
MERGED = {part for parts in TWIN.MERGED.values() for part in parts}
CLASSES = sorted(set(TWIN.CLASSES) - MERGED)
# Methods whose arguments and results are objects of asyncio; there is no twin of them.
ASYNCIO_ALONE = {
    name
    for kind, module in TWIN.ASYNCIO_ALONE.items()
    for name in vars(getattr(importlib.import_module(f"exec_server.{module}"), kind))
    if not name.startswith("_")
}
PROTOCOLS = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}


def members(kind: type) -> dict[str, object]:
    found = {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}
    return {
        PROTOCOLS.get(name, name): value
        for name, value in found.items()
        if name in {*PROTOCOLS, *PROTOCOLS.values()} or not name.startswith("_")
    }


def parameters(value: object) -> list[tuple[str, object, object]]:
    assert callable(value)
    return [(p.name, p.kind, p.default) for p in inspect.signature(value).parameters.values()]


@requirement("sync/twin")
def test_what_is_checked_in_is_what_would_be_made():
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@requirement("sync/twin")
@pytest.mark.parametrize("name", CLASSES)
def test_a_twin_has_every_public_name_with_its_parameters(name):
    module = importlib.import_module(f"exec_server.{TWIN.CLASSES[name]}")
    theirs, ours = members(getattr(module, name)), members(getattr(sync_api, name))
    theirs = {each: found for each, found in theirs.items() if not isinstance(found, classmethod)}
    theirs = {each: found for each, found in theirs.items() if each not in ASYNCIO_ALONE}
    assert set(theirs) <= set(ours)
    for each in theirs:
        if inspect.isfunction(theirs[each]):
            assert parameters(ours[each]) == parameters(theirs[each]), each
        elif isinstance(theirs[each], property):
            assert isinstance(ours[each], property), each


@requirement("sync/twin")
@pytest.mark.parametrize("name", TWIN.OPENERS)
def test_what_opens_a_client_has_the_same_parameters(name):
    assert parameters(getattr(sync, name)) == parameters(getattr(exec_server, name))


@requirement("sync/twin")
def test_every_twin_is_public():
    assert sorted(sync.__all__) == sorted([*CLASSES, *TWIN.OPENERS])


@requirement("sync/twin")
def test_nothing_asynchronous_is_left():
    for name in CLASSES:
        for each, value in members(getattr(sync_api, name)).items():
            assert not inspect.iscoroutinefunction(value), each
            assert not inspect.isasyncgenfunction(value), each


@requirement("sync/twin")
def test_a_client_loads_no_server():
    program = "import sys; from exec_server import sync; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert "exec_server.server.server" not in found.stdout.decode().split()
