"""`exec-server token`: principals are made, listed, shown, rotated, revoked and removed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from exec_server.access.principal import SCOPES, Floors, Quotas, SandboxFloor, read_scopes
from exec_server.access.principal_record import LastUse
from exec_server.access.principals_file import PrincipalsFile
from exec_server.access.token_secrets import digest_of
from exec_server.cli.token.token_command import token_command
from exec_server.protocol.resources import ResourceLimits
from exec_server.server.authentication import SignedBearerToken
from tests.requirements import requirement

SECRET = "0123456789abcdef0123456789abcdef"


class Prompt:
    """The command, with a file of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = folder / "p.sqlite3"
        self.file = PrincipalsFile(self.path)
        self._capsys = capsys

    def __call__(self, *words: str, status: int = 0) -> str:
        """What is printed, on stderr if the command fails."""
        assert token_command([*words, "--file", str(self.path)]) == status
        out, err = self._capsys.readouterr()
        return err if status else out

    def refused(self, *words: str) -> str:
        """The text of a wrong command line."""
        with pytest.raises(SystemExit) as ended:
            token_command([*words, "--file", str(self.path)])
        assert ended.value.code == 2
        return self._capsys.readouterr().err


@pytest.fixture
def prompt(tmp_path, capsys) -> Prompt:
    return Prompt(tmp_path, capsys)


@requirement("principals:token")
def test_a_token_is_shown_once_and_only_its_digest_is_stored(prompt):
    token = prompt("create", "ci").strip()
    assert token.startswith("exs_") and len(token) > 40
    record = prompt.file.find("ci")
    assert record.digest == digest_of(token)
    assert record.may == SCOPES - {"admin"} and record.expires_at is None
    for words in (["list"], ["show", "ci"], ["list", "-o", "json"], ["show", "ci", "-o", "json"]):
        shown = prompt(*words)
        assert "ci" in shown and token not in shown and record.digest.hex() not in shown
    assert token.encode() not in prompt.path.read_bytes()
    made = json.loads(prompt("create", "two", "-o", "json"))
    assert digest_of(made["token"]) == prompt.file.find("two").digest


@requirement("principals:token")
def test_every_option_is_stored(prompt):
    now = time.time()
    prompt(
        *("create", "agent", "--may", "exec,files:read", "--expires", "30d"),
        *("--root", "/srv/app/", "--root", "/data", "--run-as", "root"),
        *("--sandbox-floor", "workspace-write=/srv/app:/data", "--sandbox-floor-net", "on"),
        *("--keep-env", "A*", "--hide-env", "*TOKEN*", "--host", "*.example.net"),
        *("--limit", "memory=2G", "--limit", "cpu-rate=1.5"),
        *("--max-processes", "50", "--max-connections", "9", "--max-sessions", "4"),
        *("--rate", "20/s", "--certificate", "a", "--certificate", "b"),
        *("--unix-user", "0", "--subject", "x|y"),
    )
    record = prompt.file.find("agent")
    assert record.may == {"exec", "files:read"} and record.digest is None
    assert record.expires_at is not None
    assert now + 30 * 86400 <= record.expires_at <= time.time() + 30 * 86400
    assert record.floors == Floors(
        roots=("/srv/app", "/data"),
        sandbox=SandboxFloor(kind="workspace-write", folders=("/srv/app", "/data"), network=True),
        run_as="root",
        keep_env=("A*",),
        hide_env=("*TOKEN*",),
        hosts=("*.example.net",),
        limits=ResourceLimits(memory=2 << 30, cpu_rate=1.5),
    )
    assert record.quotas == Quotas(max_processes=50, max_connections=9, max_sessions=4, rate=20.0)
    assert (record.certificates, record.unix_users) == (("a", "b"), ("root",))
    assert record.subjects == ("x|y",)
    shown = prompt("show", "agent")
    for part in ("/srv/app /data", "memory=2147483648 cpuRate=1.5", "network=on", "certificate a"):
        assert part in shown


@requirement("principals:token")
def test_the_life_of_a_principal(prompt):
    old = prompt("create", "ci", "--expires", "1h").strip()
    new = prompt("rotate", "ci").strip()
    record = prompt.file.find("ci")
    assert old != new and record.digest == digest_of(new)
    prompt("rotate", "ci", "--expires", "2h")
    assert prompt.file.find("ci").expires_at != record.expires_at
    prompt.file.note_uses({"ci": LastUse(time.time(), "192.0.2.7:1234")})
    assert "from 192.0.2.7:1234" in prompt("list")
    assert json.loads(prompt("list", "-o", "json"))[0]["lastUsedFrom"] == "192.0.2.7:1234"
    prompt("revoke", "ci")
    first = prompt.file.find("ci").revoked_at
    prompt("revoke", "ci")
    assert prompt.file.find("ci").revoked_at == first
    assert prompt("list").splitlines()[1].endswith("revoked")
    assert "was revoked" in prompt("rotate", "ci", status=1)
    assert "there is a principal `ci` already" in prompt("create", "ci", status=1)
    prompt("remove", "ci")
    assert prompt("list").splitlines()[1:] == []
    prompt("create", "ci", "--expires", "0")
    assert prompt("list").splitlines()[1].endswith("expired")
    assert "has expired; give it a new --expires" in prompt("rotate", "ci", status=1)


