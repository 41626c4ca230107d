"""`exec-server --remote` and `exec-server forward`: serve an environment of a registry."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exec_server.cli.options import read_token_file
from exec_server.cli.secret_environment import environment
from exec_server.cli.serve.state_place import usable_state_directory
from exec_server.cli.standard_streams import say_farewell
from exec_server.errors import ConfigurationError
from exec_server.limits import Limits

if TYPE_CHECKING:
    from exec_server.cli.serve.serve_options import RemoteOptions, ServeOptions
    from exec_server.recording.recorder import TerminalRecorder
    from exec_server.relay.keys import KeyPair
    from exec_server.remote.credentials.credentials import Credentials
    from exec_server.remote.executor.executor_states import ExecutorState
    from exec_server.remote.remote_config import RemoteEnvironmentConfig
    from exec_server.server.server_audit import ServerAudit


async def serve_remote(
    options: ServeOptions,
    limits: Limits,
    audit: ServerAudit | None = None,
    recorder: TerminalRecorder | None = None,
) -> None:
    """Serve until cancelled, until the registry refuses, or until the end of standard input.

    Standard input counts only if the options say so.

    Raises ConfigurationError and RegistryError.
    """
    remote = options.remote
    _check(remote)
    token = _token(remote)
    if remote.executor_credential_stdin:
        await _with_pipe(options, limits, audit, recorder)
    elif remote.exit_on_stdin_close:
        await _first_of(_serve(options, limits, token, audit, recorder), _input_ends())
    else:
        await _serve(options, limits, token, audit, recorder)


def _check(remote: RemoteOptions) -> None:
    if remote.environment_id is None or not remote.environment_id.strip():
        raise ConfigurationError("--environment-id must not be blank")
    if remote.transport == "direct":
        raise ConfigurationError(
            "the direct transport is not supported; use --remote-transport noise"
        )
    if remote.relay == "plaintext" and remote.identity is not None:
        raise ConfigurationError("the plaintext relay has no keys: --identity needs --relay noise")
    if remote.aws_sigv4:
        raise ConfigurationError("--aws-sigv4 needs --remote-transport direct")
    if remote.connect is not None:
        from exec_server.remote.executor.forward import check_destination

        check_destination(remote.connect)


async def _serve(
    options: ServeOptions,
    limits: Limits,
    credentials: Credentials | None,
    audit: ServerAudit | None,
    recorder: TerminalRecorder | None,
) -> None:
    from exec_server.remote_server import run_forward, run_remote_environment

    state = usable_state_directory(options)
    config = _config(options.remote, limits, credentials)
    on_state = StateLines(config)
    if options.remote.connect is not None:
        # The other server does the work. Only the harnesses that are refused are known here.
        await run_forward(
            config,
            options.remote.connect,
            environ=environment(),
            on_state=on_state,
            lines=None if audit is None else audit.lines,
        )
    await run_remote_environment(
        config,
        proxy_private_ips_via_upstream=options.proxy_private_ips_via_upstream,
        environ=environment(),
        on_state=on_state,
        state_directory=state,
        audit=audit,
        stream_allow=options.stream_allow,
        recorder=recorder,
        on_stopped=say_farewell,
    )


class StateLines:
    """Prints each new state of the executor on stderr, for people at a terminal."""

    def __init__(self, config: RemoteEnvironmentConfig) -> None:
        name = config.environment_id.strip()
        self._lines: dict[ExecutorState, str] = {
            "serving": f"serving {name} through {config.registry_url} until Ctrl-C",
            "lost": f"the connection to {config.registry_url} is lost; trying again",
            "back": f"connected again: serving {name}",
            "replaced": f"another executor has registered as {name}; waiting until it is gone",
        }

    def __call__(self, state: ExecutorState) -> None:
        if sys.stderr.isatty():
            print(self._lines[state], file=sys.stderr, flush=True)


def _config(
    remote: RemoteOptions, limits: Limits, credentials: Credentials | None
) -> RemoteEnvironmentConfig:
    from exec_server.remote.remote_config import DEFAULT_NAME, RemoteEnvironmentConfig

    assert remote.url is not None
    assert remote.environment_id is not None
    return RemoteEnvironmentConfig(
        registry_url=remote.url,
        environment_id=remote.environment_id,
        name=remote.name or DEFAULT_NAME,
        credentials=credentials,
        uses_agent_identity=remote.use_agent_identity_auth,
        relay="plaintext" if remote.relay == "plaintext" else "noise",
        is_executor_id=remote.is_executor_id,
        identity=_identity(remote),
        authorized_harnesses=_path(remote.authorized_harness),
        audit_log=_path(remote.audit_log),
        labels=dict(remote.labels),
        limits=limits,
    )


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _identity(remote: RemoteOptions) -> KeyPair | None:
    if remote.identity is None:
        return None
    from exec_server.remote.identity import load_identity

    return load_identity(Path(remote.identity))


def _token(remote: RemoteOptions) -> Credentials | None:
    """The token for a registry of our own kind; None if other credentials are used."""
    from exec_server.protocol.registry import REGISTRY_TOKEN_VARIABLE
    from exec_server.remote.credentials.credentials import BearerToken

    token = environment().get(REGISTRY_TOKEN_VARIABLE, "").strip()
    # The processes of clients inherit our environment; they must not get this token.
    os.environ.pop(REGISTRY_TOKEN_VARIABLE, None)
    if remote.registry_token_file is not None:
        token = read_token_file(remote.registry_token_file)
    elif remote.use_agent_identity_auth:
        return None
    return BearerToken(token) if token else None


# Standard input.


async def _with_pipe(
    options: ServeOptions,
    limits: Limits,
    audit: ServerAudit | None,
    recorder: TerminalRecorder | None,
) -> None:
    from exec_server.remote.credentials.credential_pipe import PipedCredential
    from exec_server.remote.credentials.stdin_lines import watch_input

    credential = PipedCredential(options.remote.environment_id or "", now=time.time)
    watch_input(credential.feed, credential.end)
    await credential.wait_first()
    await _first_of(_serve(options, limits, credential, audit, recorder), credential.wait_over())


async def _input_ends() -> None:
    from exec_server.remote.credentials.stdin_lines import watch_input

    ended = asyncio.Event()
    watch_input(lambda _data: None, ended.set)
    await ended.wait()


async def _first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Wait until one of *works* has ended in any way, then cancel the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()
