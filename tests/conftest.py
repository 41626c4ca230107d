"""What every test gets: both event loops, servers to talk to, hypothesis profiles, our markers."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import uvloop
from hypothesis import settings

from exec_server.server.serving import RunningServer, serve
from tests.support import leaks, traffic
from tests.support.servers import ServerProcess, reference_binary, start_reference
from tests.support.wire import Wire

# A slow machine is no failure; in CI the same commit tries the same examples.
settings.register_profile(
    "default", deadline=None, max_examples=50, derandomize=bool(os.environ.get("CI"))
)
settings.register_profile("long", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    traffic.pytest_addoption(parser)


def accept_signals() -> None:
    """A background job of a shell ignores these, and so would all programs that tests start."""
    for signum in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def use_an_empty_home(config: pytest.Config) -> None:
    """Login shells of tests run no files of the person who tests.

    Such files may wait for one another: `pyenv init` leaves a lock behind if its shell is killed,
    and every later login shell waits a minute for it.
    """
    before, home = os.environ.get("HOME"), tempfile.mkdtemp(prefix="home-")
    os.environ["HOME"] = home

    def restore() -> None:
        if before is not None:
            os.environ["HOME"] = before
        shutil.rmtree(home, ignore_errors=True)

    config.add_cleanup(restore)


def pytest_configure(config: pytest.Config) -> None:
    accept_signals()
    use_an_empty_home(config)
    traffic.install(config)
    config.addinivalue_line(
        "markers", "requirement(*ids): entries of tests/requirements/ that the test proves"
    )
    config.addinivalue_line("markers", "one_loop: the server runs apart; uvloop alone will do")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Asynchronous tests run on both loops, but for those that only watch another process."""
    loops = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
    if item.get_closest_marker("one_loop"):
        del loops["asyncio"]
    return loops


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Commands that run in this process set the level of everybody's log."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach, as `tmp_path` is not.

    The folders above `tmp_path` are shared with the tests of other processes, and these may watch
    them: a new mode is a change.
    """
    with tempfile.TemporaryDirectory(prefix="open-") as made:
        folder = Path(made).resolve()
        folder.chmod(0o755)
        yield folder


@pytest.fixture
async def no_leaks() -> AsyncIterator[None]:
    """Whoever asks for it first leaves no task, descriptor or child behind at the end."""
    await leaks.prepare_loop()
    before = leaks.Held.now()
    yield
    await leaks.nothing_since(before)


@pytest.fixture
async def server(no_leaks: None) -> AsyncIterator[RunningServer]:
    """A server in this process, on a free port of the loopback."""
    async with serve() as running:
        yield running


@pytest.fixture
async def wire(server: RunningServer) -> AsyncIterator[Wire]:
    """A raw connection to `server`, after the handshake."""
    async with Wire(server.url) as connection:
        await connection.initialize()
        yield connection


@pytest.fixture(scope="session")
def reference() -> Iterator[ServerProcess]:
    """The reference server, where it can be had."""
    binary = reference_binary()
    if binary is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    with start_reference(binary) as running:
        yield running
