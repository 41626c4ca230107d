"""The expected result of each attempt, read from `expected.txt`, and why some of them work."""

from __future__ import annotations

from pathlib import Path

BACKENDS, POLICIES, USERS = (
    ("bubblewrap", "landlock"),
    ("read-only", "workspace"),
    ("root", "nobody"),
)
DONE = "done"

_ON_PURPOSE = (
    "the policy gives these names: Landlock cannot take away a part of a writable directory"
)
_NO_HARM = "as in the reference; what could be won by it is tried as nested-…"

# All attempts that may succeed in a sandbox, with the reason. A name that ends with a dash stands
# for several.
KNOWN = {
    "prepared-hard-link": "no policy about paths can tell one name of a file from another",
    "prepared-device": "Landlock gives a device the rights of its folder; only root can make one",
    "write-to-a-fifo": "a read-only mount does not stop writing to a FIFO; as in the reference",
    "lock-outside": "a lock stops only programs that ask for it, and ends with the command",
    "unshare-user": _NO_HARM,
    "clone-user": _NO_HARM,
    "above-": _ON_PURPOSE,
    "git-": _ON_PURPOSE,
    "agents-": _ON_PURPOSE,
    "codex-": _ON_PURPOSE,
    "aws-": _ON_PURPOSE,
}


def why_done(name: str) -> str | None:
    """Why attempt *name* may work; None when it must not."""
    return KNOWN.get(name) or KNOWN.get(name.partition("-")[0] + "-")


class Row:
    """The expected outcomes of one attempt."""

    def __init__(self, cells: list[str]) -> None:
        by_backend = {1: [0, 0, 0, 0], 2: [0, 0, 1, 1], 4: [0, 1, 2, 3]}[len(cells)]
        places = [(backend, policy) for backend in BACKENDS for policy in POLICIES]
        self._cells = {place: cells[index] for place, index in zip(places, by_backend, strict=True)}

    def outcomes(self, backend: str, policy: str, user: str) -> set[str]:
        """The results that are allowed there."""
        told = [part.strip() for part in self._cells[backend, policy].split(",")]
        return set(told[USERS.index(user) if len(told) > 1 else 0].split("/"))

    def shown(self, backend: str) -> str:
        """The result on *backend*, for readers of the docs."""
        found = dict.fromkeys(
            self._cells[backend, policy].replace(", ", "/") for policy in POLICIES
        )
        words = dict.fromkeys(word for cell in found for word in cell.split("/"))
        return ", ".join("**works**" if word == DONE else word for word in words)


def read() -> dict[str, Row]:
    """All rows, by the name of their attempt."""
    found: dict[str, Row] = {}
    for line in Path(__file__).with_name("expected.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, *cells = (cell.strip() for cell in line.split("|"))
            assert name not in found, name
            found[name] = Row(cells)
    return found
