"""The generated module, the shipped numbers, and what is not loaded before it is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exec_server.limits import DEFAULT_LIMITS
from exec_server.relay.records import RECORD_BYTES
from tests.requirements import requirement

ROOT = Path(__file__).parent.parent.parent
RELAY = Path("exec_server", "relay")


@requirement("relay/frame:module-matches-proto")
def test_the_module_is_what_the_compiler_makes(tmp_path):
    environment = {**os.environ, "PYTHON": sys.executable}
    subprocess.run([ROOT / "scripts/proto.sh", tmp_path], check=True, env=environment)
    for name in ("relay_pb2.py", "relay_pb2.pyi"):
        assert (tmp_path / RELAY / name).read_bytes() == (ROOT / "src" / RELAY / name).read_bytes()


@requirement("relay/frame:loaded-by-relay-alone")
def test_importing_the_package_loads_no_protobuf():
    code = (
        "import sys, exec_server, exec_server.cli.main;"
        "print([m for m in ('google.protobuf', 'cryptography') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == "[]"


@requirement("relay/limits:shipped")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("relay_frame_bytes", 262_144),
        ("relay_reorder_frames", 64),
        ("relay_reorder_bytes", 1_048_576),
        ("relay_streams", 128),
        ("relay_validations", 32),
        ("relay_validation_timeout", 10),
        ("relay_authorization_bytes", 4096),
        ("relay_failures", 8),
        ("relay_failure_pause", 10),
        ("message_bytes", 67_108_864),
        ("backlog_messages", 128),
    ],
)
def test_the_shipped_numbers_are_those_of_the_reference(name, value):
    assert getattr(DEFAULT_LIMITS, name) == value
    assert RECORD_BYTES == 61_440
