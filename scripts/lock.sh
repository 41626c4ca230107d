#!/usr/bin/env bash
# Resolve pyproject.toml into the requirements*.lock files. Arguments go to pip-compile: --upgrade, -P name.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3}" -m venv "$scratch/venv"

# Only the public index answers, whatever this machine's pip is set to: a lock has to install anywhere.
export PIP_CONFIG_FILE=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1
unset PIP_FIND_LINKS PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_NO_INDEX PIP_TRUSTED_HOST
"$scratch/venv/bin/pip" install --quiet pip-tools==7.6.2

# pip-compile reads [project] but not [dependency-groups].
"$scratch/venv/bin/python" - "$scratch" <<'PYTHON'
import pathlib
import sys
import tomllib

groups = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["dependency-groups"]
for name, lines in groups.items():
    pathlib.Path(sys.argv[1], f"{name}.in").write_text("\n".join(lines) + "\n")
PYTHON

compile() {
    local lock=$1
    shift
    "$scratch/venv/bin/pip-compile" --quiet \
        --generate-hashes --strip-extras --allow-unsafe --newline lf --no-header \
        --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
        --output-file "$lock" "$@"
    # The annotations name the temporary files; a reader looks for the groups.
    sed -i -E "s#-r $scratch/([a-z]+)\.in#pyproject.toml (\1)#" "$lock"
    sed -i "1i # Made by \`make lock\` from pyproject.toml." "$lock"
}
compile requirements.lock pyproject.toml "$@"
compile requirements-build.lock "$scratch/build.in" "$@"
compile requirements-dev.lock pyproject.toml "$scratch/build.in" "$scratch/dev.in" "$@"
compile requirements-release.lock "$scratch/release.in" "$@"
# The reference of the site is made from the package itself, so what it needs is there as well.
compile requirements-docs.lock pyproject.toml "$scratch/docs.in" "$@"

if grep -nE '://|/tmp/|/home/|/root/|--(index-url|extra-index-url|find-links|trusted-host)' requirements*.lock; then
    echo "lock: the lines above name a host, a path or an index; a lock must not" >&2
    exit 1
fi
