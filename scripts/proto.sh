#!/usr/bin/env bash
# Make the Python module of relay.proto, and its types, in src or in the directory given.
set -euo pipefail
cd "$(dirname "$0")/.."

# Relative to src, so that the name in protobuf's global registry is one that no other package uses.
out=${1:-src}
"${PYTHON:-.venv/bin/python}" -m grpc_tools.protoc -Isrc --python_out="$out" --pyi_out="$out" \
    src/exec_server/relay/relay.proto
