"""Running a command: its event loop, its limits, and its errors as an exit status."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from exec_server.cli import exit_codes, log_setup
from exec_server.cli.loading import loading
from exec_server.cli.options import TOKEN_VARIABLE
from exec_server.errors import ExecServerError, RegistryError

T = TypeVar("T")

logger = logging.getLogger(__name__)


def in_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run *main* on uvloop if it is installed, else on asyncio's own event loop."""
    try:
        with loading():
            import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def run_to_exit_status(
    main: Callable[[], Coroutine[Any, Any, int]],
    *,
    log_level: str,
    complain: Callable[[str], None] = log_setup.print_error,
    tell: Callable[[int], None] | None = None,
) -> int:
    """Run a whole command; an error is passed to *complain* and becomes the exit status.

    After an error *tell* is called with the status, to print it for programs.
    """
    log_setup.configure(log_level, "text")
    try:
        return in_loop(main())
    except ExecServerError as exc:
        complain(exit_codes.text_of(exc))
        _explain(exc)
        status = exit_codes.status_of(exc)
    except BrokenPipeError:
        raise
    except OSError as exc:
        # A file or a directory of this machine cannot be used.
        logger.debug("the command failed", exc_info=exc)
        complain(f"{exc.filename}: {exc.strerror}" if exc.filename else exc.strerror or str(exc))
        status = exit_codes.FAILED
    if tell is not None:
        tell(status)
    return status


def _explain(error: ExecServerError) -> None:
    """Say what to do about an error that many people meet first."""
    if getattr(error, "status", None) != 401 or isinstance(error, RegistryError):
        return
    if "missing" in str(error):
        text = f"  tip: give its token with --token-file PATH or {TOKEN_VARIABLE}"
        print(text, file=sys.stderr)
    from exec_server.cli.server_access import environments

    # The token may be configured for a name that is misspelt.
    with contextlib.suppress(ExecServerError, OSError):
        for text in environments().warnings:
            log_setup.print_warning(text)


def raise_descriptor_limit() -> int:
    """Allow as many open files as the system lets us; the former limit is returned.

    A server needs up to three descriptors for a process, and a registry one for each socket.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft
