"""SIGHUP: read tokens, certificates and the log level again, without dropping a connection."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from exec_server.cli import log_setup
from exec_server.cli.serve.operator_options import read_log_level
from exec_server.errors import ConfigurationError
from exec_server.server.authentication import from_options, token_digests

if TYPE_CHECKING:
    from exec_server.cli.serve.serve_options import ServeOptions
    from exec_server.cli.serve.service_notices import ServiceNotices
    from exec_server.server.serving import RunningServer
    from exec_server.transport.certificate import Certificate

logger = logging.getLogger(__name__)


class Reloading:
    """Reads the files that *options* name once more. What is broken stays as it was."""

    def __init__(
        self,
        options: ServeOptions,
        running: RunningServer,
        certificate: Certificate | None,
        notices: ServiceNotices,
    ) -> None:
        self._options = options
        self._notices = notices
        self._running = running
        self._certificate = certificate

    def reload(self) -> None:
        self._notices.reloading()
        reads = (self._read_access, self._read_principals, self._read_log_level)
        results = [self._try(read) for read in reads]
        if self._certificate is not None:
            results.append(self._certificate.reload())
        if all(results):
            logger.info("everything was read again")
        if self._running.audit is not None:
            self._running.audit.reloaded(is_whole=all(results))
        status = f"listening on {self._running.url}"
        self._notices.ready(status if all(results) else f"{status}; a file is broken, see the log")

    def _try(self, read: Callable[[], None]) -> bool:
        try:
            read()
        except ConfigurationError as exc:
            logger.error("the old value stays in use: %s", exc)
            return False
        return True

    def _read_access(self) -> None:
        authenticator = from_options(self._options.auth)
        if authenticator is not None:
            if self._running.audit is not None:
                self._running.audit.know_tokens(token_digests(authenticator))
            self._running.access.replace(authenticator)

    def _read_principals(self) -> None:
        if self._running.principals is not None:
            self._running.principals.reload()

    def _read_log_level(self) -> None:
        path = self._options.operator.log_level_file
        if path is not None:
            log_setup.set_level(read_log_level(path))


def has_files(options: ServeOptions) -> bool:
    """True if there is a file that can be read again."""
    auth, operator = options.auth, options.operator
    files = (
        auth.token_file,
        auth.shared_secret_file,
        operator.principals,
        operator.tls_cert,
        operator.log_level_file,
    )
    return any(file is not None for file in files)


def on_hangup(reload: Callable[[], None], stop: Callable[[], object]) -> None:
    """Call *reload* at SIGHUP; call *stop* if the reason is that our terminal has gone."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    # `nohup` asks to outlive the terminal.
    had_terminal = not is_ignored and _has_terminal()

    def hung_up() -> None:
        if had_terminal and not _has_terminal():
            stop()
        else:
            reload()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up)


def _has_terminal() -> bool:
    """True if this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
