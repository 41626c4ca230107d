"""The manifest: every promised behaviour, where it is promised, and the tests that prove it.

Each text file beside this module holds the entries of one area, one a line::

    process/read:after-seq | docs/spec/core.md 10 | process/read answers only chunks after afterSeq.

The second field cites documents of this repository: sections (``docs/spec/core.md 9, 14``), a
heading (``docs/registry.md#many-nodes``) or a whole page (``docs/cli.md``). Several documents are
separated by ``; ``.

A line that starts with ``#`` is a comment. A test names the entries it proves::

    @requirement("process/read:after-seq")
    async def test_reading_after_a_cursor_skips_nothing(client): ...

``tests/test_requirements.py`` fails for an entry without a test, and for a source that does not
exist. A test of a helper or of a private mechanism needs no entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

T = TypeVar("T", bound=Callable[..., Any] | type)


class Requirement(NamedTuple):
    source: str
    sentence: str


def parse(text: str, *, name: str) -> Iterable[tuple[str, Requirement]]:
    """Yield the entries of a manifest file; ValueError names the line that is not one."""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|", maxsplit=2)]
        if len(fields) != 3 or not all(fields) or " " in fields[0]:
            raise ValueError(f"{name}:{number}: expected 'id | source | sentence', found {line!r}")
        yield fields[0], Requirement(fields[1], fields[2])


def load(folder: Path) -> dict[str, Requirement]:
    """Read every ``*.txt`` in *folder*; ValueError when two entries share an id."""
    found: dict[str, Requirement] = {}
    for path in sorted(folder.glob("*.txt")):
        for id_, entry in parse(path.read_text(encoding="utf-8"), name=path.name):
            if id_ in found:
                raise ValueError(f"{path.name}: {id_} is listed twice")
            found[id_] = entry
    return found


REQUIREMENTS: dict[str, Requirement] = load(Path(__file__).parent)


def requirement(*ids: str) -> Callable[[T], T]:
    """Mark a test as proof of the manifest entries *ids*; ValueError when one is not listed."""
    unknown = [id_ for id_ in ids if id_ not in REQUIREMENTS]
    if unknown or not ids:
        raise ValueError(f"not in tests/requirements/*.txt: {', '.join(unknown) or 'no id given'}")
    return pytest.mark.requirement(*ids)
