"""Deny rules hold for the name under which the resolver found a host, not only for the one sent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exec_server.network.hosts import Host
from exec_server.network.rules import Rules, Ruling
from exec_server.protocol import network
from tests.requirements import requirement
from tests.support.proxied import wanted

ADDRESS = "93.184.216.34"
ROOT = Path(__file__).parent.parent.parent
CHILD = ROOT / "tests/children/resolves_in_a_namespace.py"
ALLOWED, REFUSED = 0, 2

ZONE = {
    "db.corp.test": ADDRESS,
    "alias.corp.test": "node7.farm.test",
    "node7.farm.test": ADDRESS,
    "www.shop.test": "edge.cdn.test",
    "edge.cdn.test": ADDRESS,
    "plain.test": ADDRESS,
    "db.lab.corp.test": ADDRESS,
}
SENT = [
    *("db", "DB", "db.lab", "alias", "db.corp", "db.corp.test", "alias.corp.test"),
    *("node7.farm.test", "www.shop.test", "www.shop", "edge.cdn.test", "plain.test", "plain"),
    *("db.", "db.lab.", "d\u00adb", "\uff44\uff42", "missing", "missing.corp.test"),
]
DENIED = [
    ["**.corp.test"],
    ["db.corp.test"],
    ["alias.corp.test"],
    ["*.farm.test"],
    ["edge.cdn.test"],
    ["*.test.corp.test", "*.lab.corp.test"],
]


def outcomes(search: str, hosts: list[str], denied: list[str]) -> list[Any]:
    if shutil.which("unshare") is None or shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("this needs root, unshare and ip")
    domains = {"*": "allow", **dict.fromkeys(denied, "deny")}
    asked = {"search": search, "zone": ZONE, "rules": {"domains": domains}, "hosts": hosts}
    ran = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, CHILD],
        input=json.dumps(asked).encode(),
        capture_output=True,
        timeout=50,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if b"Operation not permitted" in ran.stderr and b"unshare" in ran.stderr:
        pytest.skip("no namespaces here")
    assert ran.returncode == 0, ran.stderr.decode()
    found: list[Any] = json.loads(ran.stdout)
    return found


@requirement("security/network:search-list")
@pytest.mark.one_loop
@pytest.mark.parametrize("search", ["corp.test test", "corp.test"])
@pytest.mark.parametrize("denied", DENIED, ids=" ".join)
def test_no_name_that_the_resolver_has_used_is_a_denied_one(search, denied):
    rules = Rules(
        msgspec.convert(
            wanted(domains={"*": "allow", **dict.fromkeys(denied, "deny")}), network.NetworkProxy
        ).proxy
    )
    reached = 0
    for sent, (code, used) in zip(SENT, outcomes(search, SENT, denied), strict=True):
        # The last name of a chain of aliases and the first one count; those between do not.
        names = {*used} & {f"{used_by(sent)}{suffix}" for suffix in suffixes(search)} | final(used)
        bad = [name for name in names if rules.judge(Host(name)) is Ruling.DENIED]
        if code == ALLOWED:
            reached += 1
            assert not bad, (sent, used)
        elif not bad:
            # No rule is against it, so it is not refused, unless it does not exist.
            assert not used or rules.judge(Host(used_by(sent))) is Ruling.DENIED, (sent, used)
    assert reached


def used_by(sent: str) -> str:
    return sent.replace("\u00ad", "").replace("\uff44\uff42", "db").lower().removesuffix(".")


def suffixes(search: str) -> list[str]:
    return ["", *(f".{each}" for each in search.split())]


def final(used: list[str]) -> set[str]:
    """The names that have an address."""
    return {name for name in used if ZONE[name] == ADDRESS}
