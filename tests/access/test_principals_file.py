"""The file of principals: its permissions, its content, and several programs at once."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from exec_server.access.principal import Floors, Quotas, SandboxFloor, read_scopes
from exec_server.access.principal_record import LastUse, PrincipalRecord
from exec_server.access.principals_file import PrincipalsFile, journal_of
from exec_server.errors import ConfigurationError
from exec_server.protocol.resources import ResourceLimits
from tests.requirements import requirement


def record(name: str, **members) -> PrincipalRecord:
    members = {"may": read_scopes("exec"), "created_at": 1.0, **members}
    return PrincipalRecord(name=name, **members)


@pytest.fixture
def file(tmp_path) -> PrincipalsFile:
    made = PrincipalsFile(tmp_path / "state" / "p.sqlite3")
    made.add(record("ci"))
    return made


def why_refused(file: PrincipalsFile) -> str:
    with pytest.raises(ConfigurationError) as refused:
        file.records()
    return str(refused.value)


@requirement("principals:file")
def test_everything_that_is_stored_is_read_again(file):
    whole = record(
        "whole",
        may=read_scopes("all"),
        digest=bytes(range(32)),
        floors=Floors(
            roots=("/srv",),
            sandbox=SandboxFloor(kind="workspace-write", folders=("/srv",), network=True),
            run_as="www",
            keep_env=("A*",),
            hide_env=("B*",),
            hosts=("example.net",),
            limits=ResourceLimits(memory=1 << 30, cpu_rate=0.5),
        ),
        quotas=Quotas(max_processes=50, max_connections=3, max_sessions=2, rate=1.5),
        certificates=("alice", "spiffe://lab/alice"),
        unix_users=("www",),
        subjects=("repo:org/app",),
        rotated_at=2.0,
        expires_at=3.0,
        revoked_at=4.0,
    )
    file.add(whole)
    assert file.records() == [record("ci"), whole]
    assert file.find("whole") == whole
    file.note_uses({"ci": LastUse(5.0, "192.0.2.1:3"), "gone": LastUse(6.0, "x")})
    assert file.last_uses() == {"ci": LastUse(5.0, "192.0.2.1:3")}
    file.remove("ci")
    assert [each.name for each in file.records()] == ["whole"]


@requirement("principals:file")
def test_the_file_is_for_its_owner_alone(file):
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.path.parent.stat().st_mode & 0o777 == 0o700
    for mode in (0o640, 0o604, 0o602, 0o620):
        file.path.chmod(mode)
        assert f"run `chmod 600 {file.path}`" in why_refused(file)
    file.path.chmod(0o600)
    file.path.parent.chmod(0o777)
    assert f"run `chmod o-w {file.path.parent}`" in why_refused(file)
    file.path.parent.chmod(0o1777)
    assert file.records()


@requirement("principals:file")
def test_changes_leave_the_files_in_place(file):
    """A sandbox hides files by their inodes, and the journal could change the file."""
    journal = Path(journal_of(str(file.path)))
    before = file.path.stat().st_ino, journal.stat().st_ino
    assert journal.stat().st_mode & 0o777 == 0o600
    file.add(record("b"))
    file.note_uses({"b": LastUse(1.0, "x")})
    file.remove("b")
    assert (file.path.stat().st_ino, journal.stat().st_ino) == before


@requirement("principals:file")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(file):
    os.chown(file.path, 1, -1)
    assert "it belongs to another user (uid 1); only that user can use it" in why_refused(file)


@requirement("principals:file")
@pytest.mark.parametrize(
    ("closed", "said"),
    [
        ("file", "it has to belong to the user that the server runs as"),
        ("folder", "because a journal is written beside the file"),
    ],
)
def test_missing_rights_are_named(file, monkeypatch, closed, said):
    """As a server that is not root meets a file that root has made."""
    denied = file.path if closed == "file" else file.path.parent

    def fails(*words: object, **options: object) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(sqlite3, "connect", fails)
    monkeypatch.setattr(os, "access", lambda path, mode: path != denied)
    assert said in why_refused(file)


@requirement("principals:file")
def test_what_is_no_such_file_is_refused(tmp_path):
    path = tmp_path / "p"
    file = PrincipalsFile(path)
    assert "No such file" in why_refused(file)
    path.touch(0o600)
    assert "it is empty" in why_refused(file)
    path.write_text("[principals]\n" * 100)
    assert "not a database" in why_refused(file)
    path.unlink()
    path.mkdir()
    assert "it is not a file" in why_refused(file)
    path.rmdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE principals (x)")
    other.close()
    path.chmod(0o600)
    assert "it is another database" in why_refused(file)
    with pytest.raises(ConfigurationError, match="another database"):
        file.add(record("x"))


@requirement("principals:file")
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "nonsense",
        '{"name":"ci","may":["fly"],"created_at":1}',
        # A restriction that this release does not know must not be lost.
        '{"name":"ci","may":["exec"],"created_at":1,"curfew":true}',
        '{"name":"ci","may":["exec"],"created_at":1,"floors":{"curfew":true}}',
    ],
)
def test_a_record_that_is_not_understood_closes_the_file(file, text):
    with sqlite3.connect(file.path) as database:
        database.execute("UPDATE principals SET record = ?", (text,))
    database.close()
    assert "a record is broken" in why_refused(file)


@requirement("principals:file")
def test_one_name_certificate_or_user_means_one_principal(file):
    file.add(record("a", certificates=("alice",), unix_users=("www",), subjects=("s",)))
    for double, said in (
        (record("ci"), "there is a principal `ci` already"),
        (record("b", certificates=("x", "alice")), "the certificate `alice` is that of `a`"),
        (record("b", unix_users=("www",)), "the user `www` is that of `a`"),
        (record("b", subjects=("s",)), "the subject `s` is that of `a`"),
        (record("b", subjects=("ci",)), "the subject `ci` is that of `ci`"),
        (record("s"), "the subject `s` is that of `a`"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            file.add(double)
    assert len(file.records()) == 2


@requirement("principals:file")
def test_a_change_that_came_between_is_not_lost(file):
    before = file.find("ci")
    file.replace(record("ci", revoked_at=2.0), before=before)
    with pytest.raises(ConfigurationError, match="has changed meanwhile"):
        file.replace(record("ci", expires_at=9.0), before=before)
    assert file.find("ci").revoked_at == 2.0


@requirement("principals:file")
def test_several_programs_change_it_at_once(file):
    def work(number: int) -> None:
        mine = PrincipalsFile(file.path)
        for each in range(5):
            mine.add(record(f"p{number}-{each}"))
            mine.note_uses({"ci": LastUse(time.time(), str(number))})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(file.records()) == 21


def test_the_stamp_changes_with_the_file(file):
    before = file.stamp()
    assert file.stamp() == before
    file.add(record("b"))
    assert file.stamp() != before


@requirement("principals:file")
def test_a_log_that_another_program_puts_beside_the_file_changes_nothing(file, tmp_path):
    copy = tmp_path / "copy.sqlite3"
    copy.write_bytes(file.path.read_bytes())
    log = Path(f"{file.path}-wal")
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as forged:
        forged.execute("PRAGMA journal_mode = WAL")
        forged.execute(
            "INSERT INTO principals (name, record) "
            "SELECT 'eve', replace(record, '\"ci\"', '\"eve\"') FROM principals"
        )
        log.write_bytes(Path(f"{copy}-wal").read_bytes())
    assert f"another program has made {log}" in why_refused(file)
    with pytest.raises(ConfigurationError):
        file.add(record("bob"))
    log.unlink()
    assert [each.name for each in file.records()] == ["ci"]
