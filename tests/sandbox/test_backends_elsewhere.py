"""Systems that are not Linux."""

from __future__ import annotations

import pytest

from exec_server.sandbox import backends
from exec_server.sandbox.backends import Backends, BackendUnavailable
from exec_server.sandbox.model import Plan, Policy
from tests.requirements import requirement


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch):
    monkeypatch.setattr(backends, "_IS_LINUX", False)


@requirement("sandbox/backends:linux-only")
@pytest.mark.parametrize(
    "policy",
    [
        Policy(is_managed=True, network="enabled"),
        Policy(is_managed=False, network="restricted"),
        Policy(is_managed=False, network="enabled", is_proxied=True),
    ],
)
def test_a_sandbox_is_refused_with_the_reason(policy):
    with pytest.raises(BackendUnavailable, match="Linux only"):
        Backends().choose(Plan(policy, shows_host=True))


@requirement("sandbox/backends:linux-only")
def test_what_needs_no_sandbox_runs():
    policy = Policy(is_managed=False, network="enabled")
    assert Backends().choose(Plan(policy, shows_host=True)) == "none"


@requirement("sandbox/backends:linux-only")
def test_no_backend_is_said_to_work():
    assert [each.works for each in Backends().reports] == [False] * 3
    assert {each.obstacle for each in Backends().reports} == {
        "sandboxes are enforced on Linux only"
    }
