#!/usr/bin/env bash
# Install the reference implementation into .reference and print where its binary is.
# If it is not available: nothing on stdout, the reason on stderr, exit status 0; tests that compare with it are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
package=@openai/codex@0.166.0

binary() {
    local found
    [ "$(cat .reference/package 2>/dev/null)" = "$package" ] || return 1
    # The platform's own package lies beside the launcher: codex-linux-x64, codex-darwin-arm64, ...
    for found in .reference/node_modules/@openai/codex-*/vendor/*/bin/codex; do
        [ -x "$found" ] && echo "$PWD/$found" && return
    done
    return 1
}

without() {
    echo "reference: $*; tests that compare with it are skipped" >&2
    exit 0
}

binary && exit
command -v npm >/dev/null || without "npm is not installed"

echo "reference: installing $package into .reference" >&2
# Moved into place when complete, so that an interrupted installation is never taken for one.
staging=$(mktemp -d .reference.XXXXXX)
trap 'rm -rf "$staging"' EXIT
log=$(npm install --prefix "$staging" --no-audit --no-fund --no-update-notifier --ignore-scripts \
    --fetch-retries=1 --fetch-timeout=120000 --loglevel=error "$package" 2>&1) ||
    without "npm could not install $package: $(tail -n 5 <<<"$log")"
echo "$package" >"$staging/package"
rm -rf .reference
mv "$staging" .reference
binary || without "$package has no binary for this platform"
