"""All checks of the kit, in the order in which they run."""

from __future__ import annotations

from exec_server.conformance import (
    envelope_checks,
    extension_checks,
    file_checks,
    http_checks,
    process_checks,
    sandbox_checks,
    session_checks,
)
from exec_server.conformance.check import CHECKS
from exec_server.conformance.clients import command_checks, recovery_checks
from exec_server.conformance.clients.client_check import CLIENT_CHECKS
from exec_server.conformance.remote import handshake_checks, record_checks, stream_checks

__all__ = [
    "CHECKS",
    "CLIENT_CHECKS",
    "command_checks",
    "envelope_checks",
    "extension_checks",
    "file_checks",
    "handshake_checks",
    "http_checks",
    "process_checks",
    "record_checks",
    "recovery_checks",
    "sandbox_checks",
    "session_checks",
    "stream_checks",
]
