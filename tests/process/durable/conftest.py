"""Servers on a state directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.durable import StateServers, state_servers


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[StateServers]:
    with state_servers(tmp_path / "state") as running:
        yield running
