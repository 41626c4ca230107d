"""Scenarios run when they are asked for: `make interop`, or pytest with a path in this folder."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.interop import table
from tests.interop.client import Codex
from tests.interop.columns import PINNED, Column, Scenario
from tests.interop.executors import Executor, Registry, executor, running_registry
from tests.interop.versions import older_binary
from tests.interop.waiting import Fifo
from tests.support.servers import codex_home, reference_binary

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--compatibility", choices=["write", "check"], help="the table of results")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "scenario(it): a row of docs/compatibility.md")
    config.pluginmanager.register(table.Results(config), "compatibility")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    named = [Path(arg.partition("::")[0]).resolve() for arg in config.args]
    asked = any(path == HERE or HERE in path.parents for path in named)
    return None if asked else True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("scenario")
    if mark is None:
        return
    (it,) = mark.args
    assert isinstance(it, Scenario)
    columns = []
    for column in it.columns():
        reason = it.reason(column)
        marks = [] if reason is None else [pytest.mark.xfail(reason=reason)]
        columns.append(pytest.param(column, id=column.title.replace(", ", "-"), marks=marks))
    metafunc.parametrize("column", columns)


@pytest.fixture(scope="session")
def reference_path() -> Path:
    found = reference_binary()
    if found is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    return found


@pytest.fixture
def binary(column: Column, reference_path: Path) -> Path:
    """The client of this column."""
    if column.client == PINNED:
        return reference_path
    found = older_binary(column.client)
    if found is None:
        pytest.skip(f"Codex {column.client} could not be installed")
    return found


@pytest.fixture
def server_home(reference_path: Path) -> Iterator[Path]:
    """The home of the executor's user, which has a `.codex`."""
    with codex_home() as made:
        (made / ".codex").mkdir()
        yield made


@pytest.fixture
def client_home(reference_path: Path) -> Iterator[Path]:
    """CODEX_HOME of the client."""
    with codex_home() as made:
        yield made


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Registry]]:
    """Gives the registry that all tests share, started when the first one asks."""
    with contextlib.ExitStack() as running:

        @functools.cache
        def started() -> Registry:
            folder = tmp_path_factory.mktemp("registry")
            return running.enter_context(running_registry(folder))

        yield started


@pytest.fixture
async def there(
    column: Column,
    reference_path: Path,
    server_home: Path,
    registry: Callable[[], Registry],
) -> AsyncIterator[Executor]:
    """The server of this column."""
    async with executor(column, reference_path, server_home, registry) as made:
        yield made


@pytest.fixture
def codex(
    binary: Path, column: Column, there: Executor, client_home: Path, tmp_path: Path
) -> Codex:
    work = tmp_path / "work"
    work.mkdir()
    return Codex(binary, column, there, client_home, work)


@pytest.fixture
def fifo(codex: Codex) -> Iterator[Callable[[str], Fifo]]:
    """Makes named pipes in the working directory."""
    with contextlib.ExitStack() as open_ones:

        def make(name: str) -> Fifo:
            return open_ones.enter_context(contextlib.closing(Fifo(codex.work / name)))

        yield make
