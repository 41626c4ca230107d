"""Groups of the server's options, as they were given.

They are in a module of their own because the help of the server does not need them, nor msgspec.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from exec_server.access.principal import Quotas
from exec_server.cli.serve.operator_options import DEFAULT_FILE
from exec_server.cli.serve.record_options import DEFAULT_QUOTA


class OperatorOptions(msgspec.Struct, frozen=True):
    """TLS, reload, metrics, and a Unix socket."""

    principals: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    log_level_file: str | None = None
    metrics: bool = False
    unix_socket_mode: int | None = None
    unix_socket_group: str | None = None

    @property
    def secret_files(self) -> tuple[str | None, ...]:
        """The files that no command may read."""
        principals = self.principals_file
        if principals is None:
            return (self.tls_key,)
        from exec_server.access.principals_file import journal_of

        return (self.tls_key, principals, journal_of(principals))

    @property
    def principals_file(self) -> str | None:
        """The file of principals, if there is to be one."""
        if self.principals != DEFAULT_FILE:
            return self.principals
        from exec_server.cli.token.token_options import principals_path

        return principals_path(None)


class AuditSettings(msgspec.Struct, frozen=True):
    """The audit log."""

    file: str | None = None
    when_full: Literal["refuse", "go-on"] = "go-on"
    fsync: Literal["always", "interval", "never"] = "interval"
    max_bytes: int | None = None
    keep: int = 8


class QuotaOptions(msgspec.Struct, frozen=True):
    """The quotas of the whole server."""

    max_connections: int | None = None
    max_sessions: int | None = None
    max_processes: int | None = None
    when_full: Literal["refuse", "queue"] = "refuse"

    def quotas(self) -> Quotas:
        return Quotas(
            max_connections=self.max_connections,
            max_sessions=self.max_sessions,
            max_processes=self.max_processes,
        )


class RecordOptions(msgspec.Struct, frozen=True):
    """Recordings of all terminals."""

    directory: str | None = None
    quota: int = DEFAULT_QUOTA
    secrets_file: str | None = None
