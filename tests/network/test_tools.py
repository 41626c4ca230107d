"""curl, git and pip in a sandbox: they reach allowed hosts through the proxy, and no others."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import threading
import zipfile
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from exec_server import connect
from exec_server.protocol import network, process
from exec_server.protocol.sandbox import SandboxContext
from exec_server.sandbox.backends import HERE
from tests.requirements import requirement
from tests.support.proxied import wanted
from tests.support.sandbox_cases import ROOT_READ, at, context, entry, managed
from tests.support.wire import ENV, Finished, start_params

pytestmark = [
    pytest.mark.skipif(
        not HERE.bubblewrap_report.works, reason=f"{HERE.bubblewrap_report.obstacle}"
    ),
    pytest.mark.one_loop,
]
WHEEL = "tiny-1.0-py3-none-any.whl"
PIP = f"{sys.executable} -m pip --isolated --disable-pip-version-check download -q --no-deps"
# Two starts of an interpreter and pip must fit in this time, on a machine that has other work.
PATIENCE = 30.0


class SilentFiles(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextmanager
def files_at(folder):
    """Serve the files of *folder* over HTTP; return the port."""
    handler = partial(SilentFiles, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def workspace(tmp_path):
    """The only directory that a command may write to."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def repository(tmp_path):
    """A repository that can be cloned from plain files."""
    source = tmp_path / "source"
    git = ["git", "-C", str(source), "-c", "user.name=n", "-c", "user.email=e@x.org"]
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    (source / "file").write_text("content")
    for words in (["add", "file"], ["commit", "-q", "-m", "one"], ["update-server-info"]):
        subprocess.run([*git, *words], check=True)
    return source


@pytest.fixture
def index(tmp_path):
    """A package index with one package."""
    folder = tmp_path / "index" / "simple" / "tiny"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr("tiny.py", "")
        metadata = "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
        wheel.writestr("tiny-1.0.dist-info/METADATA", metadata)
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    (folder / "index.html").write_text(f"<a href='{WHEEL}'>{WHEEL}</a>")
    return tmp_path / "index"


def start(workspace, script, **proxy):
    """process/start of a shell that may write to *workspace* and reach its proxy."""
    permissions = managed(ROOT_READ, entry(at(f"file://{workspace}"), "write"), network="enabled")
    return start_params(
        "p",
        ["sh", "-c", script],
        cwd=f"file://{workspace}",
        env={**ENV, "HOME": str(workspace)},
        sandbox=context(permissions),
        enforceManagedNetwork=True,
        networkProxy=wanted(**proxy),
    )


async def ran(wire, params):
    """Return what a process printed, and the hosts that it was refused."""
    await wire.call("process/start", params)
    async with asyncio.timeout(PATIENCE):
        events = await wire.events_until_closed("p")
    reports = [e["params"] for e in events if e["method"] == "network/policyDecision"]
    done = Finished(events)
    assert done.exit_code == 0, done.stderr
    return done.stdout.decode(), {e["host"] for e in reports if e["decision"] == "deny"}


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
@requirement("network/enforced:only-the-proxy", "network/enforced:tools")
async def test_curl_fetches_through_the_proxy_and_not_from_elsewhere(wire, workspace, index):
    with files_at(str(index)) as port:
        script = (
            f"curl -sSf -m 10 -O http://127.0.0.1:{port}/simple/tiny/{WHEEL} && ls; "
            "curl -sf -m 10 http://wrong.invalid/ || echo refused"
        )
        params = start(workspace, script, domains={"127.0.0.1": "allow"})
        assert await ran(wire, params) == (f"{WHEEL}\nrefused\n", {"wrong.invalid"})


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
@requirement("network/enforced:only-the-proxy", "network/enforced:tools")
async def test_git_clones_through_the_proxy_and_not_from_elsewhere(wire, workspace, repository):
    with files_at(str(repository)) as port:
        script = (
            f"git clone -q http://127.0.0.1:{port}/.git copy && cat copy/file; "
            "git clone -q http://wrong.invalid/x other 2>/dev/null || echo refused"
        )
        params = start(workspace, script, domains={"127.0.0.1": "allow"})
        assert await ran(wire, params) == ("contentrefused\n", {"wrong.invalid"})


@requirement("network/enforced:tools", "network/policy:client")
async def test_pip_downloads_what_the_client_allows_and_not_from_elsewhere(
    server, workspace, index
):
    asked = []

    async def decide(question):
        asked.append(question.request.host)
        return question.request.host == "127.0.0.1"

    with files_at(str(index)) as port:
        here, wrong = f"http://127.0.0.1:{port}/simple", "http://wrong.invalid/simple"
        script = (
            f"{PIP} --proxy $HTTP_PROXY -d d -i {here} tiny && ls d; "
            f"{PIP} --proxy $HTTP_PROXY -d d --retries 0 -i {wrong} "
            "--trusted-host wrong.invalid tiny 2>/dev/null || echo refused"
        )
        # Addresses of this machine need an entry; if they are also under review, the entry is not
        # enough.
        rules = {"domains": {"127.0.0.1": "allow"}, "reviewDomains": ["127.0.0.1"]}
        wire_form = start(workspace, script, policyDecisionTimeoutMs=60_000, **rules)
        params = msgspec.convert(wire_form, process.StartParams, dec_hook=_decoded)
        told: list[network.PolicyDecisionEvent] = []
        async with (
            asyncio.timeout(PATIENCE),
            connect(server.url, on_policy_request=decide, on_policy_decision=told.append) as client,
        ):
            handle = await client.start_process(params)
            output = b"".join([chunk.data async for chunk in handle])
            assert await handle.wait() == 0
    assert output.decode() == f"{WHEEL}\nrefused\n"
    assert {*asked} == {"127.0.0.1", "wrong.invalid"}
    decided = {(event.host, event.decision, event.source) for event in told}
    assert decided == {("127.0.0.1", "allow", "decider"), ("wrong.invalid", "deny", "decider")}


def _decoded(kind, value):
    return SandboxContext(value) if kind is SandboxContext else kind(value)
