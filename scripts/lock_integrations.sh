#!/usr/bin/env bash
# Resolve integrations/locks/NAME.in, with what our package needs, into NAME.lock, for the names in $@ or all.
# A lock has the exact versions of everything that was installed; it has no hashes, because none of it is shipped.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ $# -gt 0 ] || set -- $(basename -s .in integrations/locks/*.in)
for name in "$@"; do
    input=integrations/locks/$name.in
    python=$(scripts/python_of.sh "$(sed -n 's/^# python //p' "$input")")
    echo "locking $name" >&2
    "$python" -m venv "$scratch/$name"
    "$scratch/$name/bin/pip" install --quiet --disable-pip-version-check -r "$input" . editables hatchling
    # A package whose other dependencies conflict with ours, and of which a part is used: `# no-deps NAME==VERSION`.
    while read -r package; do
        "$scratch/$name/bin/pip" install --quiet --disable-pip-version-check --no-deps "$package"
    done < <(sed -n 's/^# no-deps //p' "$input")
    {
        echo "# Made by scripts/lock_integrations.sh from $name.in."
        "$scratch/$name/bin/pip" freeze --disable-pip-version-check | grep -v '^exec-server'
    } >"integrations/locks/$name.lock"
    rm -rf "${scratch:?}/$name"
done
