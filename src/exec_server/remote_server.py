"""A server that clients reach through a registry and its rendezvous; it does not listen."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from msgspec import UNSET

from exec_server.audit.audit_file import AuditLines
from exec_server.errors import ConfigurationError
from exec_server.remote.authorized_harnesses import AuthorizedHarnesses
from exec_server.remote.credentials.credentials import BearerToken
from exec_server.remote.credentials.registry_auth import find_credentials
from exec_server.remote.executor.executor import Executor
from exec_server.remote.executor.executor_socket import Serve
from exec_server.remote.executor.executor_states import ExecutorState, OnState
from exec_server.remote.executor.forward import Forwarder
from exec_server.remote.executor.refused_harnesses import RefusedHarnesses
from exec_server.remote.executor.relays import NoiseRelay, PlaintextRelay, Relay, noise_output
from exec_server.remote.registry_client import Registry
from exec_server.remote.registry_http import Http
from exec_server.remote.remote_config import RemoteEnvironmentConfig
from exec_server.server.sandbox_info import SandboxTrial
from exec_server.server.server import ExecServer
from exec_server.server.server_audit import ServerAudit
from exec_server.server.serving import tell_farewell
from exec_server.version import VERSION

if TYPE_CHECKING:
    from exec_server.recording.recorder import TerminalRecorder


def _ignore_state(_state: ExecutorState) -> None: ...


async def run_remote_environment(
    config: RemoteEnvironmentConfig,
    *,
    proxy_private_ips_via_upstream: bool = False,
    environ: Mapping[str, str] = os.environ,
    on_state: OnState = _ignore_state,
    state_directory: Path | None = None,
    audit: ServerAudit | None = None,
    stream_allow: Sequence[str] = (),
    recorder: TerminalRecorder | None = None,
    on_stopped: Callable[[str], None] | None = None,
) -> None:
    """Serve an environment until cancelled, which ends everything that was started.

    With a *state_directory*, durable processes go on, and the next executor on the same directory
    has the same sessions; *on_stopped* is then called with a text for a person. A client can stop
    the executor, too.

    *on_state* is called with each new state: `serving`, `lost`, `back` and `replaced`. With *audit*
    each request that does something has a line in its file, which the caller closes. The
    *recorder*, which the caller closes, too, records terminals. *stream_allow* are rules of
    `--stream-allow`.

    Raises RegistryError if the registry refuses the executor, now or later, and ConfigurationError
    for a wrong configuration. While the rendezvous cannot be reached, it is dialled again.
    """
    core = ExecServer(
        limits=noise_output(config.limits) if config.relay == "noise" else config.limits,
        proxy_private_ips_via_upstream=proxy_private_ips_via_upstream,
        state_directory=state_directory,
        audit=audit,
        stream_allow=stream_allow,
        recorder=recorder,
    )
    lines = None if audit is None else audit.lines
    try:
        if audit is not None:
            audit.started(f"serves {config.environment_id} through {config.registry_url}")
        await core.restore()
        core.prepare()
        running = asyncio.ensure_future(
            _run(
                config,
                core.serve,
                environ,
                _own_facts,
                on_state,
                holds_sessions=lambda: core.holds_sessions,
                lines=lines,
            )
        )
        await _until_stopped(running, core.stop_request())
    finally:
        await core.stop()
        if audit is not None:
            audit.stopped()
        tell_farewell(core, on_stopped)


async def _until_stopped(running: asyncio.Task[NoReturn], stopped: asyncio.Future[None]) -> None:
    """Wait until a client stops the executor; raises what *running* raises."""
    try:
        await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait((running,))
    if not running.cancelled():
        running.result()


async def run_forward(
    config: RemoteEnvironmentConfig,
    connect_url: str,
    *,
    environ: Mapping[str, str] = os.environ,
    on_state: OnState = _ignore_state,
    lines: AuditLines | None = None,
) -> NoReturn:
    """Serve an environment by a WebSocket server that runs already; each stream gets a socket."""
    forwarder = Forwarder(connect_url, limits=config.limits)
    try:
        # The server may be another program, and on another machine.
        await _run(config, forwarder.serve, environ, _no_facts, on_state, lines=lines)
    finally:
        await forwarder.stop()


async def _own_facts() -> dict[str, str]:
    """Return what the registry shows about this server: version, platform and sandbox."""
    facts = {"version": VERSION, "platform": f"{sys.platform} {platform.machine()}"}
    sandbox = await SandboxTrial().found()
    return facts if sandbox is UNSET else {**facts, "sandbox": sandbox.rung}


async def _no_facts() -> dict[str, str]:
    return {}


async def _run(
    config: RemoteEnvironmentConfig,
    serve: Serve,
    environ: Mapping[str, str],
    facts: Callable[[], Awaitable[dict[str, str]]],
    on_state: OnState,
    *,
    holds_sessions: Callable[[], bool] = lambda: False,
    lines: AuditLines | None = None,
) -> NoReturn:
    """*lines* get the harnesses that are refused, unless the configuration names another file."""
    own = None if config.audit_log is None else AuditLines(str(config.audit_log))
    refused = RefusedHarnesses(config.environment_id, lines=own or lines, limits=config.limits)
    http = Http(limits=config.limits)
    try:
        relay = await _relay(config, http, environ, facts, refused)
        executor = Executor(
            relay,
            serve=serve,
            holds_sessions=holds_sessions,
            limits=config.limits,
            environ=environ,
            on_state=on_state,
        )
        await executor.run()
    finally:
        refused.close()
        if own is not None:
            own.close()
        await http.close()


async def _relay(
    config: RemoteEnvironmentConfig,
    http: Http,
    environ: Mapping[str, str],
    facts: Callable[[], Awaitable[dict[str, str]]],
    refused: RefusedHarnesses,
) -> Relay:
    limits = config.limits
    credentials = config.credentials or await find_credentials(
        environ, http=http, uses_agent_identity=config.uses_agent_identity, limits=limits
    )
    # A registry token is for our own registry. Other registries only get what Codex sends.
    is_ours = isinstance(credentials, BearerToken) and config.relay == "noise"
    if config.labels and not is_ours:
        raise ConfigurationError("labels need an exec-server registry and one of its tokens")
    authorized = _authorized(config)
    registry = Registry(
        config.registry_url, config.environment_id, credentials, http=http, limits=limits
    )
    if config.relay == "plaintext":
        kind = "executor" if config.is_executor_id else "environment"
        return PlaintextRelay(registry, kind=kind, limits=limits)
    told = {**await facts(), "labels": dict(config.labels)} if is_ours else None
    return NoiseRelay(
        registry,
        identity=config.identity,
        facts=told,
        authorized=authorized,
        refused=refused,
        limits=limits,
    )


def _authorized(config: RemoteEnvironmentConfig) -> AuthorizedHarnesses | None:
    if config.authorized_harnesses is None:
        return None
    if config.relay == "plaintext":
        raise ConfigurationError(
            "the plaintext relay has no keys: --authorized-harness needs --relay noise"
        )
    authorized = AuthorizedHarnesses(config.authorized_harnesses)
    authorized.check()
    return authorized


# The older names of the two.
RemoteExecutorConfig = RemoteEnvironmentConfig
run_remote_executor = run_remote_environment
