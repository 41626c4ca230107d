#!/usr/bin/env bash
# Run the unmodified Codex CLI against our server and make docs/compatibility.md, or in CI compare with it.
# Arguments go to pytest, and then the page is left alone. Without the reference there is nothing to run.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python

if [ -z "$(scripts/reference.sh)" ]; then
    echo "interop: skipped, because the Codex CLI is not here and could not be installed" >&2
    exit 0
fi
scripts/older_release.sh $($python -c 'from tests.interop.columns import OLDER; print(*OLDER)')

table=(--compatibility="$([ -n "${CI:-}" ] && echo check || echo write)")
[ $# -gt 0 ] && table=()
exec $python -m pytest -q -n 2 --dist worksteal tests/interop "${table[@]}" "$@"
