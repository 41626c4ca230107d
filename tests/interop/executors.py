"""Servers for Codex to run things on, ours and the reference, and the ways to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.columns import Column, Server
from tests.interop.model import PATIENCE
from tests.interop.tap import Tap, tapped
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.servers import OURS, ServerProcess, start_server

ENVIRONMENT = "remote"
# Only executors have it in their environment: a command that prints it runs there.
MARK = "INTEROP_EXECUTOR"


class Executor(NamedTuple):
    """A server that is there, and how Codex is told of it."""

    # Variables and `environments.toml` of the client.
    env: Mapping[str, str]
    environments: str | None = None
    # Present where the way to the server has one.
    process: ServerProcess | None = None
    tap: Tap | None = None
    line: FaultProxy | None = None

    def drop(self) -> None:
        """Lose the connection to the client."""
        if self.tap is not None:
            self.tap.cut()
        else:
            assert self.line is not None
            self.line.cut()


def environment(id_: str, **settings: Any) -> str:
    """One entry of `environments.toml`."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in {"id": id_, **settings}.items()]
    return "\n".join(["[[environments]]", *lines, ""])


def environments(*entries: str, default: str = ENVIRONMENT) -> str:
    return "\n".join([f'default = "{default}"', "include_local = false", *entries])


def command(server: Server, binary: Path) -> list[str]:
    """What starts a server; options go behind it."""
    if server == "reference":
        return [str(binary), "exec-server"]
    return OURS


def identity(server: Server, home: Path) -> dict[str, str]:
    """What a server has in its environment besides our own."""
    return {MARK: server, "HOME": str(home), "CODEX_HOME": str(home / ".codex")}


@contextlib.contextmanager
def listening(
    server: Server, binary: Path, home: Path, *options: str, **env: str
) -> Iterator[ServerProcess]:
    """A server on a port of its own."""
    marked = {**identity(server, home), **env}
    with start_server(
        *options, command=command(server, binary), env=marked, cwd=str(home)
    ) as running:
        yield running


@contextlib.asynccontextmanager
async def executor(
    column: Column, binary: Path, home: Path, registry: Callable[[], Registry]
) -> AsyncIterator[Executor]:
    """The server of *column*, reached the way that it says; *home* is its user's directory."""
    if column.way == "direct":
        with listening(column.server, binary, home) as running:
            async with tapped(running.url) as tap:
                yield Executor({"CODEX_EXEC_SERVER_URL": tap.url}, process=running, tap=tap)
    elif column.way == "stdio":
        yield Executor({}, over_stdio(column, binary, home))
    else:
        async with _behind(registry(), column, binary, home) as made:
            yield made


def over_stdio(column: Column, binary: Path, home: Path) -> str:
    """An `environments.toml` whose one environment is a program."""
    program, *args = command(column.server, binary)
    entry = environment(ENVIRONMENT, program=program, args=[*args, "--listen", "stdio"])
    pairs = identity(column.server, home).items()
    env = ", ".join(f"{name} = {json.dumps(value)}" for name, value in pairs)
    return environments(f"{entry}env = {{ {env} }}\n")


class Registry(NamedTuple):
    """Our registry, and tokens for both ends."""

    url: str
    enrol: str
    harness: str


@contextlib.contextmanager
def running_registry(folder: Path) -> Iterator[Registry]:
    """A registry on the loopback that keeps its state in *folder*."""
    state = ("--state", str(folder / "registry.sqlite3"))
    with start_server("registry", *state) as running:
        tokens = [_token(kind, *state) for kind in ("enrol", "harness")]
        yield Registry(running.url, *tokens)


def _token(kind: str, *state: str) -> str:
    words = [*OURS, "registry", "token", "create", *state, kind, "interop"]
    made = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE)
    return made.stdout.strip()


@contextlib.asynccontextmanager
async def _behind(
    registry: Registry, column: Column, binary: Path, home: Path
) -> AsyncIterator[Executor]:
    """The server of *column*, registered; the client comes through a line that can be cut."""
    name = f"env-{uuid.uuid4().hex}"
    async with fault_proxy(registry.url) as line, fault_proxy(registry.url) as watched:
        env = {
            "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": line.url.replace("ws:", "http:"),
            "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID": name,
            "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": registry.harness,
        }
        options = ("--remote", watched.url.replace("ws:", "http:"), "--environment-id", name)
        process = await asyncio.create_subprocess_exec(
            *command(column.server, binary),
            *options,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            cwd=home,
            env={
                **os.environ,
                **identity(column.server, home),
                "CODEX_API_KEY": registry.enrol,
            },
        )
        try:
            # It registers and then comes for good; until it is let in, Codex asks again.
            await watched.wait(lambda proxy: proxy.connections >= 2)
            yield Executor(env, line=line)
        finally:
            process.terminate()
            await process.wait()
