"""The directory for the state of this user's programs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def state_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return our state directory by the XDG standard; it may not exist yet."""
    named = environ.get("XDG_STATE_HOME", "")
    # The standard says that a relative path is ignored.
    base = Path(named) if named.startswith("/") else Path.home() / ".local" / "state"
    return base / "exec-server"
