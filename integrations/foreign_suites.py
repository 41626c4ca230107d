"""Test suites in the source distributions of other projects, run in processes of their own."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = ROOT / "build" / "integrations" / "sources"


def sources(package: str, version: str | None = None) -> Path:
    """The unpacked source distribution of *package*, in the version that is installed here."""
    version = version or importlib.metadata.version(package)
    folder = CACHE / f"{package.replace('-', '_')}-{version}"
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:"]
    words = [sys.executable, "-m", "pip", "download", *options, f"{package}=={version}"]
    subprocess.run([*words, "-d", str(CACHE)], check=True)
    with tarfile.open(CACHE / f"{folder.name}.tar.gz") as archive:
        archive.extractall(CACHE, filter="data")
    return folder


def outcomes(
    tests: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    options: Sequence[str] = (),
    prefix: Sequence[str] = (),
    python: str = sys.executable,
) -> dict[str, str]:
    """Run *tests* with pytest; for each test `passed`, `skipped`, or why it failed."""
    report = CACHE / f"{cwd.name}.xml"
    report.unlink(missing_ok=True)
    words = [python, "-m", "pytest", "-q", *tests, *options, f"--junitxml={report}"]
    done = subprocess.run(
        [*prefix, *words],
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert report.exists(), done.stdout + done.stderr
    cases = ElementTree.parse(report).iter("testcase")
    return {f"{case.get('classname')}.{case.get('name')}": _outcome(case) for case in cases}


def _outcome(case: ElementTree.Element) -> str:
    for tag in ("failure", "error"):
        if (found := case.find(tag)) is not None:
            return f"{tag}: {found.text}"
    return "skipped" if case.find("skipped") is not None else "passed"
