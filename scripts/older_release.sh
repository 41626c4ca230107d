#!/usr/bin/env bash
# Install releases of Codex into .reference/VERSION; one that cannot be installed is named, and is not tried then.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v npm >/dev/null || exit 0

for version in "$@"; do
    [ -d ".reference/$version" ] && continue
    echo "installing @openai/codex@$version into .reference/$version" >&2
    staging=$(mktemp -d .reference.XXXXXX)
    # Moved into place when complete, so that an interrupted installation is never taken for one.
    if log=$(timeout 180 npm install --prefix "$staging" --no-audit --no-fund --no-update-notifier \
        --ignore-scripts --fetch-retries=1 --fetch-timeout=120000 --loglevel=error \
        "@openai/codex@$version" 2>&1); then
        mv "$staging" ".reference/$version"
    else
        rm -rf "$staging"
        echo "npm could not install $version: $(tail -n 3 <<<"$log")" >&2
    fi
done
