"""The numbers that ship."""

from __future__ import annotations

import pytest

from exec_server.limits import DEFAULT_LIMITS
from exec_server.transport.address import DEFAULT_LISTEN_URL
from tests.requirements import requirement

MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("frame_bytes", 16 * MIB),
        ("message_bytes", 64 * MIB),
        ("json_values", 262_144),
        ("json_depth", 127),
        ("backlog_messages", 128),
        ("ping_interval", 30),
        ("detached_session_seconds", 30),
        ("closed_process_seconds", 30),
        ("retained_bytes", MIB),
        ("retained_chunks", 50_000),
        ("chunk_bytes", 8192),
        ("remembered_write_ids", 4096),
        ("stdin_queue_writes", 128),
        ("default_rows", 24),
        ("default_cols", 80),
        ("snapshot_scope_bytes", 256),
        ("concurrent_requests", 1),
        # Ours: the reference waits for ever here, and for its relay so long.
        ("pong_timeout", 60),
    ],
)
@requirement("limits:shipped")
def test_the_shipped_numbers_are_those_of_the_reference(name, value):
    assert getattr(DEFAULT_LIMITS, name) == value


@requirement("limits:shipped")
def test_the_default_address_is_that_of_the_reference():
    assert DEFAULT_LISTEN_URL == "ws://127.0.0.1:0"
