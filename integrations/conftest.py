"""A server for the suites of other projects."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The URL of a server that runs for the whole suite, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "exec_server"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().decode().strip()
        assert url, "the server did not start"
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
