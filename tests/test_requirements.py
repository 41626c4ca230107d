"""The manifest and the tests name each other, and the manifest cites what there is.

Every promise to a user or a peer has an entry, and every entry a test. The reverse is not demanded:
a test of a helper, or of how something works inside, carries no id.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.requirements import REQUIREMENTS, load, parse, requirement
from tests.support.source_tree import REPOSITORY

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


@cache
def sections(file: str) -> frozenset[str]:
    """The numbers (``9.2``) and the anchors (``#many-nodes``) of the headings in *file*."""
    found = set()
    text = re.sub(r"^```.*?^```", "", (REPOSITORY / file).read_text("utf-8"), flags=re.M | re.S)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        if number := re.match(r"\d+(\.\d+)*(?=[. ])", heading):
            found.add(number.group())
        found.add("#" + re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-"))
    return frozenset(found)


def source_faults(source: str) -> Iterator[str]:
    """Say which documents, sections and headings that *source* cites do not exist."""
    for cited in source.split("; "):
        match = re.fullmatch(r"([\w./-]+\.md)(#[\w-]+| \d+(?:\.\d+)*(?:, \d+(?:\.\d+)*)*)?", cited)
        if match is None:
            yield f"{cited!r} is not of the form FILE.md, FILE.md#heading or FILE.md 1.2, 3"
        elif not (REPOSITORY / match[1]).is_file():
            yield f"{match[1]} does not exist"
        else:
            wanted = (match[2] or "").strip().split(", ")
            missing = [name for name in wanted if name and name not in sections(match[1])]
            yield from (f"{match[1]} has no section {name}" for name in missing)


@requirement("house/manifest:sources-exist")
def test_every_source_exists():
    wrong = [
        f"{id_}: {fault}"
        for id_, entry in REQUIREMENTS.items()
        for fault in source_faults(entry.source)
    ]
    assert not wrong, listing("sources that do not exist", wrong)


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("docs/spec/core.md", []),
        ("docs/spec/core.md 8.4", []),
        ("docs/spec/core.md 9, 14; docs/spec/filesystem.md 3.1", []),
        ("docs/spec/core.md#9-events-and-numbering", []),
        ("docs/spec/core.md 99", ["docs/spec/core.md has no section 99"]),
        ("docs/spec/core.md#none", ["docs/spec/core.md has no section #none"]),
        ("docs/none.md", ["docs/none.md does not exist"]),
        ("core 9", ["'core 9' is not of the form FILE.md, FILE.md#heading or FILE.md 1.2, 3"]),
    ],
)
def test_a_source_is_looked_up(source, faults):
    assert list(source_faults(source)) == faults


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
