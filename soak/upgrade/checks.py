"""The checks of an upgrade: each takes releases and a folder, and fails with UpgradeBroken."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from soak.upgrade.releases import Release, UpgradeBroken

_SECONDS = 60


def expect(seen: str, wanted: str) -> None:
    """Fail unless both texts are the same."""
    if seen != wanted:
        raise UpgradeBroken(f"{seen[-500:]!r} was seen, not {wanted[-500:]!r}")


def client_and_server(client: Release, server: Release, folder: Path) -> None:
    """The command line and the library of *client* on a server of *server*."""
    home = folder / "client"
    with server.serving(folder / "server", "--listen", "ws://127.0.0.1:0") as url:
        expect(client.run(home, "run", url, "--", "tr", "a-z", "A-Z", stdin="hello\n"), "HELLO\n")
        client.run(home, "run", url, "--", "sh", "-c", "exit 7", status=7)
        (home / "here").write_bytes(os.urandom(5_000_000))
        client.run(home, "cp", "here", f"{url}:{home}/there")
        client.run(home, "cp", f"{url}:{home}/there", "back")
        if (home / "here").read_bytes() != (home / "back").read_bytes():
            raise UpgradeBroken("a copied file has other bytes")
        expect(client.probe(home, url), "ok\n")


def detached(starter: Release, reader: Release, server: Release, folder: Path) -> None:
    """What one release of the client has detached, another one reads and ends."""
    home = folder / "client"
    with server.serving(folder / "server", "--listen", "ws://127.0.0.1:0") as url:
        script = "echo started; exec sleep 600"
        started = starter.run(home, "run", "--detach", url, "--", "sh", "-c", script)
        job = started.split()[-1]
        _until(lambda: "started" in reader.run(home, "logs", job), "its output")
        reader.run(home, "kill", "-s", "KILL", job)
        _until(lambda: "running" not in reader.run(home, "ps"), "its end")


def registry(node: Release, executor: Release, harness: Release, folder: Path) -> None:
    """An executor and a harness meet at a registry, each of a release of its own."""
    home = folder / "registry"
    state = ("--state", folder / "registry.sqlite3")
    listening = ("registry", "--listen", "ws://127.0.0.1:0", *state)
    with node.serving(home, *listening) as url:
        enrol, use = folder / "enrol.token", folder / "use.token"
        create = ("registry", "token", "create")
        enrol.write_text(node.run(home, *create, "enrol", "box", "--env", "box", *state))
        use.write_text(node.run(home, *create, "harness", "me", "--env", "box", *state))
        enrol.chmod(0o600)
        use.chmod(0o600)
        serve = ("--remote", url, "--environment-id", "box", "--registry-token-file", enrol)
        with executor.serving(folder / "executor", *serve, prints_url=False):
            _reach(harness, folder / "harness", use, f"noise+{url.replace('ws://', 'http://')}/box")


def registry_state(before: Release, after: Release, folder: Path) -> None:
    """Tokens that one release of a registry has made are good at another one with its file."""
    state = ("--state", folder / "registry.sqlite3")
    made = before.run(folder, "registry", "token", "create", "harness", "me", *state)
    assert made.strip()
    listed = after.run(folder, "registry", "token", "list", *state)
    if "me" not in listed:
        raise UpgradeBroken(f"the token is not listed: {listed!r}")
    with after.serving(folder, "registry", "--listen", "ws://127.0.0.1:0", *state) as url:
        if not url.startswith("http://"):
            raise UpgradeBroken(f"the registry printed {url!r}")


def durable(before: Release, after: Release, client: Release, folder: Path) -> None:
    """A job outlives the upgrade of its server: the next one reads the journal and its keeper."""
    home, state = folder / "client", folder / "state"
    listening = ("--listen", f"unix://{folder}/socket", "--state", state)
    url = f"unix://{folder}/socket"
    go = folder / "go"
    script = f"echo before; until [ -e {go} ]; do sleep 0.2; done; echo after; exit 5"
    try:
        with before.serving(folder / "server", *listening):
            started = client.run(home, "run", "--detach", url, "--", "sh", "-c", script)
            job = started.split()[-1]
            _until(lambda: "before" in client.run(home, "logs", job), "output of the first server")
            keeper = _keeper(state)
        with after.serving(folder / "server", *listening):
            go.touch()
            client.run(home, "attach", job, status=5)
            expect(client.run(home, "logs", job), "before\nafter\n")
            if _keeper(state) != keeper:
                raise UpgradeBroken("the job has another keeper")
    finally:
        _end_keeper(state)


def _keeper(state: Path) -> int:
    """The process id of the keeper of *state*, which outlives servers."""
    return int((state / "keeper.lock").read_text())


def _end_keeper(state: Path) -> None:
    """End the keeper of *state* and, with it, its jobs."""
    with contextlib.suppress(OSError, ValueError):
        os.kill(_keeper(state), signal.SIGTERM)


def _reach(harness: Release, home: Path, token: Path, url: str) -> None:
    """Run a command on an executor, which may not have registered yet."""

    def reached() -> bool:
        try:
            said = harness.run(home, "run", "--token-file", token, url, "--", "echo", "met")
        except UpgradeBroken:
            return False
        expect(said, "met\n")
        return True

    _until(reached, "the executor")


def _until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not happened():
        if time.monotonic() > deadline:
            raise UpgradeBroken(f"{what} did not come within {_SECONDS} s")
        time.sleep(0.2)
