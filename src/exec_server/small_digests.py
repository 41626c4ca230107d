"""SHA-256 of short texts by Python's own code: a start need not load OpenSSL for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256
    except ImportError:
        # A Python that is built with OpenSSL alone.
        from hashlib import sha256

__all__ = ["sha256"]
