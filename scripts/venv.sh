#!/usr/bin/env bash
# Make a virtual environment in the folder $1 unless a working one is there. PYTHON names the interpreter.
set -euo pipefail
folder=$1
python=${PYTHON:-python3}

fail() {
    echo "error: $*" >&2
    exit 1
}

"$folder/bin/python" -m pip --version >/dev/null 2>&1 && exit

command -v "$python" >/dev/null || fail "$python is not installed; Python 3.11 or newer is needed (make PYTHON=...)"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$python is Python $version; 3.11 or newer is needed (make PYTHON=...)"

# Debian keeps the bundled pip in a package of its own, and `venv` fails half-way without it.
can_make() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null
}
if ! can_make; then
    package=python$version-venv
    remedy="install the package $package (on Debian and Ubuntu: apt-get install $package)"
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || fail "$python cannot make virtual environments; $remedy"
    echo "installing the system package $package" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 || true
    apt-get install -qq -y --no-install-recommends "$package" >&2 ||
        apt-get install -qq -y --no-install-recommends python3-venv >&2 || true
    can_make || fail "$python still cannot make virtual environments; $remedy"
fi

echo "making $folder with Python $version" >&2
"$python" -m venv --clear "$folder"
