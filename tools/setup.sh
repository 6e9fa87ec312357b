#!/usr/bin/env bash
# Makes .venv complete: the packages of uv.lock, then the Rust extension in release mode.
# The steps leave a stamp and are skipped while nothing they read has changed.
# usage: tools/setup.sh [deps|native|site]...    (the first two, in this order, where none is named)
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$(tools/rust_env.sh path)
export PATH
rustup_home=$(tools/rust_env.sh rustup-home)
[ -z "$rustup_home" ] || export RUSTUP_HOME="$rustup_home"
# A Python newer than 3.10 is asked of the machine, not fetched behind its owner's back.
export UV_PYTHON_DOWNLOADS="${UV_PYTHON_DOWNLOADS:-never}"
# The machine's own certificates: they know the proxy where there is one.
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}"; fi

say() { printf '==> %s\n' "$*" >&2; }

# True when the stamp is missing or older than one of the given files and folders.
stale() {
    local stamp=$1
    shift
    [ ! -e "$stamp" ] || [ -n "$(find "$@" -newer "$stamp" -not -name '*.md' -print -quit)" ]
}

deps() {
    stale .venv/.stamp-deps pyproject.toml uv.lock || return 0
    local uv
    uv=$(tools/uv.sh)
    say "packages: creating .venv and filling it from uv.lock (torch is the large one: several GB at the first time)"
    env -u VIRTUAL_ENV "$uv" sync --frozen --inexact --no-install-project --extra demo --extra ray --extra atari --extra video --extra box2d --extra onnx --extra stable-baselines3 --extra torchrl --extra parquet --extra minari --extra lerobot --group dev
    touch .venv/.stamp-deps
}

native() {
    [ -e .venv/.stamp-native ] && [ -e python/reverie/_native.abi3.so ] || rm -f .venv/.stamp-native
    stale .venv/.stamp-native crates Cargo.toml Cargo.lock pyproject.toml || return 0
    if ! command -v cargo >/dev/null 2>&1; then
        say "cargo is neither in PATH nor in ~/.cargo/bin: install a Rust toolchain (1.89 or newer) and run this again"
        exit 1
    fi
    local uv
    uv=$(tools/uv.sh)
    say "rust: building reverie._native in release mode (a few minutes at the first time, cargo shows its progress)"
    PATH="$(dirname "$uv"):$PATH" VIRTUAL_ENV="$PWD/.venv" .venv/bin/maturin develop --release --uv --locked
    touch .venv/.stamp-native
}

site() {
    stale .venv/.stamp-site pyproject.toml uv.lock || return 0
    say "packages: those that make the site"
    env -u VIRTUAL_ENV "$(tools/uv.sh)" sync --frozen --inexact --no-install-project --only-group site
    touch .venv/.stamp-site
}

[ $# -gt 0 ] || set -- deps native
for step in "$@"; do "$step"; done
