"""Rewrite the generated parts of docs/architecture.md: ``python scripts/architecture.py``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.architecture import PAGE, rewritten

PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
