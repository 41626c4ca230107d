"""The files below deploy/: read, adapted to a test's ports and folders, and run."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from exec_server.discovery.yaml_text import parse
from tests.support.servers import ROOT

DEPLOY = ROOT / "deploy"
PROGRAM = "/usr/local/bin/exec-server"
_SECONDS = 60.0


def needs(tool: str) -> str:
    """The path of *tool*; the test is skipped if it is not installed."""
    found = shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        pytest.skip(f"{tool} is not installed")
    return found


def run(*words: str, **options: Any) -> str:
    """The output of a tool, which must succeed."""
    done = subprocess.run(words, capture_output=True, timeout=_SECONDS, **options)
    said: bytes = done.stdout + done.stderr
    assert done.returncode == 0, said.decode()
    return said.decode()


# Manifests.


def documents(path: Path) -> list[Any]:
    return [parse(text) for text in re.split("^---$", path.read_text(), flags=re.M)]


def manifests(folder: str) -> dict[str, list[Any]]:
    """The manifests of each file in a folder below deploy/kubernetes."""
    paths = sorted((DEPLOY / "kubernetes" / folder).iterdir())
    return {path.name: documents(path) for path in paths}


# Units.


def unit_text(unit: str) -> str:
    return (DEPLOY / "systemd" / unit).read_text()


def unit_words(unit: str) -> list[str]:
    """The arguments of exec-server in a unit, as they are written."""
    (line,) = re.findall("^ExecStart=(.*)$", unit_text(unit).replace("\\\n", " "), flags=re.M)
    program, *words = shlex.split(line)
    assert program == PROGRAM
    return words


def expanded(words: Sequence[str], instance: str, variables: Mapping[str, str]) -> list[str]:
    """The arguments as systemd passes them on."""
    return [
        re.sub(r"\$\{(\w+)\}", lambda found: variables[found[1]], word.replace("%i", instance))
        for word in words
    ]


# Proxies, with TLS by the certificate and key in `server.pem` of their folder.


def nginx_configuration(folder: Path, port: int, nodes: Sequence[int]) -> Path:
    """A whole configuration with the snippet, which writes only to *folder*."""
    text = (DEPLOY / "nginx" / "registry.conf").read_text()
    servers = "".join(f"    server 127.0.0.1:{node} fail_timeout=5s;\n" for node in nodes)
    text = _changed(r"(    server 127.*\n)+", servers, text)
    text = _changed(r"listen 443 ssl;\n.*", f"listen 127.0.0.1:{port} ssl;", text)
    text = _changed(r"/etc/nginx/registry\.(crt|key)", f"{folder}/server.pem", text)
    text = _changed("/var/log/nginx", str(folder), text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    whole = folder / "nginx.conf"
    whole.write_text(
        f"daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/errors;\n"
        f"events {{}}\nhttp {{\n{places}\n{text}}}\n"
    )
    return whole


def caddy_configuration(folder: Path, port: int, nodes: Sequence[int]) -> Path:
    """The snippet with the test's name, certificate, log and nodes."""
    text = (DEPLOY / "caddy" / "Caddyfile").read_text()
    site = f"https://127.0.0.1:{port} {{\n\ttls {folder}/server.pem {folder}/server.pem"
    text = _changed(r"registry\.example\.net \{", site, text)
    servers = " ".join(f"127.0.0.1:{node}" for node in nodes)
    text = _changed(r"(127\.0\.0\.1:870\d ?)+", f"{servers} ", text)
    text = _changed("/var/log/caddy", str(folder), text)
    whole = folder / "Caddyfile"
    whole.write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + text)
    return whole


def nginx_words(folder: Path, port: int, nodes: Sequence[int]) -> list[str]:
    tool, file = needs("nginx"), nginx_configuration(folder, port, nodes)
    return [tool, "-c", str(file), "-e", f"{folder}/errors"]


def caddy_words(folder: Path, port: int, nodes: Sequence[int]) -> list[str]:
    tool, file = needs("caddy"), caddy_configuration(folder, port, nodes)
    return [tool, "run", "--adapter", "caddyfile", "--config", str(file)]


def homes(folder: Path) -> dict[str, str]:
    """An environment for tools that would look for a home or a cluster."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": os.devnull}


def _changed(pattern: str, by: str, text: str) -> str:
    changed, count = re.subn(pattern, lambda _: by, text)
    assert count, f"there is no {pattern} any more"
    return changed


# Processes.


@contextlib.contextmanager
def started(words: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose output goes to pipes; it is killed at the end."""
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[bytes], is_it: Callable[[bytes], object]) -> bytes:
    """The first line on standard error that matches."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        if is_it(line):
            return line
        lines.append(line)
    raise AssertionError(b"".join(lines).decode())
