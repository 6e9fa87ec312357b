#!/usr/bin/env bash
# Installs Debian's programs that some tests need, where this is root on a machine with apt-get. No service is started.
# Without them these tests are skipped: a program that cannot be installed is named, and is no failure.
# usage: tools/debian_programs.sh PROGRAM...
set -euo pipefail
guard=${POLICY_RC_D:-/usr/sbin/policy-rc.d}
missing=()
for program in "$@"; do
    command -v "$program" >/dev/null || missing+=("$program")
done
[ "${#missing[@]}" -gt 0 ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "==> tests that need ${missing[*]} are skipped: this is not root, or there is no apt-get"
    exit 0
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Packages start no service while this refuses it (invoke-rc.d).
if [ ! -e "$guard" ]; then
    trap 'rm -f "$log" "$guard"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$guard"
    chmod +x "$guard"
fi
timeout 120 apt-get -qq update >"$log" 2>&1 || {
    tail -n 3 "$log"
    echo "==> apt-get update failed; going on with the lists that are there"
}
for program in "${missing[@]}"; do
    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq install -y --no-install-recommends "$program" >"$log" 2>&1 || {
        tail -n 3 "$log"
        echo "==> tests that need $program are skipped: it could not be installed"
    }
done
