"""`exec-server cert`, with OpenSSL and real servers and clients as its users."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from exec_server.cli.cert.cert_command import cert_command
from exec_server.cli.serve.serve_options import parse_serve
from tests.requirements import requirement
from tests.support.servers import OURS, start_server


def run(*words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*OURS, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done
    return done


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A directory with an authority, a server on the loopback, and the client alice."""
    folder = tmp_path / "lab"
    for words in (["ca"], ["server", "localhost", "127.0.0.1"], ["client", "alice"]):
        assert cert_command([words[0], str(folder), *words[1:]]) == 0
    return folder


@requirement("cert:files")
def test_the_files_are_private_and_openssl_accepts_them(lab):
    assert lab.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in lab.iterdir()} == {0o600}
    for name, purpose in (("server-localhost", "sslserver"), ("client-alice", "sslclient")):
        words = ["-x509_strict", "-purpose", purpose, "-CAfile", lab / "ca.pem"]
        shown = subprocess.run(
            ["openssl", "verify", *words, lab / f"{name}.pem"], capture_output=True, check=False
        )
        assert shown.returncode == 0, shown
        wrong = {"sslserver": "sslclient", "sslclient": "sslserver"}[purpose]
        words[2] = wrong
        assert subprocess.run(
            ["openssl", "verify", *words, lab / f"{name}.pem"], capture_output=True, check=False
        ).returncode


@requirement("cert:files")
def test_nothing_is_replaced_without_force(lab, capsys):
    before = (lab / "client-alice.pem").read_bytes()
    capsys.readouterr()
    assert cert_command(["client", str(lab), "alice"]) == 1
    assert "exists already; --force" in capsys.readouterr().err
    assert (lab / "client-alice.pem").read_bytes() == before
    assert cert_command(["client", str(lab), "alice", "--force", "-o", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (lab / "client-alice.pem").read_bytes() != before
    assert facts["names"] == ["alice"] and facts["key"] == str(lab / "client-alice-key.pem")
    assert not [path for path in lab.iterdir() if path.name.startswith(".")]


@requirement("cert:use")
def test_a_server_and_a_client_use_them(lab):
    files = ["--tls-cert", str(lab / "server-localhost.pem")]
    files += ["--tls-key", str(lab / "server-localhost-key.pem")]
    files += ["--tls-client-ca", str(lab / "ca.pem")]
    with start_server("--listen", "ws://127.0.0.1:0", *files) as server:
        assert server.url.startswith("wss://")
        trust = ["--ca-file", str(lab / "ca.pem")]
        own = ["--client-cert", str(lab / "client-alice.pem")]
        own += ["--client-key", str(lab / "client-alice-key.pem")]
        done = run("run", *trust, *own, server.url, "--", "echo", "hello")
        assert done.stdout == "hello\n"
        (lab / "file").write_text("content")
        run("cp", *trust, *own, str(lab / "file"), f"{server.url}:{lab}/copy")
        assert (lab / "copy").read_text() == "content"
        refused = run("run", *trust, server.url, "--", "true", status=1)
        assert "certificate required" in refused.stderr
        refused = run("run", *own, server.url, "--", "true", status=1)
        assert "CERTIFICATE_VERIFY_FAILED" in refused.stderr
        server.process.terminate()
        assert server.wait() == 0


@requirement("cert:refusals")
@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["server", "DIR", "a/b"], 1, "neither a host name nor an IP address"),
        (["server", "DIR", "-x.lab"], 2, "-x.lab"),
        (["client", "DIR", "../up"], 1, "cannot name a client"),
        (["client", "DIR/other", "alice"], 1, "make one with `exec-server cert ca"),
        (["server", "DIR"], 2, "give the host names"),
        (["client", "DIR"], 2, "give one name"),
        (["ca", "DIR", "a", "b"], 2, "one name"),
        (["ca", "DIR", "x" * 65], 1, "too long"),
        (["ca", "DIR", "--days", "99999999"], 1, "too long"),
        (["renew", "DIR"], 2, "invalid choice"),
    ],
)
def test_wrong_words_are_refused(tmp_path, capsys, words, status, text):
    words = [word.replace("DIR", str(tmp_path / "lab")) for word in words]
    if words[0] != "ca":
        assert cert_command(["ca", str(tmp_path / "lab")]) == 0
    try:
        found = cert_command(words)
    except SystemExit as exc:
        found = int(str(exc.code))
    assert found == status
    assert text in capsys.readouterr().err


@requirement("tls:files")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--tls-cert", "/no/x", "--tls-key", "/no/y"], "cannot use the certificate /no/x"),
        (
            ["--remote", "http://h", "--environment-id", "e", "--tls-cert", "x", "--tls-key", "y"],
            "--tls-cert cannot be used with --remote",
        ),
    ],
)
def test_a_server_says_what_is_wrong_with_its_files(words, text):
    assert text in run(*words, status=1).stderr


@requirement("tls:files")
@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["--tls-cert", "x"], "--tls-key <PATH>"),
        (["--tls-key", "x"], "--tls-cert <PATH>"),
        (["--tls-client-ca", "x"], "--tls-cert <PATH>"),
    ],
)
def test_tls_options_that_need_others_are_a_wrong_command_line(words, missing, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_serve(words, {})
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "required arguments were not provided" in said and missing in said


@requirement("tls:files")
@pytest.mark.parametrize("listen", ["stdio", "unix:///tmp/no-such-directory/socket"])
def test_only_a_websocket_listener_has_tls(lab, listen):
    pem, key = str(lab / "server-localhost.pem"), str(lab / "server-localhost-key.pem")
    done = run("--listen", listen, "--tls-cert", pem, "--tls-key", key, status=1)
    assert "TLS requires a WebSocket listener" in done.stderr
