"""Every attempt to get out, on both backends, under both policies, as root and as `nobody`.

The attempts themselves are in tests/children/escapes, and what they come to in expected.txt.
"""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

import pytest

from exec_server.sandbox.backends import HERE
from tests.children.escapes import __main__ as attempts  # noqa: F401
from tests.children.escapes.attempt import ATTEMPTS, PLAIN, group, sentence
from tests.requirements import requirement
from tests.sandbox.escape import documented
from tests.sandbox.escape.battery import Battery
from tests.sandbox.escape.expected import BACKENDS, DONE, POLICIES, USERS, read, why_done
from tests.sandbox.escape.users import user

pytestmark = pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() != "x86_64",
    reason="the attempts know the system calls of Linux on x86-64",
)

EXPECTED = read()
WORKING = {
    "bubblewrap": HERE.bubblewrap_report.works,
    "landlock": HERE.landlock_report.works,
}
SANDBOXES = [
    pytest.param(name, backend, policy, id=f"{name}-{backend}-{policy}")
    for name in USERS
    for backend in BACKENDS
    for policy in POLICIES
]
HEARD = "the FIFO heard b'escaped'"
# Groups of attempts that have nothing to do with a network.
OFFLINE = {"files", "links", "renames", "metadata", "proc", "devices", "kernel"}
# Results that a network changes, and some that it does not.
ONLINE = {
    "bubblewrap": {
        "socket-inet": DONE,
        "socket-tcp": DONE,
        "unix-connect": DONE,
        # The namespace of the network is the host's; docs/sandbox.md says so.
        "unix-connect-abstract": DONE,
        "socket-vsock": "EPERM",
        "call-io-uring-setup": "EPERM",
        "trace-self": DONE,
        "trace-victim": "ESRCH",
        "trace-server": "ESRCH",
        "socket-packet": "EPERM",
        "socket-of-x32": "SIGSYS",
    },
    "landlock": {
        "socket-inet": DONE,
        "socket-tcp": DONE,
        "unix-connect": DONE,
        "unix-connect-abstract": "EPERM",
        "unix-datagram-abstract": "EPERM",
        "socket-vsock": "EPERM",
        "call-io-uring-setup": "EPERM",
        "trace-self": DONE,
        "trace-victim": "EPERM",
        "trace-server": "EPERM",
        "read-victims-memory": "EPERM",
        "socket-packet": "EPERM",
        "socket-of-x32": "SIGSYS",
    },
}


@pytest.fixture(scope="module")
def battery():
    with contextlib.ExitStack() as on_exit:
        yield Battery(on_exit)


def user_named(name: str):
    found = user(name)
    if found is None:
        pytest.skip(f"a server cannot be run as {name} from here")
    return found


def results(battery: Battery, name: str, backend: str, policy: str):
    if not WORKING[backend]:
        pytest.skip(f"{backend} does not work here")
    found = battery.results(user_named(name), backend, policy)
    assert found.backend == backend
    assert found.outcomes.keys() == ATTEMPTS.keys(), found.stderr
    return found


# These tests come first: the first one runs all attempts, one sandbox each.


@pytest.mark.parametrize(("name", "backend", "policy"), SANDBOXES)
@requirement("sandbox/escape:unchanged")
def test_nothing_outside_has_changed_and_no_listener_heard_anything(battery, name, backend, policy):
    found = results(battery, name, backend, policy)
    # Only a FIFO can be written on a read-only mount.
    assert found.changes == ([HEARD] if backend == "bubblewrap" else [])
    # No policy about paths can prevent this.
    assert found.hard_target == ("contentescaped" if policy == "workspace" else "content")


@pytest.mark.parametrize(("name", "backend", "policy"), SANDBOXES)
@requirement("sandbox/escape:unchanged")
def test_no_placeholder_is_left(battery, name, backend, policy):
    found = results(battery, name, backend, policy)
    is_given = backend == "landlock" and policy == "workspace"
    assert any(entry.startswith((".git", ".agents")) for entry in found.workspace) == is_given


@pytest.mark.parametrize("name", ATTEMPTS)
@requirement("sandbox/escape:refused")
def test_an_attempt_is_refused(battery, name):
    tried = 0
    for who in filter(user, USERS):
        for backend in filter(WORKING.get, BACKENDS):
            for policy in POLICIES:
                outcome = results(battery, who, backend, policy).outcomes[name]
                expected = EXPECTED[name].outcomes(backend, policy, who)
                assert outcome in expected, (who, backend, policy)
                tried += 1
    if not tried:
        pytest.skip("no backend works here")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", USERS)
@requirement("sandbox/escape:network")
def test_with_a_network_only_the_network_is_different(battery, name, backend):
    found = results(battery, name, backend, "workspace-network")
    differing = {
        attempt: outcome
        for attempt, outcome in found.outcomes.items()
        if group(attempt) in OFFLINE
        and outcome not in EXPECTED[attempt].outcomes(backend, "workspace", name)
    }
    # Binding a socket is refused by the file system instead.
    assert differing.keys() <= {"socket-outside"}
    assert {attempt: found.outcomes[attempt] for attempt in ONLINE[backend]} == ONLINE[backend]


@requirement("sandbox/escape:real")
def test_without_a_sandbox_the_same_attempts_work(battery):
    # If they failed here, too, their failure in the sandbox would prove nothing.
    found = battery.results(user_named("nobody"), None, "none")
    assert found.backend == "none"
    tried = {name for name in PLAIN if not (_is_traced(name) and _tracing_is_restricted())}
    assert {name: found.outcomes[name] for name in tried if found.outcomes[name] != DONE} == {}
    assert len(tried) >= 120
    assert found.changes


def _is_traced(name: str) -> bool:
    return group(name) in ("proc", "processes")


def _tracing_is_restricted() -> bool:
    setting = Path("/proc/sys/kernel/yama/ptrace_scope")
    return setting.exists() and setting.read_text().strip() != "0"


@requirement("sandbox/escape:listed")
def test_every_attempt_is_described_and_expected_to_fail_or_explained():
    assert EXPECTED.keys() == ATTEMPTS.keys()
    assert len(ATTEMPTS) >= 120
    assert all(map(sentence, ATTEMPTS))
    for name, row in EXPECTED.items():
        cells = (row.outcomes(r, p, u) for r in BACKENDS for p in POLICIES for u in USERS)
        assert DONE not in set().union(*cells) or why_done(name), name


@requirement("sandbox/escape:listed")
def test_the_page_tells_what_was_tried():
    assert documented.written() == documented.table(), (
        f"run python -m tests.sandbox.escape.documented in {os.getcwd()}"
    )