@requirement("principals:token")
def test_what_fails_is_said(prompt, capsys):
    assert "No such file" in prompt("list", status=1)
    prompt("create", "ci")
    assert "no principal `x`" in prompt("show", "x", status=1)
    assert prompt("revoke", "x", "ci", "y", status=1).count("there is no principal") == 2
    assert prompt.file.find("ci").revoked_at is not None
    assert token_command(["remove", "x", "-o", "json", "--file", str(prompt.path)]) == 1
    assert json.loads(capsys.readouterr().out)["exitCode"] == 1
    prompt.path.chmod(0o644)
    assert "chmod 600" in prompt("list", status=1)
    assert "cannot name a principal" in prompt("create", "uid:0", status=1)


@requirement("principals:token")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "arguments are required: ACTION"),
        (["fly"], "invalid choice: 'fly'"),
        (["create"], "`create` needs one name"),
        (["create", "a", "b"], "`create` needs one name"),
        (["list", "a"], "`list` has no names"),
        (["revoke"], "`revoke` needs a name"),
        (["create", "a", "--may", "exec,fly"], "`fly` is no scope"),
        (["create", "a", "--expires", "soon"], "expected a number of seconds"),
        (["create", "a", "--rate", "many"], "expected a rate such as 20/s"),
        (["create", "a", "--limit", "speed=1"], "expected NAME=VALUE"),
        (["create", "a", "--max-processes", "0"], "--max-processes"),
        (["create", "a", "--root", "srv"], "expected an absolute path"),
        (["create", "a", "--sandbox-floor", "none"], "expected read-only or workspace-write="),
        (["create", "a", "--sandbox-floor", "workspace-write"], "expected read-only or"),
        (["create", "a", "--run-as", "no-such-user"], "this machine has no such user"),
        (["create", "a", "--issuer", "x"], "`create` has no option '--issuer <ISSUER>'"),
        (["list", "--may", "exec"], "`list` has no option '--may <SCOPES>'"),
        (["rotate", "a", "--root", "/"], "`rotate` has no option '--root <DIR>'"),
        (["sign", "a"], "`sign` needs --shared-secret-file"),
        (["sign", "--shared-secret-file", "x"], "`sign` needs one name"),
        (["create", "a", "--fly"], "unrecognized arguments: --fly"),
    ],
)
def test_wrong_command_lines(prompt, words, said):
    assert said in prompt.refused(*words)
    assert not prompt.path.exists()


@requirement("principals:signed")
def test_a_signed_token_is_accepted_by_the_server(prompt, tmp_path):
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    file.chmod(0o600)
    options = ["--shared-secret-file", str(file)]
    token = prompt("sign", "ann", *options, "--may", "exec,http", "--expires", "1h").strip()
    header = f"Bearer {token}"
    now = time.time()
    plain = SignedBearerToken(SECRET.encode(), clock=lambda: now + 3000)
    assert plain.check(header) is None
    found = plain.subject(header)
    assert found.subject == "ann" and found.may == read_scopes("exec,http")
    late = SignedBearerToken(SECRET.encode(), max_clock_skew=0, clock=lambda: now + 3700)
    assert late.check(header) == "expired websocket jwt"
    strict = SignedBearerToken(SECRET.encode(), issuer="me", audience="you")
    assert strict.check(header) == "websocket jwt issuer mismatch"
    full = json.loads(
        prompt("sign", "ann", *options, "--issuer", "me", "--audience", "you", "-o", "json")
    )
    assert strict.check(f"Bearer {full['token']}") is None
    assert strict.subject(f"Bearer {full['token']}").may is None
    agent = prompt("sign", "ann", *options, "--kind", "agent").strip()
    signed = plain.subject(f"Bearer {agent}")
    assert signed.principal(None, now).kind == "agent" and not found.is_agent
    file.write_text("short")
    assert "fewer than 32 bytes" in prompt("sign", "ann", *options, status=1)
    assert not prompt.path.exists()


@requirement("principals:token")
def test_limits_have_the_names_and_values_of_run(prompt):
    words = ["memory=1.5G,pids=64", "cpuRate=0.5", "wall=1h", "open-files=64", "disk=3mb"]
    prompt("create", "ci", *(word for limit in words for word in ("--limit", limit)))
    assert prompt.file.find("ci").floors.limits == ResourceLimits(
        memory=3 << 29, pids=64, cpu_rate=0.5, wall=3600.0, open_files=64, disk=3 << 20
    )


@requirement("principals:token")
@pytest.mark.parametrize(
    "text",
    [
        *("", "memory", "memory=", "memory=0", "speed=1", "pids=1.5", "pids=2G", "=1", "memory=x"),
        *("require", "memory=1G,require", "memory=1X", "memory=-1", "memory=1 G"),
    ],
)
def test_what_is_no_limit_is_refused(prompt, text):
    assert "argument --limit:" in prompt.refused("create", "ci", "--limit", text)


@requirement("principals:token")
def test_without_an_action_no_name_is_asked_for(prompt):
    assert "required: ACTION\n" in prompt.refused()
