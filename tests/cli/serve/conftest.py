"""Command lines of the server: its options, and fixtures that read wrong and printing ones."""

from __future__ import annotations

import pytest

from exec_server.cli.serve.serve_options import ServeOptions, parse_serve

EXIT_VARIABLE = "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE"
PROXY_VARIABLE = "CODEX_EXEC_SERVER_PROXY_PRIVATE_IPS_VIA_UPSTREAM"
REMOTE = ("--remote", "http://h", "--environment-id", "e")
USAGE = "Usage: exec-server [OPTIONS] [COMMAND]"
FORWARD_USAGE = (
    "Usage: exec-server forward [OPTIONS] --remote <URL> --environment-id <ID> --connect <URL>"
)

# Options that take a value, with one that each accepts.
SINGLE_VALUES = {
    "--listen <URL>": "stdio",
    "--concurrent-requests <COUNT>": "2",
    "--max-concurrent-requests <COUNT>": "2",
    "--retain-bytes <BYTES>": "2",
    "--detached-session-seconds <SECONDS>": "2",
    "--max-detached-session-seconds <SECONDS>": "2",
    "--closed-process-seconds <SECONDS>": "2",
    "--linux-sandbox-pid-namespace <MODE>": "inherit",
    "--ws-auth <MODE>": "capability-token",
    "--ws-token-file <PATH>": "x",
    "--ws-token-sha256 <HEX>": "x",
    "--ws-shared-secret-file <PATH>": "x",
    "--ws-issuer <ISSUER>": "x",
    "--ws-audience <AUDIENCE>": "x",
    "--ws-max-clock-skew-seconds <SECONDS>": "2",
    "--log-level <LEVEL>": "info",
    "--log-format <FORMAT>": "json",
    "--remote <URL>": "x",
    "--remote-transport <REMOTE_TRANSPORT>": "direct",
    "--environment-id <ID>": "x",
    "--name <NAME>": "x",
    "--aws-profile <PROFILE>": "x",
    "--aws-region <REGION>": "x",
    "--aws-service <SERVICE>": "x",
}
FLAGS = [
    "--strict-config",
    "--proxy-private-ips-via-upstream",
    "--insecure-no-auth",
    "--use-agent-identity-auth",
    "--executor-credential-stdin",
    "--aws-sigv4",
    "--exit-on-stdin-close",
    "--allow-other-users",
]


def parse(*argv: str, **environ: str) -> ServeOptions:
    return parse_serve(list(argv), environ)


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]):
    """Parse a wrong command line; gives what standard error said, paragraph by paragraph."""

    def refuse(*argv: str, **environ: str) -> list[str]:
        with pytest.raises(SystemExit) as exit_:
            parse(*argv, **environ)
        out, err = capsys.readouterr()
        assert exit_.value.code == 2
        assert out == ""
        assert err.startswith("error: ")
        *paragraphs, last = err.removeprefix("error: ").split("\n\n")
        assert last == "For more information, try '--help'.\n"
        return paragraphs

    return refuse


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]):
    """Parse a command line that prints and exits; gives its standard output."""

    def run(*argv: str, **environ: str) -> str:
        with pytest.raises(SystemExit) as exit_:
            parse(*argv, **environ)
        out, err = capsys.readouterr()
        assert (exit_.value.code or 0, err) == (0, "")
        return out

    return run
