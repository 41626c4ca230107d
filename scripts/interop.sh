#!/usr/bin/env bash
# Run the unmodified Codex CLI against our server and make docs/compatibility.md, or in CI compare with it.
# Arguments go to pytest, and then the page is left alone. Without the reference there is nothing to run.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python

# An older release goes into .reference/VERSION; one that cannot be installed is named, and its column is skipped.
older() {
    local version=$1 staging log
    [ -d ".reference/$version" ] && return
    echo "interop: installing @openai/codex@$version into .reference/$version" >&2
    staging=$(mktemp -d .reference.XXXXXX)
    # Moved into place when complete, so that an interrupted installation is never taken for one.
    if log=$(timeout 180 npm install --prefix "$staging" --no-audit --no-fund --no-update-notifier \
        --ignore-scripts --fetch-retries=1 --fetch-timeout=120000 --loglevel=error \
        "@openai/codex@$version" 2>&1); then
        mv "$staging" ".reference/$version"
    else
        rm -rf "$staging"
        echo "interop: npm could not install $version: $(tail -n 3 <<<"$log")" >&2
    fi
}

if [ -z "$(scripts/reference.sh)" ]; then
    echo "interop: skipped, because the Codex CLI is not here and could not be installed" >&2
    exit 0
fi
if command -v npm >/dev/null; then
    for version in $($python -c 'from tests.interop.columns import OLDER; print(*OLDER)'); do
        older "$version"
    done
fi

table=(--compatibility="$([ -n "${CI:-}" ] && echo check || echo write)")
[ $# -gt 0 ] && table=()
exec $python -m pytest -q -n 2 --dist worksteal tests/interop "${table[@]}" "$@"
