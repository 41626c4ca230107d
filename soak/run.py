"""Start the soak: ``python soak/run.py --help``."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

    from soak.main import main

    sys.exit(main(sys.argv[1:]))
