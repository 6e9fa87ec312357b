#!/usr/bin/env bash
# Has compilers read the code for systems that no machine here has: the three crates for macOS (aarch64) and Windows
# (x86-64), and the Python package as on either. Nothing of it is linked or run.
# usage: tools/other_systems.sh [rust|python]...    (both where none is named)
#   rust     Debian's Rust checks the crates, in a root of its own, with the standard library that it compiles from
#            source for each system; zig compiles their C code. Needs root and debootstrap, on x86-64
#   python   mypy checks the package with the standard library's names of each system
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/wheels/roots.sh

rust() {
    install_tools
    need_roots debootstrap unshare
    make_root systems amd64 "$suite" cargo-web rustc-web rust-web-src binutils-mingw-w64-x86-64
    # The crates, and those of the standard library, come from here: the root needs no network and no certificates.
    cargo fetch --locked
    RUSTC_BOOTSTRAP=1 cargo fetch --locked --manifest-path "$(echo "$work"/systems/usr/src/rustc-*)/library/Cargo.toml"
    alone in-systems
}

in_systems() {
    local root=$work/systems cargo=${CARGO_HOME:-$HOME/.cargo} zig
    mkdir -p "$root/build" "$root/cargo/registry"
    mount --bind . "$root/build"
    mount --bind "$cargo/registry" "$root/cargo/registry"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    zig=$(cd "$tools" && echo lib/python*/site-packages/ziglang)
    check aarch64-apple-darwin aarch64-macos
    check x86_64-pc-windows-gnu x86_64-windows-gnu
}

# Rust calls the unstable `-Zbuild-std` only where RUSTC_BOOTSTRAP says that it may. cc asks Xcode for the SDK unless
# SDKROOT names one, and pyo3 needs no Python of the other system for a stable ABI.
check() { # check TARGET ZIGS_NAME
    say "the crates for $1"
    local name=${1//-/_}
    chroot "$root" /usr/bin/env -i HOME=/root CARGO_HOME=/cargo CARGO_NET_OFFLINE=true CARGO_INCREMENTAL=0 \
        CARGO_TARGET_DIR="/build/$work/cargo-systems" PATH="/build/$tools/$zig:/usr/bin:/bin" RUSTC_BOOTSTRAP=1 \
        RUSTFLAGS="-D warnings" SDKROOT=/sdk MACOSX_DEPLOYMENT_TARGET=11.0 PYO3_NO_PYTHON=1 \
        "CC_$name=/build/tools/wheels/zig_cc.sh $2" "AR_$name=zig ar" \
        /bin/sh -euc "cd /build && exec cargo check --locked -Zbuild-std=std,panic_unwind --target $1 \
            --package reverie-core --package reverie-net --package reverie-py --features reverie-py/extension-module"
}

python() {
    tools/setup.sh
    local system
    for system in darwin win32; do
        say "the package on $system"
        # Code that another system leaves out is meant to be unreachable there.
        .venv/bin/mypy --platform "$system" --no-warn-unreachable --cache-dir "target/mypy-$system"
    done
}

[ $# -gt 0 ] || set -- rust python
for part in "$@"; do
    case $part in
    rust | python) "$part" ;;
    in-systems) in_systems ;;
    *) fail "no part '$part': rust or python" ;;
    esac
done
