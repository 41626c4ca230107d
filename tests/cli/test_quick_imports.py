"""Modules that are loaded without a search are those that Python would have loaded."""

from __future__ import annotations

import os
import py_compile
import sys
from importlib import import_module
from importlib.util import cache_from_source, module_from_spec
from pathlib import Path

import pytest

from exec_server.cli.quick_imports import Finder
from tests.support.fresh_python import words_of

_NAME = "exec_server.found"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A module beside its bytecode."""
    path = tmp_path / "found.py"
    path.write_text("NUMBER = 1\n\ndef fail(): raise ValueError\n")
    py_compile.compile(str(path))
    return path


def found(source: Path):
    return Finder.find_spec(_NAME, [str(source.parent)])


def test_the_program_finds_its_modules_in_this_way_and_they_look_as_usual():
    program = (
        "from exec_server.cli import quick_imports\n"
        "{}\n"
        "import exec_server.limits as m, exec_server.protocol as p\n"
        "print(m.__file__, m.__cached__, m.__package__, m.__spec__.origin, p.__path__)\n"
        "print(m.Limits.__module__, m.__loader__.get_source(m.__name__)[:20].split())\n"
        "print(type(m.__loader__).__module__)\n"
    )
    import_module("exec_server.limits")
    quick = words_of(program.format("quick_imports.use()"))
    usual = words_of(program.format("pass"))
    assert quick[:-1] == usual[:-1]
    assert quick[-1] == "exec_server.cli.quick_imports"
    assert usual[-1] != quick[-1]


def test_a_module_with_bytecode_of_now_is_found(source: Path):
    spec = found(source)
    assert spec is not None
    assert (spec.origin, spec.cached) == (str(source), cache_from_source(str(source)))
    module = module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    assert module.NUMBER == 1
    # It can be loaded again, as `importlib.reload` does it.
    source.write_text("NUMBER = 2\n")
    spec.loader.exec_module(module)
    assert module.NUMBER == 2


def test_a_source_that_has_changed_is_left_to_python(source: Path):
    source.write_text("NUMBER = 2\n")
    assert found(source) is None


def test_a_source_of_another_time_is_left_to_python(source: Path):
    os.utime(source, (0, 0))
    assert found(source) is None


def test_bytecode_that_is_checked_in_another_way_is_left_to_python(source: Path):
    for mode in (
        py_compile.PycInvalidationMode.CHECKED_HASH,
        py_compile.PycInvalidationMode.UNCHECKED_HASH,
    ):
        py_compile.compile(str(source), invalidation_mode=mode)
        assert found(source) is None


@pytest.mark.parametrize("length", [0, 3, 15, 16, 17, 40])
def test_bytecode_that_ends_early_is_left_to_python(source: Path, length: int):
    os.truncate(cache_from_source(str(source)), length)
    assert found(source) is None


def test_bytecode_that_holds_something_else_is_left_to_python(source: Path):
    path = Path(cache_from_source(str(source)))
    path.write_bytes(path.read_bytes()[:16] + b"N")
    assert found(source) is None


def test_packages_and_what_is_not_there_are_left_to_python(source: Path):
    source.with_name("package").mkdir()
    folder = [str(source.parent)]
    for name in ("exec_server.package", "exec_server.missing", "other.found", "exec_server"):
        assert Finder.find_spec(name, folder) is None
    assert Finder.find_spec(_NAME, None) is None
    assert Finder.find_spec(_NAME, [str(source.parent / "archive.zip" / "exec_server")]) is None


def test_a_traceback_names_the_file_where_it_is_now(source: Path):
    moved = source.parent / "moved"
    moved.mkdir()
    for path in (source, Path(cache_from_source(str(source)))):
        target = moved / path.relative_to(source.parent)
        target.parent.mkdir(exist_ok=True)
        path.rename(target)
    spec = found(moved / source.name)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.fail.__code__.co_filename == str(moved / source.name)


def test_it_is_not_used_where_bytecode_is_kept_in_another_way():
    program = (
        "import sys\nfrom exec_server.cli import quick_imports\n"
        "quick_imports.use()\nprint(len(sys.meta_path))\n"
    )
    usual = int(words_of(program)[0])
    assert int(words_of(f"import sys\nsys.pycache_prefix = '/nowhere'\n{program}")[0]) == usual - 1
    assert sys.meta_path[0] is not Finder
