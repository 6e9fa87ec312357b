#!/usr/bin/env bash
# Prints where the Rust toolchain is, for machines whose HOME is not the one it was installed under (CI, containers).
# usage: tools/rust_env.sh path          PATH, with the usual folders of cargo behind it
#        tools/rust_env.sh rustup-home   the RUSTUP_HOME to set, or nothing where rustup finds its own
set -euo pipefail

owner=$(getent passwd "$(id -u)" 2>/dev/null | cut -d: -f6 || true)
path="$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin:$owner/.cargo/bin"

holds_toolchain() { [ -n "$(ls -A "$1/toolchains" 2>/dev/null)" ]; }

case ${1:-} in
path) echo "$path" ;;
rustup-home)
    [ -z "${RUSTUP_HOME:-}" ] || exit 0
    # A failed call leaves settings behind, so what counts is an installed toolchain.
    if holds_toolchain "${HOME:-}/.rustup"; then exit 0; fi
    # rustup's proxies lie in <home>/.cargo/bin and look for <home>/.rustup by $HOME alone.
    cargo=$(PATH="$path" command -v cargo || true)
    nearby="$(dirname "$(dirname "$(dirname "${cargo:-/}")")")/.rustup"
    for folder in "$nearby" "$owner/.rustup"; do
        if holds_toolchain "$folder"; then
            echo "$folder"
            break
        fi
    done
    ;;
*)
    echo "usage: $0 path | rustup-home" >&2
    exit 2
    ;;
esac
