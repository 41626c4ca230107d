"""What is in a release: a bill of materials, the licences of what it needs, and digests."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from scripts.release.distributions import digest
from scripts.release.shell import ROOT, ReleaseFailed, run

# Licences with which a program under Apache-2.0 may be given to others together.
_ACCEPTED = re.compile(
    r"apache|bsd|mit|isc|psf|python software foundation|mpl|mozilla|unlicense|0bsd|zlib",
    re.IGNORECASE,
)
# Packages whose metadata name no licence: what the file LICENSE in them says.
_READ_BY_US = {
    "aiofastnet": "MIT",
    "bittty": "WTFPL, with a clause against warranty",
    "picows": "MIT",
}


def write_sbom(python: Path, version: str, out: Path) -> None:
    """Write the packages that *python* has as CycloneDX; the same packages give the same file."""
    run(
        *(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"),
        *("--pyproject", ROOT / "pyproject.toml", "--mc-type", "application"),
        *("--spec-version", "1.6", "--output-format", "JSON", "--output-file", out, python),
    )
    bill = json.loads(out.read_bytes())
    # The tool reads pyproject.toml, which has no number of its own.
    bill["metadata"]["component"]["version"] = version
    out.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    missing = locked() - {_usual(part["name"]) for part in bill["components"]}
    if missing:
        raise ReleaseFailed(f"{out.name} lacks {', '.join(sorted(missing))}")


def write_licences(python: Path, out: Path) -> None:
    """Write a table of the licences of all packages; fails at one that is not accepted."""
    words = ["--python", python, "--from", "mixed", "--format", "json", "--with-urls"]
    rows = json.loads(run(sys.executable, "-m", "piplicenses", *words))
    rows = [row for row in rows if row["Name"] != "exec-server"]
    for row in rows:
        if row["License"] == "UNKNOWN":
            row["License"] = _READ_BY_US.get(_usual(row["Name"]), "UNKNOWN")
    refused = [
        f"{row['Name']} ({row['License']})"
        for row in rows
        if not _ACCEPTED.search(row["License"]) and row["License"] not in _READ_BY_US.values()
    ]
    if refused:
        raise ReleaseFailed(f"the licences of these are not in our list: {', '.join(refused)}")
    lines = ["| package | version | licence |", "|---|---|---|"]
    lines += [
        f"| [{row['Name']}]({row['URL']}) | {row['Version']} | {row['License']} |" for row in rows
    ]
    out.write_text(
        "# Licences of the packages that exec-server needs\n\n" + "\n".join(lines) + "\n"
    )


def write_digests(folder: Path) -> None:
    """Write ``SHA256SUMS`` of all files in *folder*, in the form that ``sha256sum -c`` reads."""
    paths = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{digest(path)}  {path.name}\n" for path in paths]
    (folder / "SHA256SUMS").write_text("".join(lines))


def _usual(name: str) -> str:
    """The name of a package as lock files spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> set[str]:
    """The names of the packages in requirements.lock that this system needs."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^([a-z0-9._-]+)==\S+(?: ; (.*?))? \\$", lock, re.MULTILINE)
    return {name for name, marker in pins if not marker or "win32" not in marker}
