"""Two servers that are told the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.comparing import Both
from tests.support.servers import (
    ServerProcess,
    codex_home,
    reference_binary,
    start_reference,
    start_server,
)


@pytest.fixture(scope="session")
def ours() -> Iterator[ServerProcess]:
    """Our server, as a process of its own like the reference."""
    with start_server() as running:
        yield running


@pytest.fixture(scope="session")
def both(reference: ServerProcess, ours: ServerProcess) -> Both:
    return Both(reference.url, ours.url)


@pytest.fixture(scope="session")
def both_confined(ours: ServerProcess) -> Iterator[Both]:
    """Both, the reference with a sandbox that works."""
    binary = reference_binary()
    if binary is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    with (
        codex_home() as home,
        start_reference(binary, env={"CODEX_HOME": str(home)}) as reference,
    ):
        yield Both(reference.url, ours.url)


@pytest.fixture(scope="session")
def both_concurrent() -> Iterator[Both]:
    """Both with `--concurrent-requests 2`."""
    binary = reference_binary()
    if binary is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    options = ("--concurrent-requests", "2")
    with start_reference(binary, *options) as reference, start_server(*options) as ours:
        yield Both(reference.url, ours.url)
