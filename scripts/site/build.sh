#!/usr/bin/env bash
# Build the site into dist/site. Arguments go to sphinx-build.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=.tools/docs/bin
export PYTHONPATH=src:.
scripts/site/mermaid.sh build/site-static
mkdir -p build/site-static
"$bin/python" -m scripts.site.stage build/site-source
"$bin/sphinx-build" -W --keep-going -c scripts/site "$@" build/site-source dist/site
echo "dist/site/index.html: open it in a browser; no server is needed"
