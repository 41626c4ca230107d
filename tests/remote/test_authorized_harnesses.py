"""An executor that serves known harness keys only, whatever the registry says."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec
import pytest

from exec_server.audit.audit_file import AuditLines
from exec_server.audit.audit_reader import lines_of
from exec_server.audit.chain import check
from exec_server.audit.event import AuditEvent, WorkEvent
from exec_server.errors import ConfigurationError, ConnectError
from exec_server.relay.keys import SEED_BYTES, KeyPair
from exec_server.remote.authorized_harnesses import AuthorizedHarnesses
from exec_server.remote.credentials.credentials import HarnessToken
from exec_server.remote.executor.refused_harnesses import RefusedHarnesses
from exec_server.remote.harness.dialler import NoiseDialler
from exec_server.remote.identity import create_identity
from exec_server.server.server_audit import ServerAudit
from tests.remote.conftest import LIMITS, connect, executor
from tests.requirements import requirement
from tests.support.rendezvous import TOKEN, Rendezvous

ONE, TWO = (KeyPair(os.urandom(SEED_BYTES)) for _ in range(2))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "harnesses"
    made.write_text(f"# The laptop.\n\n  {ONE.public.fingerprint} laptop of Kim\n")
    made.chmod(0o644)
    return made


@contextlib.asynccontextmanager
async def dialled(relay: Rendezvous, identity: KeyPair):
    credentials = HarnessToken(TOKEN)
    dialler = NoiseDialler(relay.url, "env-1", credentials, identity=identity, limits=LIMITS)
    connection = await dialler()
    try:
        yield connection
    finally:
        connection.abort()


@requirement("security:authorized-harness", "remote/executor:authorized-harness")
async def test_a_registry_that_validates_its_own_key_is_refused(relay, path, caplog):
    """The registry of the tests says that every key with its own authorization is valid."""
    async with executor(relay, authorized_harnesses=path):
        with pytest.raises(ConnectError):
            async with dialled(relay, TWO):
                pass
        # It was refused before the registry was asked.
        assert relay.operations("validate") == []
        assert TWO.public.fingerprint in caplog.text and str(path) in caplog.text
        async with dialled(relay, ONE):
            assert len(relay.operations("validate")) == 1


@requirement("remote/executor:audit")
async def test_a_refused_key_is_in_the_audit_log_of_the_executor(relay, path, tmp_path):
    audit = tmp_path / "audit"
    async with executor(relay, authorized_harnesses=path, audit_log=audit):
        with pytest.raises(ConnectError):
            async with dialled(relay, TWO):
                pass
        async with dialled(relay, ONE):
            pass
    (line,) = audit.read_text().splitlines()
    event = msgspec.json.decode(line, type=AuditEvent)
    assert (event.name, event.environment_id) == ("harness refused", "env-1")
    assert TWO.public.fingerprint in event.detail and str(path) in event.detail
    assert audit.stat().st_mode & 0o777 == 0o600


@requirement("remote/executor:audit", "audit/lines:requests")
async def test_the_audit_log_of_an_executor_has_refused_keys_and_all_work(relay, path, tmp_path):
    file = tmp_path / "audit.log"
    with contextlib.closing(ServerAudit(AuditLines(str(file)))) as audit:
        async with executor(relay, authorized_harnesses=path, audit=audit):
            with pytest.raises(ConnectError):
                async with dialled(relay, TWO):
                    pass
        async with executor(relay, "env-2", audit=audit), connect(relay, "env-2") as client:
            await client.run(["true"])
    done = check(lines_of(str(file)))
    assert not done.faults
    events = [msgspec.json.decode(line, type=WorkEvent) for _, line in lines_of(str(file))]
    names = [event.name for event in events]
    assert names[:3] == ["server started", "harness refused", "server stopped"]
    assert "env-1" in events[0].detail and TWO.public.fingerprint in events[1].detail
    assert {"connection opened", "initialize", "process/start", "process ended"} <= set(names[3:])
    (start,) = [event for event in events if event.name == "process/start"]
    assert start.argv == ["true"] and start.address.startswith("stream ")


@requirement("remote/executor:audit")
def test_records_of_refused_keys_have_a_bounded_rate(tmp_path, caplog):
    now, audit = 1000.0, tmp_path / "audit"
    refused = RefusedHarnesses("e", lines=AuditLines(str(audit)), clock=lambda: now)
    for number in range(500):
        refused.note(f"SHA256:{number}", "s\nforged", "it is not in the file")
    now += 7
    refused.note("SHA256:later", "s", "it is not in the file")
    for number in range(3):
        refused.note(f"SHA256:{number}", "s", "it is not in the file")
    refused.close()
    events = [msgspec.json.decode(line, type=AuditEvent) for line in audit.read_text().splitlines()]
    details = [event.detail for event in events]
    assert details[:10] == [f"SHA256:{number}: it is not in the file" for number in range(10)]
    assert details[10:] == ["490 more", "SHA256:later: it is not in the file", "3 more"]
    # Refusals, and the two counts.
    assert len(caplog.records) == len(events)


async def test_an_audit_log_that_cannot_be_written_is_told_at_the_start(relay, path, tmp_path):
    with pytest.raises(ConfigurationError, match="cannot write the audit log"):
        async with executor(relay, authorized_harnesses=path, audit_log=tmp_path / "no" / "audit"):
            pass


@requirement("remote/executor:authorized-harness")
async def test_the_registry_must_still_admit_a_known_key(relay, path):
    async with executor(relay, authorized_harnesses=path):
        relay._validate = lambda *_: (200, {"valid": False})
        with pytest.raises(ConnectError):
            async with dialled(relay, ONE):
                pass


@requirement("remote/executor:authorized-harness")
async def test_changes_of_the_file_apply_to_the_next_handshake(relay, path):
    async with executor(relay, authorized_harnesses=path):
        path.write_text(f"{TWO.public.fingerprint}\n")
        async with dialled(relay, TWO):
            pass
        with pytest.raises(ConnectError):
            async with dialled(relay, ONE):
                pass
        AuthorizedHarnesses(path).add(ONE.public.fingerprint, "again")
        async with dialled(relay, ONE):
            pass


@requirement("remote/executor:authorized-harness")
@pytest.mark.parametrize("fault", ["missing", "writable", "malformed", "folder"])
async def test_a_file_that_becomes_unusable_admits_no_key(relay, path, fault, caplog):
    async with executor(relay, authorized_harnesses=path):
        spoil(path, fault)
        with pytest.raises(ConnectError):
            async with dialled(relay, ONE):
                pass
        assert "every harness is refused" in caplog.text
    path.parent.chmod(0o700)


def spoil(path: Path, fault: str) -> None:
    if fault == "missing":
        path.unlink()
    elif fault == "writable":
        path.chmod(0o664)
    elif fault == "folder":
        path.parent.chmod(0o777)
    else:
        path.write_text(f"{ONE.public.fingerprint}\nssh-ed25519 AAAA kim\n")


@requirement("remote/executor:authorized-harness")
@pytest.mark.parametrize("fault", ["missing", "writable", "malformed", "folder"])
async def test_an_executor_does_not_start_with_an_unusable_file(relay, path, fault):
    spoil(path, fault)
    with pytest.raises(ConfigurationError, match="cannot use the authorized harnesses"):
        async with executor(relay, authorized_harnesses=path):
            pass
    path.parent.chmod(0o700)


async def test_the_older_relay_has_no_keys(relay, path):
    with pytest.raises(ConfigurationError, match="--authorized-harness needs --relay noise"):
        async with executor(relay, authorized_harnesses=path, relay="plaintext"):
            pass


def test_other_kinds_of_files_are_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "long").write_bytes(b"#" * ((1 << 20) + 1))
    for name in ("fifo", "long", "."):
        with pytest.raises(ConfigurationError):
            AuthorizedHarnesses(tmp_path / name).check()


def test_a_key_is_added_once_and_to_a_private_file(tmp_path):
    known = AuthorizedHarnesses(tmp_path / "folder" / "harnesses")
    for _ in range(2):
        known.add(ONE.public.fingerprint, "a comment\nin two lines")
    assert known.path.read_text() == f"{ONE.public.fingerprint} a comment in two lines\n"
    assert known.path.stat().st_mode & 0o777 == 0o600
    known.path.write_text("# An editor left this")
    known.add(TWO.public.fingerprint, "")
    assert known.admits(TWO.public.fingerprint) and not known.admits(ONE.public.fingerprint)


@requirement("remote/harness:identity-variable")
async def test_a_harness_can_have_a_key_that_lasts(relay, tmp_path, monkeypatch):
    identity = create_identity(tmp_path / "harness.identity")
    path = tmp_path / "harnesses"
    AuthorizedHarnesses(path).add(identity.public.fingerprint, "")
    async with executor(relay, authorized_harnesses=path):
        with pytest.raises(ConnectError):
            async with connect(relay):
                pass
        monkeypatch.setenv("EXEC_SERVER_HARNESS_IDENTITY", str(tmp_path / "harness.identity"))
        async with connect(relay) as client:
            assert (await client.run(["echo", "hi"])).stdout == b"hi\n"
