"""The same suite over other transports, and with the reference at the other end.

What runs here are the tests of the neighbouring modules that ask for nothing but a `client`.
"""

from __future__ import annotations

import inspect
import shlex
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import ModuleType
from typing import Any

import pytest

import exec_server
from exec_server.client.client import ExecServerClient
from exec_server.client_urls import connect
from tests.client import test_client
from tests.client.process import test_remote_process, test_run_to_end
from tests.requirements import requirement
from tests.support.servers import OURS, ServerProcess

pytestmark = [pytest.mark.usefixtures("no_leaks"), pytest.mark.one_loop]

# What the reference does not have, and the tests that are about it or need it.
EXTENSIONS = {
    "concurrentRequests": {
        "test_a_real_server_grants_a_session",
        "test_a_long_poll_delays_nothing_else",
    },
    "process/closeStdin": {
        "test_every_method_can_be_called",
        "test_what_is_written_arrives_in_order",
        "test_a_process_without_input_takes_none",
        "test_the_end_of_input_is_typed_on_a_terminal",
        "test_input_is_fed_and_ended",
        "test_a_command_need_not_read_its_input",
    },
    "process/resize": {
        "test_a_terminal_has_a_size_that_can_change",
        "test_what_has_no_terminal_has_no_size",
    },
    "process/list": {"test_a_slow_command_is_killed_and_its_output_kept"},
    "processTerminateTree": {"test_what_an_abandoned_process_has_left_behind_ends_with_it"},
    "native paths": {"test_a_process_is_started_exactly_as_said"},
}
BEYOND_THE_REFERENCE = set().union(*EXTENSIONS.values())


def is_beyond_the_reference(request: pytest.FixtureRequest) -> bool:
    signum = request.node.callspec.params.get("signum")
    return (
        request.node.originalname in BEYOND_THE_REFERENCE
        # It knows the interrupt alone.
        or signum in (signal.SIGUSR1, "USR1")
    )


# Of the module, so that a server is there before a test looks for what it leaves behind.
@pytest.fixture(scope="module", params=["memory", "stdio", "reference", "reference over stdio"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str | None:
    """Where the server is; None for one in this process."""
    if request.param == "memory":
        return None
    if request.param == "stdio":
        return f"stdio:{shlex.join([*OURS, '--listen', 'stdio'])}"
    reference: ServerProcess = request.getfixturevalue("reference")
    if request.param == "reference":
        return reference.url
    [binary, *_] = reference.process.args  # type: ignore[misc]
    home = f"CODEX_HOME={tmp_path_factory.mktemp('home')}"
    return f"stdio:{shlex.join(['env', home, str(binary), 'exec-server', '--listen', 'stdio'])}"


def connecting(url: str | None) -> AbstractAsyncContextManager[ExecServerClient]:
    return exec_server.local() if url is None else connect(url)


@pytest.fixture
async def client(
    url: str | None, request: pytest.FixtureRequest
) -> AsyncIterator[ExecServerClient]:
    is_reference = "reference" in request.node.callspec.params["url"]
    if is_reference and is_beyond_the_reference(request):
        pytest.skip("the reference does not offer it")
    async with connecting(url) as connected:
        yield connected


def of_a_client(module: ModuleType) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for name, function in vars(module).items():
        if name.startswith("test_") and inspect.isfunction(function):
            wanted = set(inspect.signature(function).parameters)
            if "client" in wanted and "server" not in wanted:
                found[name] = function
    return found


SUITE = {
    name: function
    for module in (test_client, test_remote_process, test_run_to_end)
    for name, function in of_a_client(module).items()
}
globals().update(SUITE)


@requirement("client/transports")
def test_what_is_left_out_exists():
    assert BEYOND_THE_REFERENCE < set(SUITE)
    assert len(SUITE) - len(BEYOND_THE_REFERENCE) > 20
