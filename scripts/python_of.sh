#!/usr/bin/env bash
# Print an interpreter of Python $1 (such as 3.12) or newer; exit status 1 if there is none.
set -euo pipefail
wanted=$1
fits() {
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] < tuple(map(int, sys.argv[1].split("."))))' "$wanted" 2>/dev/null
}
for found in "python$wanted" "${PYTHON:-python3}" python3.13 python3.14 \
    "${PYENV_ROOT:-$HOME/.pyenv}/versions/$wanted".*/bin/python; do
    if fits "$found"; then
        command -v "$found"
        exit
    fi
done
echo "Python $wanted is not installed" >&2
exit 1
