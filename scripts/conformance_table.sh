#!/usr/bin/env bash
# Run the conformance kit on releases of Codex and on ours, and write its part of docs/compatibility.md.
# Arguments are names of rows; the other rows stay as the last run has left them in build/conformance.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python

if [ -z "$(scripts/reference.sh)" ]; then
    echo "conformance-table: skipped, because Codex is not here and could not be installed" >&2
    exit 0
fi
scripts/older_release.sh $($python -c 'from tests.conformance.table import OLDER; print(*OLDER)')
exec $python -m tests.conformance.table "$@"
