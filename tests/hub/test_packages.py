"""Packages of the registry import one another in one direction."""

from __future__ import annotations

from graphlib import TopologicalSorter

import pytest

from tests.requirements import requirement
from tests.support.source_tree import PACKAGE, imports, modules

HUB = f"{PACKAGE}.hub"
# The packages that each package of the registry may import. Modules of the top level bring all of
# them together.
RULES = {
    "bus": "",
    "store": "",
    "relay": "",
    "observe": "store",
    "access": "observe store",
    "cluster": "bus relay store",
    "http": "access bus cluster observe relay store",
}


def hub_modules() -> dict[str, set[str]]:
    """The modules of the registry, each with those of them that it imports, now or later."""
    found: dict[str, set[str]] = {}
    for name, path in modules().items():
        module = f"{PACKAGE}.{name}"
        if module == HUB or module.startswith(f"{HUB}."):
            is_package = path.name == "__init__.py"
            imported = imports(path.read_text(encoding="utf-8"), module, is_package=is_package)
            found[module] = {each for each in imported if each.startswith(HUB)}
    return found


def package(module: str) -> str:
    """The package of the registry that *module* is in; empty for the top level."""
    inner = module.removeprefix(HUB).removeprefix(".")
    return inner.partition(".")[0] if inner.partition(".")[0] in RULES else ""


@requirement("house/layers:hub-packages-point-one-way")
@pytest.mark.parametrize("name", RULES)
def test_a_package_imports_only_those_below_it(name):
    allowed = {name, *RULES[name].split()}
    wrong = [
        f"{module} imports {imported}"
        for module, names in hub_modules().items()
        for imported in names
        if package(module) == name and package(imported) not in allowed
    ]
    assert not wrong, "\n".join(wrong)


@requirement("house/layers:hub-packages-point-one-way")
def test_no_module_imports_itself_through_others():
    list(TopologicalSorter(hub_modules()).static_order())
