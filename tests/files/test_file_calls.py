"""A file method is declared once in each of four places: protocol, table, handlers and client."""

from __future__ import annotations

import ast
import inspect
import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import exec_server.client
from exec_server.files.confined import work
from exec_server.files.confined.confined_files import ConfinedFiles
from exec_server.files.confined.packets import HelperCall
from exec_server.files.file_admission import FileAdmission
from exec_server.files.file_calls import FileCalls
from exec_server.files.file_service import Files, FileService
from exec_server.files.operations.table import OPEN_FILE, OPERATIONS
from exec_server.files.operations.task import BulkOperation, Operation
from exec_server.limits import Limits
from exec_server.protocol import file_delta, file_search, file_watch, fs
from exec_server.protocol.method import Encoded, Method
from exec_server.protocol.paths import PathUri
from exec_server.server.handlers import fs as handlers
from tests.requirements import requirement

MODULES = (fs, file_delta, file_search, file_watch)
METHODS = {
    f"{module.__name__.rpartition('.')[2]}.{name}": value
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, Method)
}
# These are about a file that is open already, or about the connection's one watch.
WITHOUT_A_PATH = {fs.READ_BLOCK, fs.WRITE_BLOCK, fs.CLOSE, fs.WATCH_MISSING}
# These go on after their answer, in a process of their own; or end what does.
LONG = {
    file_search.SEARCH,
    file_search.CANCEL_SEARCH,
    file_watch.WATCH,
    file_watch.UNWATCH,
}
# This one leaves a file open.
OPENING = {fs.OPEN}


@requirement("fs:one-operation-each")
def test_every_method_that_names_a_path_has_one_operation():
    named = set(METHODS.values()) - WITHOUT_A_PATH - OPENING - LONG
    assert {operation.method for operation in OPERATIONS.values()} == named
    assert {name: operation.name for name, operation in OPERATIONS.items()} == {
        method.name: method.name for method in named
    }
    assert OPEN_FILE.name == fs.OPEN.name


@requirement("fs:one-handler-each")
def test_every_method_has_one_handler():
    routes = [value.route for value in vars(handlers).values() if hasattr(value, "route")]
    assert Counter(route.method for route in routes) == Counter(METHODS.values())


@requirement("fs:one-operation-each")
def test_every_method_is_called_by_one_module_of_the_client():
    plain = [name for name in METHODS if name.startswith("fs.")]
    callers: dict[str, set[Path]] = {name: set() for name in plain}
    for path in Path(exec_server.client.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                callers.get(ast.unparse(node), set()).add(path)
    assert {name: len(paths) for name, paths in callers.items()} == dict.fromkeys(plain, 1)


@requirement("fs:one-operation-each")
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_an_operation_fits_the_parameters_of_its_method(operation):
    members = operation.method.params.__struct_fields__
    asked = SimpleNamespace(follow_symlinks=False)
    assert operation.follows(asked) is ("follow_symlinks" not in members)
    assert operation.has_content is ("data_base64" in members)


@requirement("fs:one-operation-each")
@pytest.mark.parametrize("name", [*OPERATIONS, OPEN_FILE.name])
def test_a_helper_knows_every_operation(name):
    task = OPERATIONS.get(name, OPEN_FILE)
    assert work.is_short(HelperCall(1, name, ())) is task.is_short


@requirement("fs:one-operation-each")
@pytest.mark.parametrize("kind", [Files, ConfinedFiles])
def test_files_with_and_without_a_sandbox_have_the_same_calls(kind):
    calls = [name for name in vars(FileCalls) if not name.startswith("_")]
    assert {"call", "read_file", "write_file", "get_metadata", "open"} <= set(calls)
    for name in calls:
        wanted = list(inspect.signature(getattr(FileCalls, name)).parameters)
        assert list(inspect.signature(getattr(kind, name)).parameters) == wanted


class LinkParams(msgspec.Struct):
    path: PathUri
    follow_symlinks: bool | None = None


class LinkResult(msgspec.Struct):
    target: str


LINK = Method("fs/link", LinkParams, LinkResult, family=fs.FAMILY)


def read_link(path: bytes) -> LinkResult:
    return LinkResult(os.fsdecode(os.readlink(path)))


def read_link_plainly(path: bytes) -> LinkResult:
    return LinkResult("no link was followed")


@requirement("fs:one-operation-each")
async def test_a_method_and_its_entry_are_all_that_a_call_needs(tmp_path, monkeypatch):
    entry = Operation(
        LINK, lambda params, _: (params.path.native,), read_link, read_link_plainly, is_short=True
    )
    monkeypatch.setitem(OPERATIONS, LINK.name, entry)
    monkeypatch.setitem(work._TASKS, LINK.name, entry)
    (tmp_path / "link").symlink_to("target")
    path = os.fsencode(tmp_path / "link")
    service = FileService(Limits(), FileAdmission({}), no_helper)
    files = service.connect(lambda event: None)
    try:
        assert await files.call(LINK, LinkParams(PathUri.of(path))) == LinkResult("target")
        plainly = await files.call(LINK, LinkParams(PathUri.of(path), False))
        assert plainly == LinkResult("no link was followed")
    finally:
        files.close()
        service.stop()
    assert work.perform(HelperCall(1, LINK.name, (path,)), None) == (b'{"target":"target"}',)
    plain_call = HelperCall(2, LINK.name, (path,), follows=False)
    assert work.perform(plain_call, None) == (b'{"target":"no link was followed"}',)


async def no_helper(plan: Any) -> Any:
    raise AssertionError


def test_an_operation_that_only_follows_links_refuses_not_to():
    entry = Operation(LINK, lambda params, _: (params.path.native,), read_link)
    with pytest.raises(AssertionError, match="fs/link"):
        entry.perform((b"/",), False)


def test_a_bulk_operation_asks_whether_it_is_cancelled():
    def work_on(path: bytes, is_cancelled: Any) -> Encoded:
        return Encoded((b"true" if is_cancelled() else b"false",))

    entry = BulkOperation(LINK, lambda params, _: (params.path.native,), work_on)
    assert entry.perform((b"/",), True, lambda: True) == Encoded((b"true",))
    assert entry.perform((b"/",), True) == Encoded((b"false",))
