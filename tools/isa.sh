#!/usr/bin/env bash
# Runs the tests of what PyTorch and NumPy compute as on other processors: the libraries are set to use no more than an
# older instruction set, whose sums are added in another order.
# usage: [LEVELS="default avx2"] tools/isa.sh [pytest's options]     without LEVELS: all that this processor has
set -euo pipefail
cd "$(dirname "$0")/.."

has() { grep -qw -m1 "$1" /proc/cpuinfo; }
if [ -z "${LEVELS:-}" ]; then
    # PyTorch takes the word for it, and would end by SIGILL where the processor has less.
    LEVELS=default
    if has avx2; then LEVELS+=" avx2"; fi
    if has avx512f && has avx512bw && has avx512vl; then LEVELS+=" avx512"; fi
fi
# PyTorch's own kernels; oneDNN's convolutions; MKL's products (it takes no other word on processors of AMD); OpenBLAS,
# which NumPy multiplies with.
limits() {
    case $1 in
    default) echo ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Prescott ;;
    avx2) echo ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2 OPENBLAS_CORETYPE=Haswell ;;
    avx512) echo ATEN_CPU_CAPABILITY=avx512 ONEDNN_MAX_CPU_ISA=AVX512_CORE MKL_CBWR=AVX512 OPENBLAS_CORETYPE=SkylakeX ;;
    *)
        echo "level is '$1', and must be default, avx2 or avx512" >&2
        exit 2
        ;;
    esac
}
tests=(tests/agents tests/flow tests/runners/test_local.py tests/runners/checkpoints/test_run_checkpoints.py tests/runners/roles/test_learners.py
    tests/runners/links/test_parameter_connections.py)
for level in $LEVELS; do
    set_to=$(limits "$level")
    echo "==> instruction set $level: $set_to" >&2
    # shellcheck disable=SC2086
    env $set_to .venv/bin/python -m pytest -n "${WORKERS:-2}" --dist loadgroup -m "not slow" "${tests[@]}" "$@"
done
