#!/usr/bin/env bash
# Waits until the machine is quiet: what failed where others took its time is run once more only then. Says what it waits for.
# usage: tools/quiet.sh [seconds [file]]   at most so many seconds (300); the file is the kernel's account of pressure
set -euo pipefail

seconds=${1:-300}
file=${2:-/proc/pressure/cpu}
# The percentage of the last ten seconds in which a task waited for a CPU.
pressure() { sed -n 's/^some avg10=\([0-9]*\)\..*/\1/p' "$file" 2>/dev/null || true; }

ends=$((SECONDS + seconds))
shown=
while [ $SECONDS -lt $ends ]; do
    now=$(pressure)
    # A kernel that keeps no account: it is given a minute.
    if [ -z "$now" ]; then
        sleep $((seconds < 60 ? seconds : 60))
        exit 0
    fi
    [ "$now" -ge 25 ] || exit 0
    [ -n "$shown" ] || echo "==> waiting for a quiet machine: for $now % of the last seconds a task waited for a CPU" >&2
    shown=yes
    sleep 1
done
