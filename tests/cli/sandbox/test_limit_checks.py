"""What `exec-server doctor` says about limits."""

from __future__ import annotations

import json

import pytest

from exec_server.cli.sandbox.limit_checks import TRIED, limit_check, remedy
from exec_server.protocol.limit_words import LIMIT_NAMES
from exec_server.protocol.resources import GrantedLimit, Mechanism
from tests.requirements import requirement
from tests.support.cli import finished

pytestmark = [pytest.mark.one_loop, pytest.mark.usefixtures("home")]


def granted(**mechanisms: Mechanism) -> dict[str, GrantedLimit]:
    return {name: GrantedLimit(1, held, "tree", "exact") for name, held in mechanisms.items()}


@requirement("limits:doctor")
def test_all_is_well_where_control_groups_hold_what_they_can():
    check = limit_check(
        granted(memory="cgroup2", pids="cgroup2", cpuRate="cgroup1", wall="watched"),
        "",
        is_root=True,
    )
    assert check.works
    assert check.found == "memory, pids by cgroup2; cpuRate by cgroup1; wall watched"


@requirement("limits:doctor")
def test_what_is_missing_has_its_reason_and_its_line():
    held = granted(memory="watched", pids="watched", cpuRate="none", openFiles="rlimit")
    check = limit_check(held, "Permission denied", is_root=False)
    assert not check.works and not check.is_needed
    assert check.obstacle is not None
    assert "memory, pids watched; cpuRate not held" in check.obstacle
    assert check.obstacle.endswith(": Permission denied")
    assert check.remedy


@requirement("limits:doctor")
def test_the_line_fits_the_machine():
    assert "Delegate=yes" in remedy(is_root=True, has_systemd=True)
    assert "systemd-run --user --scope -p Delegate=yes" in remedy(is_root=False, has_systemd=True)
    assert "/sys/fs/cgroup" in remedy(is_root=True, has_systemd=False)
    assert "as root" in remedy(is_root=False, has_systemd=False)


@requirement("limits:doctor")
async def test_doctor_tries_all_limits(tmp_path):
    done = await finished("doctor", "-o", "json", cwd=tmp_path)
    (check,) = [each for each in json.loads(done.stdout)["checks"] if each["name"] == "limits"]
    assert TRIED.keys() == set(LIMIT_NAMES)
    assert all(name in check["found"] for name in LIMIT_NAMES)
    assert check["works"] or check["remedy"]
