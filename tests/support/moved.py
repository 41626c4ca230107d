"""The message of a test that finds a library changed where nothing was promised."""

from __future__ import annotations


def moved(library: str, version: str, what: str, module: str) -> str:
    """Say *what* has changed, where it is used, and what to do."""
    return (
        f"{library} {version} has moved something that we use without a promise: {what}. "
        f"Adapt {module}, or lower the ceiling of {library} in pyproject.toml."
    )
