"""One name for one thing: classes, modules, the size of files, the maps of packages."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requirements import requirement
from tests.support.source_tree import ROOT, is_package, modules

# Written by scripts/sync_twin.py and by `make proto`. The twin repeats the client's names.
GENERATED = {"sync.sync_api", "relay.relay_pb2"}
# A handler module is named for the protocol module whose methods it answers.
MIRRORS = ("protocol", "server.handlers")
# `protocol.bulk.Assembly` is what `transport.connection.Assembly`, a Protocol, describes.
IMPLEMENTED = {"Assembly"}
MAX_LINES = 400
# A longer file says why in its docstring, for example "This file is long because it runs alone."
REASON = re.compile(r"\blong\s+because\b")


def hand_written() -> dict[str, Path]:
    return {name: path for name, path in modules().items() if name not in GENERATED}


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def report(title: str, lines: list[str]) -> str:
    return "\n  ".join([f"{title} ({len(lines)}):", *sorted(lines)])


def is_doubled(name: str, places: list[str]) -> bool:
    """True if the class *name* means two things.

    Shapes of the wire are read as `process.Metadata` and `fs.Metadata`, so they may share a name.
    The client may present a shape to its users under the shape's own name.
    """
    others = [place for place in places if not place.startswith("protocol.")]
    if len(others) < len(places) and len(others) == 1:
        return name not in IMPLEMENTED and not others[0].startswith("client.")
    return len(others) > 1


@requirement("house/names:one-class-one-name")
def test_a_class_name_is_used_once():
    places = defaultdict(list)
    for name, path in hand_written().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(name)
    doubled = [
        f"{name}: {', '.join(found)}" for name, found in places.items() if is_doubled(name, found)
    ]
    assert not doubled, report("class names that are used more than once", doubled)


@pytest.mark.parametrize(
    ("name", "places", "doubled"),
    [
        ("Plan", ["sandbox.model"], False),
        ("Plan", ["sandbox.model", "client.plan"], True),
        ("Metadata", ["protocol.fs", "protocol.process"], False),
        ("Metadata", ["protocol.fs", "hub.entities"], True),
        ("WalkEntry", ["protocol.fs", "client.files.remote_files"], False),
        ("WalkEntry", ["protocol.fs", "client.files.remote_files", "hub.entities"], True),
    ],
)
def test_which_class_names_are_used_twice(name, places, doubled):
    assert is_doubled(name, places) == doubled


@requirement("house/names:one-module-one-name")
def test_a_module_name_is_used_once():
    places = defaultdict(list)
    for name, path in modules().items():
        if not is_package(path):
            folder, _, own = name.rpartition(".")
            places[own].append(folder)
    doubled = [
        f"{name}: {', '.join(folders)}"
        for name, folders in places.items()
        if len(folders) > 1 and not set(folders) <= set(MIRRORS)
    ]
    assert not doubled, report("module names that are used more than once", doubled)


@requirement("house/names:long-files-say-why")
def test_a_long_file_says_why_it_is_long():
    long = [
        f"{path.relative_to(ROOT)}: {count} lines"
        for path in hand_written().values()
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
        and not REASON.search(docstring(path))
    ]
    assert not long, report(
        f"files of more than {MAX_LINES} lines whose docstring has no 'long because'", long
    )


# A line of a package's docstring that describes one of its modules begins with the file's name.
MAP_LINE = re.compile(r"^\s*`{0,2}(\w+)(?:\.py)\b", re.MULTILINE)


def map_faults(package: Path) -> Iterator[str]:
    """Say which modules the docstring of *package* does not name, or names without reason."""
    text = docstring(package)
    held = {path.stem for path in package.parent.glob("*.py")} - {"__init__"}
    named = MAP_LINE.findall(text)
    if missing := sorted(held - set(named)):
        yield f"no line for {', '.join(f'{name}.py' for name in missing)}"
    if gone := sorted(set(named) - held):
        yield f"a line for {', '.join(f'{name}.py' for name in gone)}, which it does not hold"
    if not text:
        yield "no docstring"


@requirement("house/names:packages-have-maps")
def test_the_docstring_of_a_package_has_a_line_for_each_module():
    # The package itself is described to its users; docs/architecture.md has the map of it.
    packages = [path for name, path in modules().items() if is_package(path) and name != "__init__"]
    faults = [
        f"{path.relative_to(ROOT)}: {'; '.join(found)}"
        for path in packages
        if (found := list(map_faults(path)))
    ]
    assert not faults, report("packages whose docstring is no map of them", faults)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ('"""A package.\n\n    one.py   does this\n    two.py   does that\n"""', []),
        ('"""A package.\n\n``one.py``: this\n``two.py``: that\n"""', []),
        ('"""A package.\n\n    one.py   does this\n"""', ["no line for two.py"]),
        (
            '"""A package.\n\n    one.py  this\n    two.py  that\n    six.py  gone\n"""',
            ["a line for six.py, which it does not hold"],
        ),
        ("", ["no line for one.py, two.py", "no docstring"]),
    ],
)
def test_the_map_of_a_package_is_compared_with_its_files(tmp_path, text, faults):
    for name in ("one.py", "two.py"):
        (tmp_path / name).touch()
    package = tmp_path / "__init__.py"
    package.write_text(text)
    assert list(map_faults(package)) == faults
