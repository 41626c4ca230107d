"""`exec-server` and `exec-server forward`: serve until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from exec_server.cli import exit_codes, log_setup
from exec_server.cli.event_loop import in_loop, raise_descriptor_limit
from exec_server.cli.loading import loading
from exec_server.cli.log_setup import print_error
from exec_server.cli.secret_environment import hide_memory
from exec_server.cli.serve.audit_options import open_audit
from exec_server.cli.serve.operator_options import certificate, read_log_level, unix_access
from exec_server.cli.serve.option_records import QuotaOptions
from exec_server.cli.serve.own_files import hide_from_sandboxes
from exec_server.cli.serve.record_options import open_recorder
from exec_server.cli.serve.serve_options import ServeOptions, parse_serve
from exec_server.cli.serve.serve_parser import forward_parser
from exec_server.cli.serve.service_notices import ServiceNotices
from exec_server.cli.serve.state_place import usable_state_directory
from exec_server.cli.serve.user_scope import enter_own_scope
from exec_server.cli.standard_streams import print_or_log, say_farewell
from exec_server.errors import ConfigurationError, RegistryError
from exec_server.limits import Limits

if TYPE_CHECKING:
    from exec_server.recording.recorder import TerminalRecorder
    from exec_server.server.authentication import Authenticator
    from exec_server.server.server_audit import ServerAudit
    from exec_server.server.serving import RunningServer
    from exec_server.transport.certificate import Certificate

logger = logging.getLogger(__name__)

_HOW_TO_USE = """\
exec-server listens on {url}
  try it:   {program} run{token} {url} -- uname -a
  stop it:  Ctrl-C, or {program} stop{token} {url}
"""
_WHERE_JOBS_ARE = """\
  jobs of `run --detach` go on without it; they are kept in {state}
