#!/usr/bin/env bash
# Fuzzes each target under fuzz/targets for some seconds, from its committed corpus; ends at the first crash.
# Needs a C++ compiler, for libFuzzer; neither a nightly toolchain nor cargo-fuzz.
# usage: tools/fuzz.sh SECONDS [TARGET]...
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
seconds=$1
shift
[ $# -gt 0 ] || { set -- targets/*.rs; set -- "${@##*/}"; set -- "${@%.rs}"; }
# Instrumentation that shows libFuzzer which branches an input took, and what it was compared with. Not for the build
# scripts: hence the explicit target.
flags="--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$option"
done
host=$(rustc -vV | sed -n 's/^host: //p')
folder=${CARGO_TARGET_DIR:-target}
for target in "$@"; do
    RUSTFLAGS="$flags" cargo build --locked --release --quiet --target "$host" --target-dir "$folder/fuzz" --bin "$target"
    # New inputs go to the first folder, which is not committed.
    mkdir -p "$folder/found/$target" "$folder/crashes"
    echo "==> $target, $seconds s"
    "$folder/fuzz/$host/release/$target" "$folder/found/$target" "corpus/$target" -max_total_time="$seconds" \
        -timeout=10 -rss_limit_mb=1024 -max_len=4096 -artifact_prefix="$folder/crashes/" -print_final_stats=1 2>&1 |
        { grep -vE '^#[0-9]+[[:space:]]+(NEW|REDUCE|RELOAD|pulse)|^INFO: |NEW_FUNC|^WARNING: Failed to find|Recommended dictionary|# Uses: ' || true; }
done
