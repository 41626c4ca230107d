"""The records of enrolments, and entries of known executors that are removed."""

from __future__ import annotations

import pytest

from exec_server.errors import ConfigurationError
from exec_server.remote.enrolments import Enrolled, Enrolments
from exec_server.remote.known_executors import KnownExecutors
from tests.requirements import requirement

REGISTRY = "https://registry.example.net"


@pytest.fixture
def enrolments(tmp_path):
    return Enrolments({"XDG_STATE_HOME": str(tmp_path)})


def enrolled(name="big.1", **changes):
    values = {"identity": "/identity", "token_file": None, "is_own": False, **changes}
    return Enrolled(registry=REGISTRY, environment=name, **values)


def test_an_enrolment_and_its_token_are_kept_in_private(enrolments):
    assert enrolments.find("big.1") is None
    enrolments.save(enrolled(), "secret")
    assert enrolments.find("big.1") == enrolled()
    token_file = enrolments.own_token_file("big.1")
    assert token_file.read_text() == "secret\n"
    assert {path.stat().st_mode & 0o777 for path in token_file.parent.iterdir()} == {0o600}
    assert token_file.parent.stat().st_mode & 0o777 == 0o700
    enrolments.forget("big.1")
    enrolments.forget("big.1")
    assert list(token_file.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", "x" * 129, "a\n"])
def test_what_is_no_name_is_no_file(enrolments, name):
    for ask in (enrolments.find, enrolments.forget, enrolments.own_token_file):
        with pytest.raises(ConfigurationError, match="invalid environment name"):
            ask(name)


def test_files_that_cannot_be_used_are_told_of(enrolments, tmp_path):
    enrolments.save(enrolled())
    record = tmp_path / "exec-server" / "enrolled" / "big.1.json"
    record.write_text("{}")
    with pytest.raises(ConfigurationError, match="not a record"):
        enrolments.find("big.1")
    record.unlink()
    record.mkdir()
    for fail in (lambda: enrolments.find("big.1"), lambda: enrolments.save(enrolled())):
        with pytest.raises(ConfigurationError, match="cannot"):
            fail()
    assert [path.name for path in record.parent.iterdir()] == ["big.1.json"]


@requirement("hub/pair:forget")
def test_a_pin_is_forgotten_and_no_other(tmp_path):
    known = KnownExecutors(tmp_path / "known")
    assert not known.forget(REGISTRY, "big-1")
    for name in ("big-0", "big-1", "big-2"):
        known.add(REGISTRY, name, f"SHA256:{name}")
    with (tmp_path / "known").open("a") as file:
        file.write(f"  {REGISTRY} big-1 SHA256:other")
    # Both spellings name the same registry.
    assert known.forget(f"{REGISTRY.upper()}:443/", "big-1")
    assert known.find(REGISTRY, "big-1") is None
    for name in ("big-0", "big-2"):
        found = known.find(REGISTRY, name)
        assert found is not None and found.fingerprint == f"SHA256:{name}"
    assert not known.forget(REGISTRY, "big-1")
    assert known.add(REGISTRY, "big-1", "SHA256:new").fingerprint == "SHA256:new"


def test_a_file_that_others_can_write_to_is_left_alone(tmp_path):
    known = KnownExecutors(tmp_path / "known")
    known.add(REGISTRY, "big-1", "SHA256:a")
    (tmp_path / "known").chmod(0o622)
    with pytest.raises(ConfigurationError, match="others can write"):
        known.forget(REGISTRY, "big-1")
