#!/bin/sh
# The engine's tests of unsafe code under valgrind's memcheck: what is read before it was written, or next to what was
# allocated, or after it was freed, and what is never freed. Random sequences are few: each takes fifty times as long.
set -eu
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "valgrind is missing: install your system's package of that name" >&2; exit 1; }
export PROPTEST_CASES=4
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind --quiet --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite --error-exitcode=1"
# That test returns bytes that are never freed: a leak.
leaks=a_filler_that_gives_back_other_bytes_makes_no_slice
run() { cargo test --locked --quiet --package reverie-core "$@" -- --test-threads=1 --skip "$leaks"; }
run --lib chunk::slab
run --test chunk --test batch
