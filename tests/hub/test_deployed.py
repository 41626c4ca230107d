"""The files of deploy/ in use: nodes behind a proxy, and the package without its sources."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import ssl
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from exec_server.relay.keys import SEED_BYTES, KeyPair
from tests.hub.conftest import PROFILE
from tests.requirements import requirement
from tests.support.certificates import make_certificates
from tests.support.deployed import (
    caddy_words,
    expanded,
    homes,
    nginx_words,
    run,
    said,
    started,
    unit_words,
)
from tests.support.leaks import eventually
from tests.support.nats import NatsCluster
from tests.support.ports import free_ports
from tests.support.postgres import LOCKED, PASSWORD, Postgres
from tests.support.servers import OURS, ROOT, start_server

pytestmark = pytest.mark.one_loop

PROXIES = {"nginx": nginx_words, "caddy": caddy_words}
COUNTED = b"".join(b"%d\n" % number for number in range(1, 3001))


class People:
    """An executor and its clients, as processes, at the registry *url*."""

    def __init__(
        self, folder: Path, state: str, env: dict[str, str], program: Sequence[str] = OURS
    ) -> None:
        self._folder = folder
        self._program = program
        self._state = state
        # Their state stays in the folder, and they find no other registry or home.
        self.env = {**os.environ, **env, "XDG_STATE_HOME": str(folder / "people")}

    def token(self, kind: str) -> str:
        words = ["registry", "token", "create", kind, "tester", "--state", self._state]
        made = subprocess.run(
            [*self._program, *words],
            env=self.env,
            cwd=self._folder,
            stdout=subprocess.PIPE,
            check=True,
            timeout=30,
        )
        file = self._folder / f"{kind}.token"
        file.write_bytes(made.stdout)
        file.chmod(0o600)
        return str(file)

    @contextlib.contextmanager
    def executor(self, url: str) -> Iterator[None]:
        """An executor, which is connected when the block begins."""
        words = ["--remote", url, "--environment-id", "build", "--log-level", "info"]
        words += ["--registry-token-file", self.token("enrol")]
        with started([*self._program, *words], env=self.env, cwd=self._folder) as process:
            said(process, lambda line: b"connected to the rendezvous" in line)
            yield

    def harness(
        self, url: str, script: str
    ) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        url = f"noise+{url}/build"
        words = ["run", "--token-file", self.token("harness"), url, "--", "sh", "-c", script]
        return started([*self._program, *words], env=self.env, cwd=self._folder)


def answers(
    url: str, authority: Path, token_file: str | None = None, body: Any = None
) -> bytes | None:
    """The body for a client that forges its address; None if the port is closed."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers={"X-Forwarded-For": "203.0.113.9"})
    if token_file is not None:
        token = Path(token_file).read_text().strip()
        request.add_header("Authorization", f"Bearer {token}")
    trust = ssl.create_default_context(cafile=authority)
    try:
        with urllib.request.urlopen(request, timeout=10, context=trust) as response:
            answer: bytes = response.read()
            return answer
    except urllib.error.HTTPError as exc:
        raise AssertionError(f"{url}: {exc.code}") from exc
    except OSError:
        return None


@contextlib.contextmanager
def nodes_of_the_unit(
    ports: Sequence[int], public_url: str, bus: str, env: dict[str, str]
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Nodes as systemd starts them, except that this NATS needs no credentials."""
    words = unit_words("exec-server-registry@.service")
    at = words.index("--bus-credentials")
    del words[at : at + 2]
    variables = {"LISTEN": "127.0.0.1", "PUBLIC_URL": public_url, "BUS": bus}
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                start_server(*expanded(words, str(port), variables), env={**variables, **env})
            ).process
            for port in ports
        ]


def database_variables(server: Postgres) -> dict[str, str]:
    """The variables for a new database whose owner needs a password."""
    name = server.create_database().rpartition("/")[2]
    server.execute(f"ALTER DATABASE {name} OWNER TO {LOCKED}")
    return {
        "PGHOST": "127.0.0.1",
        "PGPORT": str(server.port),
        "PGDATABASE": name,
        "PGUSER": LOCKED,
        "PGPASSWORD": PASSWORD,
    }


@requirement("hub/deploy:proxies")
@pytest.mark.parametrize("proxy", PROXIES)
async def test_a_node_behind_the_proxy_may_die(proxy, tmp_path, request):
    front, *ports = free_ports(3)
    authority = make_certificates(tmp_path).authority
    words = PROXIES[proxy](tmp_path, front, ports)
    database = database_variables(request.getfixturevalue("postgres_server"))
    url = f"https://127.0.0.1:{front}"
    people = People(tmp_path, "postgresql://", {**database, "SSL_CERT_FILE": str(authority)})
    with contextlib.ExitStack() as stack:
        nats = stack.enter_context(NatsCluster(tmp_path))
        await nats.ready()
        nodes = stack.enter_context(nodes_of_the_unit(ports, url, nats.url, database))
        stack.enter_context(started(words, env=homes(tmp_path)))
        await eventually(lambda: answers(f"{url}/readyz", authority))
        stack.enter_context(people.executor(url))
        process = stack.enter_context(people.harness(url, "echo begun; read x; seq 1 3000"))
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n", process.communicate()
        nodes[0].send_signal(signal.SIGKILL)
        nodes[0].wait()
        # Any node may be next: no client notices that one is missing.
        assert all(answers(f"{url}/healthz", authority) == b"ok\n" for _ in range(4))
        output, errors = process.communicate(b"go\n", timeout=40)
        assert (process.returncode, output) == (0, COUNTED), errors

        body = {
            "security_profile": PROFILE,
            "executor_public_key": KeyPair(os.urandom(SEED_BYTES)).public.to_object(),
        }
        path = "/cloud/environment/liar/register"
        assert answers(url + path, authority, people.token("enrol"), body)
        path = "/api/events?environment=liar"
        events = json.loads(answers(url + path, authority, people.token("observer")) or b"")
        assert [each["address"] for each in events] == ["127.0.0.1"]
    log = (tmp_path / "registry.log").read_text()
    assert "/rendezvous/build" in log and "sig" not in log and "?" not in log


@requirement("hub/deploy:package")
def test_the_package_alone_is_a_registry_and_both_its_ends(tmp_path):
    for module in ("hatchling", "pip"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    wheel = build_wheel(tmp_path)
    home = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", str(home))
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python")]
    run(*pip, "install", "--no-index", "--no-deps", "--no-compile", str(wheel))
    program = [str(home / "bin" / "exec-server")]
    # The dependencies are those of the development environment, without our editable install.
    env = {"PYTHONPATH": sysconfig.get_path("platlib")}
    where = [str(home / "bin" / "python"), "-c", "import exec_server; print(exec_server.__file__)"]
    assert run(*where, env=env, cwd=tmp_path).startswith(str(home))

    state = str(tmp_path / "state")
    people = People(tmp_path, state, env, program)
    words = ["registry", "--state", state]
    with (
        start_server(*words, command=program, env=env, cwd=str(tmp_path)) as server,
        people.executor(server.url),
        people.harness(server.url, "echo met") as harness,
    ):
        assert harness.communicate(timeout=30)[0] == b"met\n"


def build_wheel(folder: Path) -> Path:
    """Build a wheel, and check that it has all files of the package."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    files = {path for path in (ROOT / "src" / "exec_server").rglob("*") if path.is_file()}
    ours = {str(path.relative_to(ROOT / "src")) for path in files if path.suffix != ".pyc"}
    assert ours <= set(zipfile.ZipFile(wheel).namelist())
    return wheel
