"""Every attempt to get out once more, with a supervisor: the walls stay where they are."""

from __future__ import annotations

import contextlib
import platform

import pytest

from exec_server.sandbox.supervisor.orders import obstacle
from tests.children.escapes import __main__ as attempts  # noqa: F401
from tests.children.escapes.attempt import ATTEMPTS
from tests.requirements import requirement
from tests.sandbox.escape.battery import Battery
from tests.sandbox.escape.expected import read
from tests.sandbox.escape.users import user
from tests.sandbox.test_processes import needs_bubblewrap, needs_landlock

pytestmark = [
    pytest.mark.skipif(obstacle() is not None, reason=f"no supervisor here: {obstacle()}"),
    pytest.mark.skipif(
        platform.system() != "Linux" or platform.machine() != "x86_64",
        reason="the attempts know the system calls of Linux on x86-64",
    ),
]

# Calls of other architectures fail, and do not end the process.
FOREIGN = {"call-by-interrupt", "call-of-x32", "socket-of-x32", "socket-by-interrupt"}
CLOSED = {"write-to-a-fifo"}


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        pytest.param("root", "bubblewrap", marks=needs_bubblewrap),
        pytest.param("nobody", "landlock", marks=needs_landlock),
    ],
)
@requirement("denials/supervisor:walls")
def test_a_supervised_sandbox_refuses_the_same(name, backend):
    who = user(name)
    if who is None:
        pytest.skip(f"no server can run as {name} here")
    with contextlib.ExitStack() as on_exit:
        found = Battery(on_exit).results(who, backend, "workspace", is_supervised=True)
    assert found.outcomes.keys() == ATTEMPTS.keys(), found.stderr
    expected = read()
    differing = {
        attempt: outcome
        for attempt, outcome in found.outcomes.items()
        if outcome not in expected[attempt].outcomes(backend, "workspace", name)
    }
    assert differing.keys() == FOREIGN | (CLOSED if backend == "bubblewrap" else set())
    assert set(differing.values()) <= {"ENOSYS", "EPERM", "EACCES"}
    assert found.changes == []
