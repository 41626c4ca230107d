"""The directory for the state of this user's programs. This imports little."""

from __future__ import annotations

import os
from collections.abc import Mapping

# Type checkers know this name; `typing` takes a while to load, and so does `pathlib`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def state_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return our state directory by the XDG standard; it may not exist yet."""
    from pathlib import Path

    return Path(state_home_name(environ))


def state_home_name(environ: Mapping[str, str] = os.environ) -> str:
    """The same as `state_home`, as a text."""
    base = environ.get("XDG_STATE_HOME", "")
    # The standard says that a relative path is ignored.
    if not base.startswith("/"):
        base = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "exec-server")