"""


def serve_command(words: list[str]) -> int:
    """Serve as *words* say; the status is 0 after an orderly stop, 1 if it cannot start."""
    options = parse_serve(words)
    log_setup.configure(
        options.log_level, options.log_format, shows_notices=_shows_notices(options)
    )
    level_file = options.operator.log_level_file
    if options.holds_secrets:
        hide_memory()
    hide_from_sandboxes(options)
    if os.geteuid() == 0:
        logger.warning(
            "serving as root: unless a client asks for a sandbox, its commands are root's",
            extra={"notice": "root"},
        )
    try:
        if level_file is not None:
            log_setup.set_level(read_log_level(level_file))
        _check_codex_settings(options)
        limits = msgspec.structs.replace(options.limits, child_descriptors=raise_descriptor_limit())
        # Before there is a keeper, which has to be in the same group.
        enter_own_scope(os.environ)
        in_loop(_serve(options, limits))
    except (ConfigurationError, RegistryError) as exc:
        print_error(str(exc))
        return exit_codes.FAILED
    return exit_codes.OK


def _shows_notices(options: ServeOptions) -> bool:
    """True if an operator may read stderr. With stdio it belongs to the client."""
    is_stdio = not options.remote.is_requested and options.listen.startswith("stdio")
    return not is_stdio and not options.only_errors and log_setup.stderr_is_kept()


def _check_codex_settings(options: ServeOptions) -> None:
    """Refuse what Codex refuses. The table of its settings is loaded only if it is needed."""
    if not (options.enable or options.disable or options.strict_config):
        return
    from exec_server.cli.serve.codex_config import check_config, check_features

    check_features((*options.enable, *options.disable))
    if options.strict_config:
        check_config(os.environ, options.config)


def forward_command(words: list[str]) -> int:
    """Register another server as *words* say. Options of the server may stand before `forward`."""
    if words[:1] in (["-h"], ["--help"]):
        # Help is printed even if the variables of the server are wrong.
        forward_parser().parse_args(words)
    return serve_command(["forward", *words])


async def _serve(options: ServeOptions, limits: Limits) -> None:
    authenticator = _authenticator(options)
    if options.remote.is_requested:
        from exec_server.cli.serve.serve_remote import serve_remote

        work = partial(serve_remote, options, limits)
    else:
        work = partial(_listen, options, limits, authenticator)
    serving = asyncio.ensure_future(_audited(options, work))
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        return


async def _audited(
    options: ServeOptions,
    serve: Callable[[ServerAudit | None, TerminalRecorder | None], Awaitable[None]],
) -> None:
    tokens = (options.auth.token_file, options.remote.registry_token_file)
    with open_audit(options.audit) as audit, open_recorder(options.record, *tokens) as recorder:
        await serve(audit, recorder)


async def _listen(
    options: ServeOptions,
    limits: Limits,
    authenticator: Authenticator | None,
    audit: ServerAudit | None,
    recorder: TerminalRecorder | None,
) -> None:
    with loading():
        from exec_server.server.serving import serve, serve_stdio
        from exec_server.transport.address import StdioAddress, parse_listen_url

    operator = options.operator
    tls, access = certificate(operator), unix_access(operator, options.listen)
    state = usable_state_directory(options)
    reaches_private = options.proxy_private_ips_via_upstream
    if isinstance(parse_listen_url(options.listen), StdioAddress):
        if tls is not None:
            raise ConfigurationError("TLS requires a WebSocket listener, not stdio")
        if operator.principals is not None:
            raise ConfigurationError("--principals requires a listener, not stdio")
        await serve_stdio(
            limits=limits,
            proxy_private_ips_via_upstream=reaches_private,
            audit=audit,
            stream_allow=options.stream_allow,
            recorder=recorder,
        )
        return
    with contextlib.closing(ServiceNotices(os.environ)) as notices:
        async with serve(
            options.listen,
            limits=limits,
            authenticator=authenticator,
            principals=operator.principals_file,
            tls=tls,
            unix_access=access,
            metrics=operator.metrics,
            audit=audit,
            insecure_no_auth=options.insecure_no_auth,
            allow_other_users=options.allow_other_users,
            proxy_private_ips_via_upstream=reaches_private,
            state_directory=state,
            quotas=options.quotas.quotas(),
            when_full=options.quotas.when_full,
            stream_allow=options.stream_allow,
            recorder=recorder,
            on_stopped=say_farewell,
        ) as running:
            async with _exporting(running, limits):
                await _run(options, running, tls, notices, state)


@contextlib.asynccontextmanager
async def _exporting(running: RunningServer, limits: Limits) -> AsyncIterator[None]:
    """Export the metrics to a collector of OpenTelemetry, if the variables name one."""
    if running.metrics is None or not any(name.startswith("OTEL_") for name in os.environ):
        yield
        return
    from exec_server.hub.observe.telemetry import exporting_server_metrics

    async with exporting_server_metrics(running.metrics.found, limits=limits):
        yield


async def _run(
    options: ServeOptions,
    running: RunningServer,
    tls: Certificate | None,
    notices: ServiceNotices,
    state: Path | None,
) -> None:
    """Serve until this task is cancelled or a client stops it, and reload at SIGHUP.

    A server without a file to read again dies of SIGHUP, as the reference does.
    """
    from exec_server.cli.serve.reloading import Reloading, has_files, on_hangup

    serving = asyncio.current_task()
    assert serving is not None
    if has_files(options) or notices.is_service:
        on_hangup(Reloading(options, running, tls, notices).reload, serving.cancel)
    stopped = running.core.stop_request()
    _announce(running.url, state=state, needs_token=_needs_token(options, running.url))
    notices.ready(f"listening on {running.url}")
    try:
        await stopped
    finally:
        notices.stopping()


def _authenticator(options: ServeOptions) -> Authenticator | None:
    """Check the options that depend on each other, in the reference's order; then read secrets."""
    from exec_server.server.authentication import check_options, from_options
    from exec_server.transport.address import StdioAddress, UnixAddress, parse_listen_url

    check_options(options.auth)
    if options.remote.is_requested:
        if options.auth.mode is not None:
            raise ConfigurationError(
                "WebSocket listener auth cannot be used with --remote or forward"
            )
        if options.operator.tls_cert is not None:
            raise ConfigurationError("--tls-cert cannot be used with --remote or forward")
        if options.operator.principals is not None:
            raise ConfigurationError("--principals cannot be used with --remote or forward")
        if options.quotas != QuotaOptions():
            raise ConfigurationError("quotas cannot be used with --remote or forward")
        return None
    address = parse_listen_url(options.listen)
    if options.auth.mode is not None and isinstance(address, StdioAddress | UnixAddress):
        kind = "stdio" if options.listen.startswith("stdio") else "unix"
        raise ConfigurationError(f"WebSocket auth requires a WebSocket listener, not {kind}")
    return from_options(options.auth)


def _needs_token(options: ServeOptions, url: str) -> bool:
    # At a Unix socket the user of the client decides.
    if url.startswith("unix:"):
        return False
    return options.auth.mode is not None or options.operator.principals is not None


def _announce(url: str, *, state: Path | None, needs_token: bool) -> None:
    """Print the URL on stdout, for programs, and on a terminal how to use it, for people."""
    print_or_log(url)
    logger.info("listening on %s", url)
    if sys.stdout.isatty():
        text = _HOW_TO_USE.format(
            url=url, program=_program(), token=" --token-file PATH" if needs_token else ""
        )
        if state is not None:
            text += _WHERE_JOBS_ARE.format(state=state)
        print(text, end="", file=sys.stderr, flush=True)
    # The objects of the start live as long as the process: the collector can ignore them.
    gc.freeze()


def _program() -> str:
    """How a shell finds this program: by its name if that is on the PATH, else by its path."""
    import shlex
    import shutil

    own = os.path.abspath(sys.argv[0])
    name = os.path.basename(own)
    if name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -P -m exec_server"
    found = shutil.which(name)
    is_found = found is not None and os.path.realpath(found) == os.path.realpath(own)
    return name if is_found else shlex.quote(own)
