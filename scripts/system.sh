#!/usr/bin/env bash
# Install bubblewrap and libseccomp when they are missing and this user may, and the programs that tests run for real: zsh,
# OpenSSH's client, rsync, sshfs, ripgrep, PostgreSQL and nats-server. Always succeeds: without the first two the server
# refuses what it cannot enforce, and tests that need what is not there are skipped. Tests start servers of their own; a
# cluster that a package makes on its own is not used, and no ssh server is installed. Where CI=true, Chromium is installed, too.
set -uo pipefail
limit=120

without() {
    echo "system: $*" >&2
    exit 0
}

has_seccomp() {
    ldconfig -p 2>/dev/null | grep -q 'libseccomp\.so\.2' || ls /usr/lib/libseccomp.so.2 >/dev/null 2>&1
}

has_postgresql() {
    command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
}

has_nats() {
    # Packages install it outside of the usual PATH.
    command -v nats-server >/dev/null || [ -x /usr/sbin/nats-server ]
}

[ "$(uname -s)" = Linux ] || exit 0
missing=()
for each in bwrap:bubblewrap zsh:zsh ssh:openssh-client rsync:rsync sshfs:sshfs rg:ripgrep; do
    command -v "${each%%:*}" >/dev/null || missing+=("${each#*:}")
done
[ "${CI:-}" != true ] || command -v chromium >/dev/null || missing+=(chromium)
has_seccomp || missing+=(libseccomp)
has_postgresql || missing+=(postgresql)
has_nats || missing+=(nats-server)
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
else
    without "${missing[*]}: not installed, and this user cannot install it; its tests are skipped"
fi

run() {
    timeout "$limit" "${as_root[@]}" "$@" >/dev/null 2>&1
}

echo "system: installing ${missing[*]}" >&2
if command -v apt-get >/dev/null; then
    packages=("${missing[@]/#libseccomp/libseccomp2}")
    install=(env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends)
    run env DEBIAN_FRONTEND=noninteractive apt-get update -qq
elif command -v dnf >/dev/null; then
    packages=("${missing[@]/#postgresql/postgresql-server}")
    packages=("${packages[@]/#openssh-client/openssh-clients}")
    packages=("${packages[@]/#sshfs/fuse-sshfs}")
    install=(dnf install -q -y)
elif command -v apk >/dev/null; then
    packages=("${missing[@]}")
    install=(apk add -q)
else
    without "${missing[*]}: no package manager known here; install it for the tests that need it"
fi
# One by one, so that a package that is missing does not stop the others.
for package in "${packages[@]}"; do
    run "${install[@]}" "$package" || echo "system: $package could not be installed" >&2
done
