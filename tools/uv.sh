#!/usr/bin/env bash
# Prints the path of a uv that runs. If there is none, installs one into .tools/uv through pip:
# `--target` needs no virtual environment, works where the system's Python is externally managed
# (PEP 668), and leaves the home directory alone.
set -euo pipefail
cd "$(dirname "$0")/.."

if command -v uv >/dev/null 2>&1 && uv --version >/dev/null 2>&1; then
    command -v uv
    exit 0
fi
if ! .tools/uv/bin/uv --version >/dev/null 2>&1; then
    echo "==> no uv here: installing one into .tools/uv" >&2
    python=${PYTHON:-python3}
    if ! "$python" -m pip --version >/dev/null 2>&1; then
        echo "$python has no pip: install pip (or uv) and run this again, or name another interpreter with PYTHON=" >&2
        exit 1
    fi
    "$python" -m pip install --quiet --disable-pip-version-check --upgrade --target .tools/uv uv >&2
fi
echo "$PWD/.tools/uv/bin/uv"
