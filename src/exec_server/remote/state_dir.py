"""Where this user's programs keep what they want to find again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def state_home(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory of ours by the XDG standard; it may not be there yet."""
    named = environ.get("XDG_STATE_HOME", "")
    # The standard has relative ones ignored.
    base = Path(named) if named.startswith("/") else Path.home() / ".local" / "state"
    return base / "exec-server"
