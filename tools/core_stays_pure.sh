#!/usr/bin/env bash
# The core has no Python, no runtime and no wire: its normal dependencies must not name one.
set -euo pipefail
cd "$(dirname "$0")/.."
tree=$(cargo tree --locked -p reverie-core -e normal --prefix none)
if grep -E '^(pyo3|tokio|tonic|prost)' <<<"$tree"; then
    echo "reverie-core must not depend on the above (house rule: pure, synchronous)" >&2
    exit 1
fi
echo "reverie-core: $(sort -u <<<"$tree" | wc -l) crates, none of pyo3, tokio, tonic, prost"
