"""The modules of the package as text: their names, their files and what each imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = "exec_server"
REPOSITORY = Path(__file__).parent.parent.parent
ROOT = REPOSITORY / "src" / PACKAGE

_DYNAMIC = {"__import__", "import_module", "importlib.import_module"}


@cache
def modules() -> dict[str, Path]:
    """Our modules by dotted name below the package; a package is named without ``.__init__``."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(ROOT.rglob("*.py"))
    }


def is_package(path: Path) -> bool:
    """True if *path* is the file of a package and not of a module in one."""
    return path.name == "__init__.py"


def imports(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Yield the absolute names that *module* imports, wherever in it the import stands.

    A name that *module* takes from one of our packages is reported as the submodule it is, or else
    as the package. Dynamic imports count when their argument is a literal.
    """
    for node in ast.walk(ast.parse(source)):
        yield from _imported_by(node, module, is_package=is_package)


def running_imports(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """As `imports`, without those under ``if TYPE_CHECKING``, which no run ever makes."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and _is_type_checking(node.test):
            node.body = [ast.Pass()]
    for node in ast.walk(tree):
        yield from _imported_by(node, module, is_package=is_package)


def eager_imports(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Yield the absolute names that are imported while *module* itself is imported.

    Imports inside functions and under ``if TYPE_CHECKING`` do not count.
    """
    for node in _executed(ast.parse(source).body):
        yield from _imported_by(node, module, is_package=is_package)


def _executed(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module does: not those inside functions."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield statement
        is_for_types = isinstance(statement, ast.If) and _is_type_checking(statement.test)
        for field in ("body", "orelse", "finalbody"):
            if not (is_for_types and field == "body"):
                yield from _executed(getattr(statement, field, []))
        for handler in getattr(statement, "handlers", []):
            yield from _executed(handler.body)


def _is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def _imported_by(node: ast.AST, module: str, *, is_package: bool) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = _absolute(node, module, is_package=is_package)
        for alias in node.names:
            yield _submodule_or_package(base, alias.name)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in _DYNAMIC and node.args:
        argument = node.args[0]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield argument.value


def _absolute(node: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    base = parts[: len(parts) - node.level + is_package]
    return ".".join([*base, node.module] if node.module else base)


def _submodule_or_package(base: str, name: str) -> str:
    if base == PACKAGE:
        return f"{base}.{name}" if _is_module(name) else f"{base}.__init__"
    inner = base.removeprefix(f"{PACKAGE}.")
    if inner != base and _is_module(f"{inner}.{name}"):
        return f"{base}.{name}"
    return base


def _is_module(name: str) -> bool:
    """True if the dotted *name* below our package is a file or folder, not a name in one."""
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()
