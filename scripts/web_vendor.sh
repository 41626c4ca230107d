#!/bin/sh
# Fetches the parts of xterm.js that the page of `exec-server web` uses, and checks them by hash.
# It needs npm. The files are checked in: run this only to replace them by another release.
#
#   scripts/web_vendor.sh          replace the files in src/exec_server/web/assets/vendor
#   scripts/web_vendor.sh --check  compare the files with the packages, and change nothing
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
target="$root/src/exec_server/web/assets/vendor"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Package, release, SHA-256 of the package, the files that are taken from it.
packages='
xterm 6.0.0 908e66e04af6c8dc6b00dd3b54de088e2e81e5ed866284fd6c2fb3c2d1c7a3f6 lib/xterm.mjs css/xterm.css
addon-fit 0.11.0 26003b4517a132b64e4ff228fd88a5fda3fff5e606c76093f6dcff772e9ecec0 lib/addon-fit.mjs
addon-search 0.16.0 e9d0795c72f4de749ed996ad7868f0738b44f37cee1e483be81977cefd7f4f81 lib/addon-search.mjs
addon-unicode11 0.9.0 b665667792f916873fe946ba98cc98a1a742af08e163fb66e1c0809c120ca42e lib/addon-unicode11.mjs
addon-web-links 0.12.0 bf463cfff1af4bb1903509830c62ed06bcd0589039f15ea5fba71d7bae5a86da lib/addon-web-links.mjs
'

mkdir -p "$work/new"
echo "$packages" | while read -r name release hash files; do
    [ -n "$name" ] || continue
    (cd "$work" && npm pack --silent "@xterm/$name@$release" >/dev/null)
    packed="$work/xterm-$name-$release.tgz"
    echo "$hash  $packed" | sha256sum --check --quiet
    mkdir "$work/$name"
    tar -xzf "$packed" -C "$work/$name"
    for file in $files; do
        # The maps of the sources are not shipped, so the files must not ask for them.
        sed '/^\/\/# sourceMappingURL=/d' "$work/$name/package/$file" >"$work/new/$(basename "$file")"
    done
    cp "$work/$name/package/LICENSE" "$work/new/LICENSE-$name"
done

if [ "${1:-}" = --check ]; then
    diff -r "$work/new" "$target"
    echo "the files are those of the packages"
else
    rm -rf "$target"
    cp -r "$work/new" "$target"
    chmod 644 "$target"/*
    ls -l "$target"
fi
