"""The manifest and the tests name each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.requirements import REQUIREMENTS, load, parse, requirement

TESTS = Path(__file__).parent


class Carried(NamedTuple):
    id: str
    where: str
    is_test: bool


def carried(source: str, *, name: str) -> Iterator[Carried]:
    """Yield the ids in *source*'s ``@requirement`` decorators, found without importing it."""
    for node in ast.walk(ast.parse(source, filename=name)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        prefix = "Test" if isinstance(node, ast.ClassDef) else "test"
        is_test = Path(name).name.startswith("test_") and node.name.startswith(prefix)
        for decorator in node.decorator_list:
            for id_ in decorated_ids(decorator):
                yield Carried(id_, f"{name}:{node.lineno} {node.name}", is_test)


def decorated_ids(decorator: ast.expr) -> Iterator[str]:
    if not isinstance(decorator, ast.Call):
        return
    called = decorator.func
    called_name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if called_name != "requirement":
        return
    for argument in decorator.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield argument.value
        else:
            # Known only when the test is imported; reported as it is written, which is no entry.
            yield ast.unparse(argument)


def all_carried() -> list[Carried]:
    return [
        item
        for path in sorted(TESTS.rglob("*.py"))
        for item in carried(
            path.read_text(encoding="utf-8"), name=path.relative_to(TESTS).as_posix()
        )
    ]


def listing(title: str, lines: list[str]) -> str:
    return "\n  ".join([f"{title} ({len(lines)}):", *lines])


@requirement("house/manifest:every-entry-has-a-test")
def test_every_entry_is_carried_by_a_test():
    proven = {item.id for item in all_carried() if item.is_test}
    missing = [
        f"{id_}  [{entry.source}] {entry.sentence}"
        for id_, entry in REQUIREMENTS.items()
        if id_ not in proven
    ]
    assert not missing, listing("entries of tests/requirements/ without a test", missing)


@requirement("house/manifest:every-carried-id-is-listed")
def test_every_carried_id_is_an_entry():
    unknown = [f"{item.where}: {item.id}" for item in all_carried() if item.id not in REQUIREMENTS]
    assert not unknown, listing("ids that tests/requirements/ does not list", unknown)


@requirement("house/manifest:only-tests-carry-ids")
def test_only_what_pytest_collects_carries_ids():
    idle = [f"{item.where}: {item.id}" for item in all_carried() if not item.is_test]
    assert not idle, listing("ids on what pytest does not run", idle)


def test_an_unknown_id_is_refused_when_the_test_is_imported():
    with pytest.raises(ValueError, match="no/such:entry"):
        requirement("no/such:entry")


def test_a_decorator_without_ids_is_refused():
    with pytest.raises(ValueError, match="no id given"):
        requirement()


def test_the_decorator_only_adds_a_marker():
    def function():
        return 1

    decorated = requirement("house/manifest:every-entry-has-a-test")(function)
    assert decorated is function
    assert [(mark.name, mark.args) for mark in function.pytestmark] == [  # type: ignore[attr-defined]
        ("requirement", ("house/manifest:every-entry-has-a-test",))
    ]


def test_decorators_are_found_without_importing():
    source = """
@requirement("a:1", "a:2")
async def test_one(): ...

class TestGroup:
    @requirements.requirement("b:1")
    def test_two(self): ...

@requirement(SOME_ID)
def test_three(): ...

@requirement("c:1")
def helper(): ...

@pytest.mark.parametrize("x", ["d:1"])
def test_four(x): ...
"""
    found = [(item.id, item.is_test) for item in carried(source, name="area/test_x.py")]
    assert sorted(found) == [
        ("SOME_ID", True), ("a:1", True), ("a:2", True), ("b:1", True), ("c:1", False),
    ]  # fmt: skip
    assert not any(item.is_test for item in carried(source, name="area/helpers.py"))


def test_comments_and_empty_lines_are_no_entries():
    text = "# area\n\na:1 | spec 1 | It holds | always.\n  # more\n"
    assert dict(parse(text, name="x.txt")) == {"a:1": ("spec 1", "It holds | always.")}


@pytest.mark.parametrize("line", ["a:1", "a:1 | spec", "a:1 | | It holds.", "a 1 | spec | It."])
def test_a_line_that_is_no_entry_is_named(line):
    with pytest.raises(ValueError, match=r"x\.txt:2"):
        list(parse(f"# area\n{line}\n", name="x.txt"))


def test_an_id_is_listed_once(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("a:1 | spec | It holds.\n", encoding="utf-8")
    with pytest.raises(ValueError, match="a:1 is listed twice"):
        load(tmp_path)
