"""The deployment files, checked by their own tools if these are installed."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from exec_server.cli.registry.registry_command import serve_parser
from exec_server.cli.serve.serve_options import parse_serve
from exec_server.discovery.yaml_text import parse
from exec_server.limits import DEFAULT_LIMITS, KIB, MIB
from exec_server.version import VERSION
from tests.requirements import requirement
from tests.support.certificates import make_certificates
from tests.support.deployed import (
    DEPLOY,
    PROGRAM,
    caddy_configuration,
    homes,
    manifests,
    needs,
    nginx_words,
    run,
    unit_text,
    unit_words,
)
from tests.support.ports import free_ports
from tests.support.servers import ROOT

NODE, NODES, EXECUTOR, LISTENER = (
    "exec-server-registry.service",
    "exec-server-registry@.service",
    "exec-server@.service",
    "exec-server.service",
)
# The highest exposure of each unit, out of 100. An executor runs commands of clients.
EXPOSURES = {NODE: 15, NODES: 15, EXECUTOR: 55, LISTENER: 55}
KUSTOMIZED = {"base": 5, "cluster": 6}
# The memory of an idle executor (docs/registry.md).
EXECUTOR_BYTES = 30 * KIB


# systemd


@requirement("hub/deploy")
@pytest.mark.parametrize("unit", EXPOSURES)
def test_systemd_understands_the_unit(unit, tmp_path):
    tool = needs("systemd-analyze")
    file = tmp_path / unit
    # The tool checks that the program exists.
    file.write_text(unit_text(unit).replace(PROGRAM, "/bin/true"))
    assert run(tool, "verify", "--man=no", str(file)).strip() == ""


@requirement("hub/deploy:units")
@pytest.mark.parametrize("unit", EXPOSURES)
def test_systemd_finds_the_unit_confined(unit):
    tool = needs("systemd-analyze")
    if "--offline" not in run(tool, "--help"):
        pytest.skip("this systemd cannot look at units that are not loaded")
    threshold = f"--threshold={EXPOSURES[unit]}"
    run(tool, "security", "--offline=true", threshold, str(DEPLOY / "systemd" / unit))


@requirement("hub/deploy:units")
def test_what_the_units_run_is_understood():
    for unit in (NODE, NODES):
        word, *words = unit_words(unit)
        assert word == "registry" and serve_parser().parse_args(words).behind_proxy
    values = serve_parser().parse_args(unit_words(NODES)[1:])
    assert (values.listen, values.bus) == ("ws://${LISTEN}:%i", "${BUS}")
    credential = "LoadCredential=nats.creds:"
    assert values.bus_credentials == "%d/nats.creds" and credential in unit_text(NODES)
    remote = parse_serve(unit_words(EXECUTOR), {}).remote
    assert (remote.url, remote.environment_id) == ("${REGISTRY_URL}", "%i")
    # A token for this name alone, which is not in the environment of any process.
    assert remote.registry_token_file == "%d/registry-token"
    assert "LoadCredential=registry-token:/etc/exec-server/%i.token" in unit_text(EXECUTOR)
    assert "EXEC_SERVER_REGISTRY_TOKEN" not in unit_text(EXECUTOR)
    listener = parse_serve(unit_words(LISTENER), {})
    assert listener.listen == "ws://${LISTEN}"
    assert "LoadCredential=token:" in unit_text(LISTENER)


@requirement("hub/deploy:durable")
@pytest.mark.parametrize("unit", [EXECUTOR, LISTENER])
def test_a_restart_of_the_unit_leaves_durable_jobs_alone(unit):
    settings = re.findall(r"^(\w+)=(.*)$", unit_text(unit), flags=re.M)
    assert dict(settings)["KillMode"] == "process"
    # A kill for want of memory in a job would stop the whole unit.
    assert dict(settings)["OOMPolicy"] == "continue"
    # systemd removes these directories whenever the unit stops.
    assert not {"PrivateTmp", "RuntimeDirectory", "DynamicUser"} & dict(settings).keys()
    state = parse_serve(unit_words(unit), {}).state
    folder = str(state).replace("%S", "/var/lib").removeprefix("/var/lib/")
    assert folder.startswith(dict(settings)["StateDirectory"])


@requirement("hub/deploy:units")
def test_no_unit_has_a_secret_on_its_command_line():
    for unit in EXPOSURES:
        used = set(re.findall(r"\$\{?(\w+)", " ".join(unit_words(unit))))
        assert used <= {"LISTEN", "PUBLIC_URL", "BUS", "REGISTRY_URL"}
        # Each variable has a value, or the unit's comment names it.
        assert used <= set(re.findall(r"^(?:#   |Environment=)(\w+)=", unit_text(unit), flags=re.M))


@requirement("hub/deploy:units")
def test_a_registry_is_confined_wherever_it_runs_and_apart_from_executors():
    confinements = {
        re.split("^(?=CapabilityBoundingSet)", unit_text(unit), flags=re.M)[1]
        for unit in (NODE, NODES)
    }
    assert len(confinements) == 1
    users = {unit: re.findall("^User=(.*)$", unit_text(unit), flags=re.M) for unit in EXPOSURES}
    assert users[NODE] == users[NODES] != users[EXECUTOR] == users[LISTENER]
    made = re.findall(r"^u (\S+)", unit_text("exec-server.sysusers.conf"), flags=re.M)
    assert {user for (user,) in users.values()} == set(made)


# Kubernetes


def fits_together(objects: list[Any]) -> Any:
    """Check that all references exist, and return the deployment."""
    found = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    assert len(found) == len(objects)
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]
    labels = pod["metadata"]["labels"]
    ports = {port["name"] for each in pod["spec"]["containers"] for port in each["ports"]}
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    for each in pod["spec"].get("topologySpreadConstraints", ()):
        assert each["labelSelector"]["matchLabels"] == labels
    for (kind, _), each in found.items():
        spec = each.get("spec", {})
        if kind == "Service":
            assert spec["selector"] == labels
            assert {port["targetPort"] for port in spec["ports"]} <= ports
        elif kind == "NetworkPolicy":
            assert spec["podSelector"]["matchLabels"] == labels
            for rule in spec.get("ingress", ()):
                assert {port["port"] for port in rule["ports"]} <= ports
        elif kind == "PodDisruptionBudget":
            assert spec["selector"]["matchLabels"] == labels
        elif kind == "Ingress":
            for path in (path for rule in spec["rules"] for path in rule["http"]["paths"]):
                service = found["Service", path["backend"]["service"]["name"]]
                names = {port["name"] for port in service["spec"]["ports"]}
                assert path["backend"]["service"]["port"]["name"] in names
    for volume in pod["spec"]["volumes"]:
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            assert ("PersistentVolumeClaim", claim) in found
    return deployment


def check_container(pod: Any) -> None:
    """It runs as the image does, its probes and mounts exist, and its memory suffices."""
    (container,) = pod["containers"]
    word, *words = container["args"]
    values = serve_parser().parse_args(words)
    (port,) = container["ports"]
    assert word == "registry" and values.behind_proxy
    assert values.listen.endswith(f":{port['containerPort']}")
    for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}
    assert pod["securityContext"]["runAsUser"] == container_user()
    assert container["image"] == f"exec-server:{VERSION}"
    limits = DEFAULT_LIMITS
    most = limits.hub_sockets * EXECUTOR_BYTES + limits.hub_total_bytes + limits.bus_waiting_bytes
    assert int(container["resources"]["limits"]["memory"].removesuffix("Mi")) * MIB > most
    # The sleep before the signal, then the end of all sockets.
    before = container.get("lifecycle", {}).get("preStop", {"exec": {"command": ["sleep", "0"]}})
    needed = float(before["exec"]["command"][1]) + 3 * limits.close_timeout
    assert float(pod["terminationGracePeriodSeconds"]) > 2 * needed


def check_secrets_of_cluster(pod: Any) -> None:
    """Passwords come from secrets, and the files in the arguments are mounted."""
    (container,) = pod["containers"]
    values = serve_parser().parse_args(container["args"][1:])
    # The variables have everything else about the database.
    assert values.state == "postgresql://" and "@" not in values.bus
    variables = {each["name"]: each for each in container["env"]}
    assert {"PGHOST", "PGDATABASE", "PGUSER", "PGPASSWORD"} <= set(variables)
    assert "secretKeyRef" in variables["PGPASSWORD"]["valueFrom"]
    (mount,) = container["volumeMounts"]
    (volume,) = pod["volumes"]
    items = [item for each in volume["projected"]["sources"] for item in each["secret"]["items"]]
    files = {f"{mount['mountPath']}/{item['path']}" for item in items}
    assert files == {values.bus_credentials, variables["PGSSLROOTCERT"]["value"]}


@requirement("hub/deploy:kubernetes")
def test_the_manifests_of_one_node_fit_together():
    files = manifests("base")
    (kustomization,) = files.pop("kustomization.yaml")
    assert set(kustomization["resources"]) == set(files)
    deployment = fits_together([each for parts in files.values() for each in parts])
    assert deployment["spec"]["strategy"]["type"] == "Recreate"
    check_container(deployment["spec"]["template"]["spec"])


@requirement("hub/deploy:kubernetes")
def test_the_overlay_of_several_nodes_changes_what_is_there():
    base = [each for parts in manifests("base").values() for each in parts if "metadata" in each]
    named = {(each["kind"], each["metadata"]["name"]) for each in base}
    files = manifests("cluster")
    (kustomization,) = files.pop("kustomization.yaml")
    patches = {each["path"] for each in kustomization["patches"]}
    assert {*kustomization["resources"], *patches} == {"../base", *files}
    for path in patches:
        assert all((each["kind"], each["metadata"]["name"]) in named for each in files[path])


@requirement("hub/deploy:kubernetes")
@pytest.mark.parametrize("folder", KUSTOMIZED)
def test_what_kustomize_builds_fits_together_and_has_the_right_shape(folder, tmp_path):
    built = kustomized(folder, tmp_path)
    objects = [parse(text) for text in re.split("^---$", built, flags=re.M)]
    assert len(objects) == KUSTOMIZED[folder]
    deployment = fits_together(objects)
    pod = deployment["spec"]["template"]["spec"]
    check_container(pod)
    if folder == "cluster":
        assert int(deployment["spec"]["replicas"]) >= 3
        check_secrets_of_cluster(pod)


@requirement("hub/deploy")
@pytest.mark.parametrize("folder", KUSTOMIZED)
def test_kubernetes_knows_every_field_of_the_manifests(folder, tmp_path):
    tool = needs("kubernetes-validate")
    file = tmp_path / "built.yaml"
    file.write_text(kustomized(folder, tmp_path))
    run(tool, "--strict", str(file))


def kustomized(folder: str, home: Path) -> str:
    words = ("kustomize", str(DEPLOY / "kubernetes" / folder))
    return run(needs("kubectl"), *words, env=homes(home))


# Proxies


@requirement("hub/deploy")
def test_nginx_understands_its_snippet(tmp_path):
    make_certificates(tmp_path)
    (port,) = free_ports(1)
    assert run(*nginx_words(tmp_path, port, [1, 2]), "-t", "-q") == ""


@requirement("hub/deploy")
def test_caddy_understands_its_snippet(tmp_path):
    tool = needs("caddy")
    make_certificates(tmp_path)
    file = str(caddy_configuration(tmp_path, 1, [1, 2]))
    run(tool, "validate", "--adapter", "caddyfile", "--config", file, env=homes(tmp_path))


@requirement("hub/deploy")
def test_a_proxy_outlasts_the_pings_of_a_socket():
    text = (DEPLOY / "nginx" / "registry.conf").read_text()
    _, _, rendezvous = text.partition("location /rendezvous/")
    for minutes in re.findall(r"proxy_(?:read|send)_timeout (\d+)m;", rendezvous):
        assert int(minutes) * 60 > 2 * DEFAULT_LIMITS.ping_interval
    (ingress, _) = manifests("base")["ingress.yaml"]
    for kind in ("read", "send"):
        name = f"nginx.ingress.kubernetes.io/proxy-{kind}-timeout"
        assert int(ingress["metadata"]["annotations"][name]) > 2 * DEFAULT_LIMITS.ping_interval


# The container


def container_lines(instruction: str) -> list[str]:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    return re.findall(f"^{instruction} (.*)$", text, flags=re.M)


def container_user() -> str:
    (user,) = container_lines("USER")
    return user


@requirement("hub/deploy:container")
def test_the_container_is_built_from_files_that_are_there():
    for line in container_lines("COPY"):
        *sources, _ = line.split()
        if not line.startswith("--from"):
            assert all((ROOT / source).exists() for source in sources)
    assert int(container_user()) > 0
    assert [json.loads(line) for line in container_lines("ENTRYPOINT")] == [["exec-server"]]
    (command,) = container_lines("CMD")
    word, *words = json.loads(command)
    assert word == "registry" and serve_parser().parse_args(words).behind_proxy
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"exec-server\[(.*?)\]", " ".join(container_lines("RUN")))
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    settings = " ".join((*container_lines("ENV"), *container_lines("ARG")))
    assert not re.search("TOKEN|PASSWORD|SECRET|KEY", settings)


@requirement("hub/deploy:container")
def test_hadolint_finds_nothing_in_the_container():
    assert run(needs("hadolint"), str(DEPLOY / "Containerfile")) == ""
