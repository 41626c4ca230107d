"""The options of the server: its words are read, checked against each other, and collected."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from exec_server.cli.commands import command_names, find_entry, nearest_command
from exec_server.cli.parser import Arguments, Parser, similar_tip
from exec_server.cli.serve.audit_options import audit_settings
from exec_server.cli.serve.operator_options import operator_options
from exec_server.cli.serve.option_records import (
    AuditSettings,
    OperatorOptions,
    QuotaOptions,
    RecordOptions,
)
from exec_server.cli.serve.process_limit_options import process_limits
from exec_server.cli.serve.quota_options import quota_options
from exec_server.cli.serve.record_options import record_options
from exec_server.cli.serve.serve_parser import forward_parser, serve_parser
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.server.authentication import AuthOptions
from exec_server.transport.address import DEFAULT_LISTEN_URL

LogLevel = Literal["error", "warning", "info", "debug"]
LogFormat = Literal["text", "json"]

# RUST_LOG has two more levels than we have; "off" is nearest to "error".
_RUST_LEVELS: dict[str, LogLevel] = {
    "error": "error",
    "warn": "warning",
    "info": "info",
    "debug": "debug",
    "trace": "debug",
}

# The three kinds of credentials for Codex's registry; a server uses at most one.
_IDENTITIES = ("use_agent_identity_auth", "executor_credential_stdin", "aws_sigv4")
_REMOTE = ("environment_id", "remote")
_AWS = ("remote", "environment_id", "aws_sigv4")
_NEEDS: dict[str, Sequence[str]] = {
    "tls_cert": ("tls_key",),
    "tls_key": ("tls_cert",),
    "tls_client_ca": ("tls_cert", "tls_key"),
    "remote": ("environment_id",),
    "remote_transport": _REMOTE,
    "relay": _REMOTE,
    "registry_token_file": _REMOTE,
    "identity": _REMOTE,
    "authorized_harness": _REMOTE,
    "audit_log": _REMOTE,
    "audit_when_full": ("audit",),
    "audit_fsync": ("audit",),
    "audit_size": ("audit",),
    "audit_keep": ("audit",),
    "record_quota": ("record_terminals",),
    "record_secrets": ("record_terminals",),
    "labels": _REMOTE,
    "exit_on_stdin_close": _REMOTE,
    "use_agent_identity_auth": _REMOTE,
    "executor_credential_stdin": _REMOTE,
    "aws_sigv4": _REMOTE,
    "aws_profile": _AWS,
    "aws_region": _AWS,
    "aws_service": _AWS,
}


class RemoteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of remote mode; `connect` is set by ``forward`` alone."""

    url: str | None = None
    connect: str | None = None
    transport: str = "noise"
    environment_id: str | None = None
    name: str | None = None
    use_agent_identity_auth: bool = False
    executor_credential_stdin: bool = False
    aws_sigv4: bool = False
    aws_profile: str | None = None
    aws_region: str | None = None
    aws_service: str = "execute-api"
    exit_on_stdin_close: bool = False
    relay: str = "noise"
    # True if the id was given as `--executor-id`.
    is_executor_id: bool = False
    registry_token_file: str | None = None
    # The file of the key by which clients recognize this executor.
    identity: str | None = None
    # The file of the keys of the harnesses that are served.
    authorized_harness: str | None = None
    audit_log: str | None = None
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def is_requested(self) -> bool:
        """True if the command line asks for remote mode; a name or an id alone does not."""
        return self.url is not None


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A valid command line of the server; `listen` and `auth` are checked later."""

    listen: str = DEFAULT_LISTEN_URL
    auth: AuthOptions = AuthOptions()
    operator: OperatorOptions = OperatorOptions()
    audit: AuditSettings = AuditSettings()
    quotas: QuotaOptions = QuotaOptions()
    record: RecordOptions = RecordOptions()
    insecure_no_auth: bool = False
    allow_other_users: bool = False
    # The directory of durable jobs, or "none"; None is the default of the address.
    state: str | None = None
    limits: Limits = DEFAULT_LIMITS
    log_level: LogLevel = "error"
    log_format: LogFormat = "text"
    # True if the level `error` was chosen and is not just the default.
    only_errors: bool = False
    remote: RemoteOptions = RemoteOptions()
    proxy_private_ips_via_upstream: bool = False
    # The rules for byte streams.
    stream_allow: tuple[str, ...] = ()
    # These are accepted for compatibility with the reference, and have no effect.
    config: tuple[str, ...] = ()
    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    strict_config: bool = False
    linux_sandbox_pid_namespace: str = "isolate"

    @property
    def holds_secrets(self) -> bool:
        """True if the server will know something that its commands must not know."""
        has_key = self.operator.tls_key is not None or self.operator.principals is not None
        return self.auth.mode is not None or has_key or self.remote.is_requested


def parse_serve(argv: list[str], environ: Mapping[str, str] | None = None) -> ServeOptions:
    """Read the words after the program's name.

    ``--help``, ``--version`` and ``help`` print and exit with status 0, a wrong command line
    with status 2. *environ* is the process environment unless given.
    """
    environ = os.environ if environ is None else environ
    parser = serve_parser()
    parser.commands = [name for name in command_names() if name not in ("forward", "help")]
    arguments = parser.parse_options(argv, environ)
    _accept_old_spelling(parser, arguments)
    parser.refuse_together(arguments, "listen", "remote")
    parser.refuse_together(arguments, "ws_auth", "insecure_no_auth")
    parser.refuse_together(arguments, "principals", "insecure_no_auth")
    parser.refuse_together(arguments, "principals", "allow_other_users")
    parser.refuse_together(arguments, "log_level", "log_level_file")
    parser.refuse_together(arguments, *_IDENTITIES)
    parser.require(arguments, _needs(arguments))
    if arguments.rest:
        _read_command(parser, arguments, environ)
    return _serve_options(arguments.values, environ)


def _read_command(parser: Parser, arguments: Arguments, environ: Mapping[str, str]) -> None:
    """Merge the options of ``forward`` into those before it; ``help`` prints and exits."""
    word, *words = arguments.rest
    if word == "forward":
        _merge(arguments.values, _parse_forward(words, environ))
    elif word == "help":
        _help(parser, words)
    else:
        _refuse_command(parser, word)


def _help(parser: Parser, words: list[str]) -> None:
    is_known = words and find_entry(words[0]) is not None
    topic = forward_parser() if words[:1] == ["forward"] else parser
    if strange := words[1:] if is_known else words:
        _refuse_command(topic, strange[0])
    topic.print_help()
    topic.exit()


def _refuse_command(parser: Parser, word: str) -> None:
    if word in ("serve", "server", "start", "listen"):
        tip = "\n\n  tip: without a subcommand this program starts a server"
    elif find_entry(word) is not None:
        tip = f"\n\n  tip: '{word}' comes before all options"
    else:
        tip = similar_tip(nearest_command(word), "subcommand")
    parser.error(f"unrecognized subcommand '{word}'{tip}")


def _parse_forward(words: list[str], environ: Mapping[str, str]) -> Arguments:
    parser = forward_parser()
    arguments = parser.parse_options(words, environ)
    if arguments.rest:
        parser.refuse_unexpected(arguments.rest[0])
    _accept_old_spelling(parser, arguments)
    parser.refuse_together(arguments, *_IDENTITIES)
    parser.require(arguments, _needs(arguments), "remote", "environment_id", "connect")
    return arguments


def _needs(arguments: Arguments) -> dict[str, Sequence[str]]:
    """The options that each option needs, which depends on the remote transport."""
    if arguments.values.remote_transport == "direct":
        return {**_NEEDS, "remote_transport": (*_REMOTE, "aws_sigv4")}
    return _NEEDS


def _accept_old_spelling(parser: Parser, arguments: Arguments) -> None:
    """Read `--executor-id` as `--environment-id`, whose former name it is."""
    parser.refuse_together(arguments, "environment_id", "executor_id")
    if "executor_id" in arguments.given:
        arguments.values.environment_id = arguments.values.executor_id
        arguments.given.append("environment_id")


def _merge(values: argparse.Namespace, forward: Arguments) -> None:
    for dest in forward.given:
        value = getattr(forward.values, dest)
        if isinstance(value, list):
            value = getattr(values, dest) + value
        setattr(values, dest, value)


def _serve_options(values: argparse.Namespace, environ: Mapping[str, str]) -> ServeOptions:
    return ServeOptions(
        listen=values.listen,
        state=values.state,
        auth=_auth_options(values),
        operator=operator_options(values),
        audit=audit_settings(values),
        quotas=quota_options(values),
        record=record_options(values),
        insecure_no_auth=values.insecure_no_auth,
        allow_other_users=values.allow_other_users,
        limits=_limits(values),
        log_level=values.log_level or _rust_level(environ),
        log_format=values.log_format,
        only_errors=_only_errors(values, environ),
        remote=_remote_options(values),
        config=tuple(values.config),
        enable=tuple(values.enable),
        disable=tuple(values.disable),
        strict_config=values.strict_config,
        linux_sandbox_pid_namespace=values.linux_sandbox_pid_namespace,
        proxy_private_ips_via_upstream=values.proxy_private_ips_via_upstream,
        stream_allow=tuple(values.stream_allow),
    )


def _auth_options(values: argparse.Namespace) -> AuthOptions:
    return AuthOptions(
        mode=values.ws_auth,
        token_file=values.ws_token_file,
        token_sha256=values.ws_token_sha256,
        shared_secret_file=values.ws_shared_secret_file,
        issuer=values.ws_issuer,
        audience=values.ws_audience,
        max_clock_skew_seconds=values.ws_max_clock_skew_seconds,
    )


def _limits(values: argparse.Namespace) -> Limits:
    return msgspec.structs.replace(
        DEFAULT_LIMITS,
        concurrent_requests=values.concurrent_requests,
        max_concurrent_requests=max(values.max_concurrent_requests, values.concurrent_requests),
        retained_bytes=values.retain_bytes,
        detached_session_seconds=values.detached_session_seconds,
        max_detached_session_seconds=values.max_detached_session_seconds,
        closed_process_seconds=values.closed_process_seconds,
        job_journal_bytes=values.state_job_bytes,
        job_journal_total_bytes=values.state_total_bytes,
        job_keep_seconds=values.state_keep,
        process_default=process_limits(values.limit_default),
        process_max=process_limits(values.limit_max),
    )


def _rust_level(environ: Mapping[str, str]) -> LogLevel:
    return _RUST_LEVELS.get(environ.get("RUST_LOG", "").lower(), "error")


def _only_errors(values: argparse.Namespace, environ: Mapping[str, str]) -> bool:
    chosen = values.log_level or environ.get("RUST_LOG", "").lower()
    return chosen in ("error", "off")


def _remote_options(values: argparse.Namespace) -> RemoteOptions:
    return RemoteOptions(
        url=values.remote,
        connect=getattr(values, "connect", None),
        transport=values.remote_transport,
        environment_id=values.environment_id,
        name=values.name,
        use_agent_identity_auth=values.use_agent_identity_auth,
        executor_credential_stdin=values.executor_credential_stdin,
        aws_sigv4=values.aws_sigv4,
        aws_profile=values.aws_profile,
        aws_region=values.aws_region,
        aws_service=values.aws_service,
        exit_on_stdin_close=values.exit_on_stdin_close,
        relay=values.relay,
        is_executor_id=values.executor_id is not None,
        registry_token_file=values.registry_token_file,
        identity=values.identity,
        authorized_harness=values.authorized_harness,
        audit_log=values.audit_log,
        labels=tuple(values.labels),
    )
