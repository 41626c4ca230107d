"""Make everything of a release but its upload, from the commit that is checked out.

    make release VERSION=0.2.0

Each step that fails ends it with the reason. dist/VERSION/ then has the wheel, the source archive,
the single file, the bill of materials, the licences and the digests of all of them.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from scripts import cut_release
from scripts.release import distributions, installed, inventory, single_file
from scripts.release.shell import ROOT, ReleaseFailed, run


def say(text: str) -> None:
    print(f"release: {text}", flush=True)


def check_tree(version: str) -> None:
    """Fail unless the tree is clean and says this version, also in the changelog."""
    if changed := run("git", "status", "--porcelain").strip():
        raise ReleaseFailed(f"the tree is not clean; commit or remove:\n{changed}")
    if problems := cut_release.problems(ROOT, version):
        raise ReleaseFailed("\n".join(problems))


def check_installs(wheel: Path, version: str, scratch: Path) -> list[Path]:
    """Install *wheel* with the newest packages on every Python, and use it; return the Pythons."""
    pythons = installed.interpreters()
    for name, python in pythons.items():
        installed.install(python, scratch / name, wheel)
        program = [str(scratch / name / "bin" / "exec-server")]
        installed.use(program, version, scratch / f"home-{name}")
        say(f"installed and used on Python {name}")
    return list(pythons.values())


def make(version: str, commit: str, out: Path, scratch: Path) -> None:
    out.mkdir(parents=True)
    built = distributions.build_twice(commit, scratch, out)
    distributions.check(built, version)
    say("built twice with the same digests; twine and check-wheel-contents accept both files")
    (wheel,) = out.glob("*.whl")
    pythons = check_installs(wheel, version, scratch)

    pex = out / f"exec-server-{version}.pex"
    epoch = distributions.time_of(commit)
    single_file.make(wheel, pythons, scratch, pex, epoch)
    installed.use([str(pex)], version, scratch / "home-pex")
    first, later = single_file.cpu_to_start(pex, scratch / "home-pex")
    megabytes = pex.stat().st_size / 1e6
    cpu = f"{first:.2f} s of CPU the first time and {later:.2f} s later"
    say(f"{pex.name}: {megabytes:.1f} MB; `--version` takes {cpu}")

    lock = ("--require-hashes", "--no-deps", "-r", ROOT / "requirements.lock")
    python = installed.install(pythons[0], scratch / "locked", *lock)
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools")
    inventory.write_sbom(python, version, out / f"exec-server-{version}.cdx.json")
    inventory.write_licences(python, out / "LICENCES.md")
    inventory.write_digests(out)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__.splitlines()[0])
    parser.add_argument("version")
    parser.add_argument(
        "--rehearse", action="store_true", help="do not look at the tree and CHANGELOG.md first"
    )
    options = parser.parse_args(words)
    out = ROOT / "dist" / options.version
    try:
        if not options.rehearse:
            check_tree(options.version)
        commit = run("git", "rev-parse", "HEAD").strip()
        shutil.rmtree(out, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="exec-server-release-") as scratch:
            make(options.version, commit, out, Path(scratch))
    except ReleaseFailed as problem:
        print(f"release: {problem}", file=sys.stderr)
        return 1
    say(f"{commit[:12]} is ready in {out.relative_to(ROOT)}; what is left is to tag and upload it:")
    print(f"  git tag -a v{options.version} -m 'exec-server {options.version}'")
    print(f"  twine upload dist/{options.version}/*.whl dist/{options.version}/*.tar.gz")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
