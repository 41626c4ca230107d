"""The parts of docs/architecture.md that are made from the code, and the names it mentions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.source_tree import REPOSITORY, ROOT, is_package, modules
from tests.test_layers import RULES

PAGE = REPOSITORY / "docs" / "architecture.md"
_GENERATED = re.compile(r"(<!-- (\w+), made by `make map` -->\n).*?(<!-- end -->)", re.DOTALL)
# A hop of a flow: a file below src/exec_server, and a class, a function or a method in it.
_HOP = re.compile(r"^\W*([a-z_/0-9]+\.py) +(\w+(?:\.\w+)?)", re.MULTILINE)


def rewritten(page: str) -> str:
    """*page* with its generated parts made anew."""
    makers = {"tree": _tree, "permissions": _permissions}
    return _GENERATED.sub(lambda part: part[1] + makers[part[2]]() + "\n" + part[3], page)


def _tree() -> str:
    """One line for each package and each module of the top level: its name and its sentence."""
    lines = []
    for name, path in modules().items():
        if name in {"__init__", "__main__"}:
            continue
        depth = name.count(".")
        if is_package(path) or depth == 0:
            shown = "  " * depth + name.rpartition(".")[2] + ("/" if is_package(path) else ".py")
            lines.append((_place(name), f"{shown:<20} {_first_sentence(path)}".rstrip()))
    return "\n".join(["```text", *(line for _, line in sorted(lines)), "```"])


def _place(name: str) -> tuple[bool, str]:
    """Packages stand before single modules."""
    return not (ROOT / name.partition(".")[0]).is_dir(), name


def _first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].rstrip(".:")


def _permissions() -> str:
    rows = [f"| `{own}` | {_named(rules)} |" for own, rules in RULES.items()]
    return "\n".join(["| package | may import |", "|---|---|", *rows])


def _named(rules: str) -> str:
    return " ".join(f"`{rule}`" for rule in rules.split()) or "none of ours"


def unknown_hops(page: str) -> Iterator[str]:
    """Say which files, classes and functions that the flows of *page* name do not exist."""
    for file, name in _HOP.findall(page.partition("## Five flows")[2]):
        path = ROOT / file
        if not path.is_file():
            yield f"{file} does not exist"
        elif name not in _defined(path):
            yield f"{file} has no {name}"


def _defined(path: Path) -> set[str]:
    """The functions and classes of a module, and the methods as ``Class.method``."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                        found.add(f"{node.name}.{inner.name}")
    return found
