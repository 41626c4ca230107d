"""`exec-server audit`, and the options of the audit log."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from exec_server.audit.audit_file import AuditLines, AuditOptions
from exec_server.audit.chain import read_line
from exec_server.audit.event import AuditEvent, WorkEvent
from exec_server.audit.ocsf import exported
from exec_server.cli.audit_command import audit_command
from exec_server.cli.serve.audit_options import own_folder
from exec_server.cli.serve.serve_options import parse_serve
from tests.requirements import requirement
from tests.support.cli import finished, line, running, status
from tests.support.servers import start_server

NOW = 1_790_000_000.0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "audit.log"
    lines = AuditLines(str(path), AuditOptions(max_bytes=1200))
    for event in (
        AuditEvent(at=NOW - 7200, name="server started", detail="version 1"),
        WorkEvent(
            at=NOW - 3000,
            name="process/start",
            principal="alice",
            address="192.0.2.7:5123",
            session="0123456789ab",
            process="p1",
            argv=["make", "-j4", "a b\x1b[31m"],
            cwd="/srv/app",
            sandbox="workspace-write=/srv/app, no network",
            limits={"memory": 1024.0},
        ),
        WorkEvent(
            at=NOW - 2000, name="process ended", principal="alice", process="p1", exit_code=2
        ),
        WorkEvent(
            at=NOW - 1000,
            name="fs/rename",
            principal="bob",
            address="unix",
            uid=7,
            pid=8,
            paths=["/a", "/b"],
            code=-32004,
            error="No such file",
        ),
        WorkEvent(
            at=NOW,
            name="http/request",
            principal="bob",
            http_method="GET",
            url="https://example.test/x",
            status=200,
        ),
    ):
        lines.write_event(event)
    lines.close()
    assert (tmp_path / "audit.log.1").exists()
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    result = audit_command(list(words))
    return result, capsys.readouterr().out.splitlines()


@requirement("audit/command:filters")
def test_lines_for_people(log, capsys, monkeypatch):
    code, lines = run(capsys, str(log))
    assert code == 0 and len(lines) == 5
    assert (
        r"alice         192.0.2.7:5123         process/start       p1: make -j4 'a b\x1b[31m'; in"
        in lines[1]
    )
    assert "sandbox workspace-write=/srv/app, no network; limits memory 1024" in lines[1]
    assert lines[2].endswith("p1; status 2")
    assert "unix pid 8" in lines[3] and lines[3].endswith("/a -> /b; error -32004: No such file")
    assert lines[4].endswith("GET https://example.test/x; HTTP 200")
    monkeypatch.setattr(time, "time", lambda: NOW)
    for words, numbers in (
        (["--who", "alice"], [2, 3]),
        (["--since", "20m"], [4, 5]),
        (["--since", "1h", "--who", "bob"], [4, 5]),
        (["--method", "process*"], [2, 3]),
        (["--method", "fs/rename"], [4]),
        (["--since", "2100-01-01"], []),
    ):
        code, lines = run(capsys, "-o", "json", *words, str(log))
        assert [json.loads(each)["n"] for each in lines] == numbers


@requirement("audit/command:filters")
def test_numbers_can_be_read_by_people(tmp_path, capsys):
    path = tmp_path / "audit.log"
    lines = AuditLines(str(path), AuditOptions())
    used = {"wall": 0.0136981, "cpu": 2.0, "peakMemory": 2_498_560.0}
    lines.write_event(
        WorkEvent(at=NOW, name="process ended", usage=used, limits={"memory": 2.0**31})
    )
    lines.close()
    _, (shown,) = run(capsys, str(path))
    assert shown.endswith("limits memory 2147483648; wall 0.014, cpu 2, peakMemory 2498560")


@requirement("audit/command:ocsf")
def test_events_have_the_field_names_of_ocsf(log, capsys):
    _, lines = run(capsys, "-o", "ocsf", str(log))
    started, launched, ended, renamed, request = map(json.loads, lines)
    assert [each["type_uid"] for each in (started, launched, ended, renamed, request)] == [
        600203,
        100701,
        100702,
        100105,
        400203,
    ]
    for each in (started, launched, ended, renamed, request):
        assert each["category_uid"] == each["class_uid"] // 1000
        assert each["metadata"]["version"] == "1.3.0" and each["time"] > 10**12
    assert launched["actor"] == {"user": {"name": "alice"}, "session": {"uid": "0123456789ab"}}
    assert launched["src_endpoint"] == {"ip": "192.0.2.7", "port": 5123}
    assert launched["process"]["cmd_line"] == "make -j4 'a b\x1b[31m'"
    assert launched["unmapped"]["sandbox"].startswith("workspace-write")
    assert (renamed["status_id"], renamed["status_code"]) == (2, "-32004")
    assert (renamed["file"]["path"], renamed["file_result"]["path"]) == ("/a", "/b")
    assert renamed["actor"]["user"]["uid"] == "7"
    assert request["http_response"] == {"code": 200}


def test_any_event_can_be_exported():
    found = read_line(b'{"at":1,"name":"something new","address":"[::1]:80","token_id":"t"}')
    assert found is not None
    assert exported(found)["api"] == {"operation": "something new"}
    assert exported(found)["src_endpoint"] == {"ip": "::1", "port": 80}


@requirement("audit/chain:faults", "audit/chain:anchor")
def test_the_check_names_faults_and_keeps_an_anchor(log, capsys, tmp_path):
    anchor = tmp_path / "anchor"
    code, lines = run(capsys, "--verify", str(log))
    assert code == 0 and lines[0].startswith("lines 1 to 5 are whole; the last one is 5 ")
    assert "A chain cannot show that lines are missing at its end" in lines[1]
    code, lines = run(capsys, "--verify", "--anchor", str(anchor), str(log))
    assert code == 0 and anchor.read_text().startswith("5 ")
    rows = log.read_bytes().splitlines(keepends=True)
    # The end is cut, which only the anchor tells.
    log.write_bytes(b"".join(rows[:-1]))
    assert run(capsys, "--verify", str(log))[0] == 0
    code, lines = run(capsys, "--verify", "--anchor", str(anchor), str(log))
    assert code == 1 and "line 5, which the anchor names, is missing or was changed" in lines[0]
    assert anchor.read_text().startswith("5 ")
    # A line in the middle is changed.
    log.write_bytes(b"".join(rows).replace(b"bob", b"eve"))
    code, lines = run(capsys, "--verify", str(log))
    assert code == 1 and lines[0].startswith(f"FAULT: {log}:") and "was changed" in lines[0]
    code, lines = run(capsys, "--verify", "-o", "json", str(log))
    assert code == 1 and not json.loads(lines[0])["ok"]
    # The file before is gone, and the line of the anchor with it.
    anchor.write_text("1 " + "0" * 64)
    (tmp_path / "audit.log.1").unlink()
    code, lines = run(capsys, "--verify", "--anchor", str(anchor), str(log))
    assert code == 1 and any("is not there any more" in each for each in lines)


@requirement("audit/command:refusals")
def test_wrong_uses_are_refused_with_a_text(log, capsys, tmp_path):
    assert audit_command([str(tmp_path / "none")]) == 1
    assert "cannot read the audit log" in capsys.readouterr().err
    (tmp_path / "anchor").write_text("nonsense")
    assert audit_command(["--verify", "--anchor", str(tmp_path / "anchor"), str(log)]) == 1
    assert "is not an anchor" in capsys.readouterr().err
    for words in (
        ["--verify", "--follow"],
        ["--anchor", "x"],
        ["--since", "yesterday"],
        ["-o", "xml"],
    ):
        with pytest.raises(SystemExit) as ended:
            audit_command([*words, str(log)])
        assert ended.value.code == 2
    log.write_text("no json\n")
    assert audit_command([str(log)]) == 0
    assert "this is no line of an audit log" in capsys.readouterr().err


@pytest.mark.one_loop
@requirement("audit/command:filters", "audit/lines:connections", "audit/chain:one-writer")
async def test_a_log_is_followed_while_a_server_reloads_and_a_second_one_is_refused(tmp_path):
    token, folder = tmp_path / "token", tmp_path / "own"
    folder.mkdir(mode=0o700)
    token.write_text("0" * 32)
    token.chmod(0o600)
    path = folder / "audit.log"
    words = ["--audit", str(path), "--ws-auth", "capability-token", "--ws-token-file", str(token)]
    with start_server(*words) as server:
        second = await finished("--audit", str(path))
        assert second.status == 1 and "another server writes to the audit log" in second.stderr
        async with running("audit", "--follow", str(path)) as process:
            assert b"server started" in await line(process)
            server.signal(signal.SIGHUP)
            assert b"server reloaded" in await line(process)
            process.send_signal(signal.SIGINT)
            assert await status(process) == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--audit-fsync", "always"], "--audit <FILE>"),
        (["--audit", "x", "--audit-size", "10"], "at least 64K"),
        (["--audit", "x", "--audit-size", "huge"], "a number of bytes"),
        (["--audit", "x", "--audit-keep", "0"], "zero"),
        (["--audit", "x", "--audit-when-full", "panic"], "refuse"),
    ],
)
def test_wrong_options_are_refused(words, text, capsys):
    with pytest.raises(SystemExit):
        parse_serve(words, {})
    assert text in capsys.readouterr().err


def test_the_options_are_read():
    found = parse_serve(["--audit", "x", "--audit-size", "100M", "--audit-keep", "3"], {}).audit
    assert (found.file, found.max_bytes, found.keep) == ("x", 100 << 20, 3)
    assert (found.when_full, found.fsync) == ("go-on", "interval")


def test_only_a_directory_of_its_own_is_hidden_from_sandboxes(tmp_path):
    os.chmod(tmp_path, 0o700)
    file = tmp_path / "audit.log"
    assert own_folder(str(file)) == str(tmp_path)
    (tmp_path / "audit.log.1").touch()
    assert own_folder(str(file)) == str(tmp_path)
    (tmp_path / "project").mkdir()
    assert own_folder(str(file)) is None
    (tmp_path / "project").rmdir()
    os.chmod(tmp_path, 0o755)
    assert own_folder(str(file)) is None
    assert own_folder(str(tmp_path / "missing" / "audit.log")) is None
