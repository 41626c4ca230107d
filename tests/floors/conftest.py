"""A place for files that no sandbox opens by itself: /tmp is writable in a workspace."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="floors-", dir="/var/tmp") as made:
        folder = Path(made).resolve()
        folder.chmod(0o755)
        for name in ("app", "other"):
            (folder / name).mkdir()
        (folder / "other" / "secret").write_text("of another principal")
        yield folder
