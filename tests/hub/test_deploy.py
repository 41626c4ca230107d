"""The deployment files, by their own tools where those are here."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from exec_server.cli.registry import serve_parser
from exec_server.cli.serve_options import parse_serve
from exec_server.discovery.yaml_subset import parse
from tests.requirements import requirement
from tests.support.certificates import make_certificates

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
PROGRAM = "/usr/local/bin/exec-server"


def run(*words: str, **options: Any) -> str:
    """What a tool says; it has to be content."""
    done = subprocess.run(words, capture_output=True, timeout=60, **options)
    said: bytes = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said.decode()


def needs(tool: str) -> str:
    found = shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        pytest.skip(f"{tool} is not installed")
    return found


def manifests() -> list[Any]:
    texts = [path.read_text() for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))]
    return [parse(document) for text in texts for document in re.split("^---$", text, flags=re.M)]


def unit_words(unit: str) -> list[str]:
    text = (DEPLOY / "systemd" / unit).read_text().replace("\\\n", " ")
    (line,) = re.findall("^ExecStart=(.*)$", text, flags=re.M)
    program, *words = shlex.split(line)
    assert program == PROGRAM
    return words


@requirement("hub/deploy")
def test_systemd_understands_the_units(tmp_path):
    tool = needs("systemd-analyze")
    for name in ("exec-server-registry.service", "exec-server@.service"):
        text = (DEPLOY / "systemd" / name).read_text()
        unit = tmp_path / name
        # It wants to see the program.
        unit.write_text(text.replace(PROGRAM, "/bin/true"))
        assert run(tool, "verify", "--man=no", str(unit)).strip() == ""


@requirement("hub/deploy")
def test_what_the_units_run_is_understood():
    registry = unit_words("exec-server-registry.service")
    assert registry[0] == "registry"
    assert serve_parser().parse_args(registry[1:]).behind_proxy
    remote = parse_serve(unit_words("exec-server@.service"), {}).remote
    assert (remote.url, remote.environment_id) == ("${REGISTRY_URL}", "%i")


@requirement("hub/deploy")
def test_the_manifests_fit_together():
    found = {each["kind"]: each for each in manifests()}
    assert set(found) == {
        *("Kustomization", "PersistentVolumeClaim", "Deployment", "Service"),
        *("Ingress", "NetworkPolicy"),
    }
    files = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")}
    assert {*found["Kustomization"]["resources"], "kustomization.yaml"} == files
    pod = found["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    for selector in (
        found["Deployment"]["spec"]["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector == labels
    (container,) = pod["spec"]["containers"]
    (port,) = container["ports"]
    words = container["args"]
    assert words[0] == "registry"
    values = serve_parser().parse_args(words[1:])
    assert values.listen.endswith(f":{port['containerPort']}") and values.behind_proxy
    (claim,) = (each["persistentVolumeClaim"]["claimName"] for each in pod["spec"]["volumes"])
    assert claim == found["PersistentVolumeClaim"]["metadata"]["name"]


@requirement("hub/deploy")
def test_kustomize_builds_the_manifests():
    # Nothing of a cluster is looked for.
    variables = {"PATH": os.environ["PATH"], "KUBECONFIG": os.devnull, "HOME": os.devnull}
    built = run(needs("kubectl"), "kustomize", str(DEPLOY / "kubernetes"), env=variables)
    assert built.count("\nkind: ") == 5


@requirement("hub/deploy")
def test_nginx_understands_its_snippet(tmp_path):
    tool = needs("nginx")
    make_certificates(tmp_path)
    both = str(tmp_path / "server.pem")
    snippet = (DEPLOY / "nginx" / "registry.conf").read_text()
    snippet = snippet.replace("/etc/nginx/registry.crt", both)
    snippet = snippet.replace("/etc/nginx/registry.key", both)
    snippet = snippet.replace("/var/log/nginx/registry.log", str(tmp_path / "log"))
    whole = tmp_path / "nginx.conf"
    places = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    errors = str(tmp_path / "errors")
    whole.write_text(
        f"pid {tmp_path}/pid; error_log {errors}; events {{}} http {{ {places} {snippet} }}"
    )
    run(tool, "-t", "-q", "-c", str(whole), "-e", errors)


@requirement("hub/deploy")
def test_caddy_understands_its_snippet(tmp_path):
    file = str(DEPLOY / "caddy" / "Caddyfile")
    homes = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    run(needs("caddy"), "validate", "--adapter", "caddyfile", "--config", file, env=homes)


@requirement("hub/deploy")
def test_the_container_is_built_from_files_that_are_there():
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    for line in re.findall("^COPY (?!--from)(.*)$", text, flags=re.M):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources)
    (command,) = re.findall("^CMD (.*)$", text, flags=re.M)
    word, *words = json.loads(command)
    assert word == "registry" and serve_parser().parse_args(words).behind_proxy
