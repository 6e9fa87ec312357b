#!/usr/bin/env bash
# Makes the files of a release under dist/release and tries them: an sdist, and from it a wheel for x86-64 and one for
# aarch64, both manylinux_2_17. Needs a machine with x86-64; `newer` and aarch64 also need root, debootstrap and
# qemu-user-static.
# usage: tools/wheels.sh [PART...]    the parts in this order, where none is named: sdist x86_64 pythons newer aarch64 emulated
#        tools/wheels.sh pins         takes the newest tools and writes tools/wheels/requirements.txt
#   sdist      the source, checked by twine
#   x86_64     its wheel, made from the sdist alone, checked by auditwheel and twine
#   pythons    that wheel on each CPython from 3.11 on that this machine has: its use, then the quick tests of the flow;
#              PYTHONS="3.11 3.12" must be there
#   newer      its use on CPython 3.14 and 3.15, in a root of Debian testing
#   aarch64    the wheel for aarch64, cross-built by Debian's Rust in a root of its own, checked in the same way
#   emulated   that wheel in an arm64 root under qemu-user: its use, then those tests of the flow that are marked so: some of
#              each word, over each path; ARGS="tests/flow" runs all quick ones (an hour or more)
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/wheels/roots.sh

# The oldest glibc.
glibc=17
release=dist/release
# How the kernel is to start programs for arm64, as Debian's package of qemu writes it.
qemu=/usr/lib/binfmt.d/qemu-aarch64.conf
binfmt=/proc/sys/fs/binfmt_misc
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
sdist=$release/reverie-$version.tar.gz

wheel() { # wheel ARCHITECTURE
    local found
    found=$(find "$release" -name "reverie-$version-cp311-abi3-*_$1.whl" 2>/dev/null)
    [ -f "$found" ] || fail "no wheel for $1 under $release: run tools/wheels.sh sdist $1"
    echo "$found"
}

pins() {
    local uv
    uv=$(tools/uv.sh)
    (cd tools/wheels && UV_CUSTOM_COMPILE_COMMAND="tools/wheels.sh pins" "$uv" pip compile --quiet --upgrade \
        --generate-hashes --universal --python-version 3.11 requirements.in -o requirements.txt)
}

sdist() {
    install_tools
    say "sdist"
    rm -rf "$release"
    maturin sdist --out "$release"
    twine check --strict "$sdist"
}

# Checks the tags of a wheel: auditwheel reads the symbols that it needs.
check() { # check ARCHITECTURE
    local file tag
    file=$(wheel "$1")
    twine check --strict "$file"
    auditwheel show "$file" | tee "$work/auditwheel-$1.txt"
    tag=$(tr '\n' ' ' <"$work/auditwheel-$1.txt" | sed -n 's/.*following platform tag: *"manylinux_2_\([0-9]*\)_'"$1"'".*/\1/p')
    [ -n "$tag" ] && [ "$tag" -le "$glibc" ] || fail "auditwheel finds $file no manylinux_2_$glibc"
}

# As `pip install` of the sdist builds it, but with zig as the linker.
x86_64() {
    install_tools
    [ -f "$sdist" ] || fail "no $sdist: run tools/wheels.sh sdist x86_64"
    say "wheel for x86-64 (a few minutes)"
    rm -f "$release"/*_x86_64.whl
    # uv unpacks it below the folder of its results, which is outside of this checkout: it must do without its files.
    local empty
    empty=$(mktemp -d)
    CARGO_TARGET_DIR="$PWD/$work/cargo" \
        MATURIN_PEP517_ARGS="--zig --locked --compatibility manylinux_2_$glibc --target x86_64-unknown-linux-gnu" \
        "$uv" build --no-build-isolation --python "$tools/bin/python" --wheel --out-dir "$empty" "$sdist"
    mv "$empty"/*.whl "$release"
    rm -rf "$empty"
    check x86_64
}

# A free-threaded build takes no wheel of this stable ABI, and uv finds it under another name (`3.14t`).
find_python() { # find_python MINOR
    "$uv" python find --no-project --system "cpython==$1.*" 2>/dev/null && return
    # pyenv's shims work only for the versions that it was asked to make global.
    compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1.*/bin/python$1" | head -n 1 || true
}

pythons() {
    install_tools
    local file minor python tried="" tests=$work/tests
    file=$(wheel x86_64)
    rm -rf "$tests"
    mkdir -p "$tests"
    cp -r pyproject.toml tests "$tests"
    "$uv" export --quiet --frozen --no-hashes --no-emit-project --group dev -o "$tests/constraints.txt"
    for minor in 3.11 3.12 3.13 3.14 3.15; do
        python=$(find_python "$minor")
        if [ -z "$python" ]; then
            [[ " ${PYTHONS:-} " != *" $minor "* ]] || fail "this machine has no CPython $minor"
            say "not tried: this machine has no CPython $minor"
            continue
        fi
        say "the wheel on CPython $minor: $python"
        "$uv" venv --quiet --clear --python "$python" "$work/python"
        "$uv" pip install --quiet --no-build --python "$work/python/bin/python" "$file"
        # Without a PATH neither cargo nor a compiler can be found.
        (cd "$work" && env -u PYTHONPATH PATH= python/bin/python -P ../../tools/wheels/probe.py)
        "$uv" pip install --quiet --no-build --python "$work/python/bin/python" \
            --constraint "$tests/constraints.txt" pytest pytest-timeout pytest-xdist hypothesis
        (cd "$tests" && env -u PYTHONPATH PYTHONDONTWRITEBYTECODE=1 ../python/bin/python -P -m pytest -q -n 2 \
            --dist loadgroup -p no:cacheprovider tests/flow)
        tried+=" $minor"
    done
    [ -n "$tried" ] || fail "this machine has no CPython from 3.11 on"
    say "tried on CPython$tried"
}

aarch64() {
    install_tools
    need_roots debootstrap unshare
    [ -f "$sdist" ] || fail "no $sdist: run tools/wheels.sh sdist aarch64"
    make_root cross amd64 "$suite" cargo-web rustc-web libstd-rust-web-dev:arm64
    say "wheel for aarch64 (a few minutes)"
    rm -f "$release"/*_aarch64.whl
    rm -rf "$work/cross/source"
    mkdir -p "$work/cross/source"
    tar -xzf "$sdist" -C "$work/cross/source" --strip-components 1
    # The crates come from here, so the root needs no network and no certificates.
    cargo fetch --locked --manifest-path "$work/cross/source/Cargo.toml"
    alone in-cross
    check aarch64
}

in_cross() {
    local root=$work/cross cargo=${CARGO_HOME:-$HOME/.cargo}
    mkdir -p "$root/build" "$root/cargo/registry"
    mount --bind . "$root/build"
    mount --bind "$cargo/registry" "$root/cargo/registry"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    local zig
    zig=$(cd "$tools" && echo lib/python*/site-packages/ziglang)
    # maturin is a program and needs no Python: neither does a wheel of the stable ABI.
    chroot "$root" /usr/bin/env -i HOME=/root CARGO_HOME=/cargo CARGO_NET_OFFLINE=true \
        CARGO_TARGET_DIR="/build/$work/cargo-cross" PATH="/build/$tools/bin:/build/$tools/$zig:/usr/bin:/bin" \
        /bin/sh -euc "cd /source && exec maturin build --release --zig --locked \
            --compatibility manylinux_2_$glibc --target aarch64-unknown-linux-gnu --out /build/$release"
}

emulated() {
    install_tools
    need_roots debootstrap unshare
    [ -e "$qemu" ] || fail "no $qemu: apt-get install qemu-user-static"
    wheel aarch64 >/dev/null
    alone in-arm64
}

in_arm64() {
    [ -e $binfmt/register ] || mount -t binfmt_misc binfmt_misc $binfmt
    if [ ! -e $binfmt/qemu-aarch64 ]; then
        # The kernel keeps qemu open (flag F), so the root needs no copy of it.
        cat "$qemu" >$binfmt/register
        trap 'echo -1 >$binfmt/qemu-aarch64' EXIT
    fi
    make_root arm64 arm64 "$suite" python3
    say "the wheel for aarch64, emulated: its use, then tests of the flow (slow)"
    # uv installs from here, for the root's Python and glibc: pip takes many minutes under emulation.
    in_root arm64 aarch64 "uname -m
        export PYTHONPATH=/tried/site PYTHONDONTWRITEBYTECODE=1
        python3 -P probe.py
        python3 -P -m pytest -p no:cacheprovider ${ARGS:-tests/flow -m emulated}" \
        --target "$work/arm64/tried/site" --python-platform aarch64-manylinux_2_40 --python-version 3.13
}

newer() {
    install_tools
    need_roots debootstrap unshare
    wheel x86_64 >/dev/null
    make_root newer amd64 testing python3.14-venv python3.15-venv ca-certificates
    alone in-newer
}

in_newer() {
    say "the wheel for x86-64 on the newer versions of CPython"
    in_root newer x86_64 "try python3.14
        try python3.15"
}

# Runs commands in a root that has a wheel and the tests, and the package itself nowhere else. There `try PYTHON
# PACKAGE...` makes an environment with the wheel and these packages, and uses the wheel.
# With options of `uv pip install`, uv also installs the wheel and pytest.
in_root() { # in_root NAME ARCHITECTURE COMMANDS [OPTION...]
    local root=$work/$1 commands=$3 file uv
    file=$(wheel "$2")
    shift 3
    uv=$(tools/uv.sh)
    rm -rf "$root/tried"
    mkdir -p "$root/tried"
    cp -r pyproject.toml tests tools/wheels/probe.py "$file" "$root/tried"
    "$uv" export --quiet --frozen --no-hashes --no-emit-project --group dev -o "$root/tried/constraints.txt"
    [ $# -eq 0 ] || "$uv" pip install --quiet --no-build --constraint "$root/tried/constraints.txt" "$@" \
        "$file" pytest pytest-timeout hypothesis
    # The machine's own certificates know its proxy.
    cp /etc/ssl/certs/ca-certificates.crt "$root/tried/certificates.crt"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/bin:/bin CI=true PIP_CERT=/tried/certificates.crt \
        ${https_proxy:+https_proxy="$https_proxy"} /bin/sh -euc "
        try() {
            \$1 -m venv \$1
            (python=\$1 && shift && \$python/bin/pip install --quiet --disable-pip-version-check --only-binary :all: \
                --constraint constraints.txt $(basename "$file") \$@)
            \$1/bin/python -P probe.py
        }
        cd /tried
        $commands"
}

[ $# -gt 0 ] || set -- sdist x86_64 pythons newer aarch64 emulated
for part in "$@"; do
    case $part in
    pins | sdist | x86_64 | pythons | newer | aarch64 | emulated) "$part" ;;
    in-cross) in_cross ;;
    in-newer) in_newer ;;
    in-arm64) in_arm64 ;;
    *) fail "no part '$part': sdist, x86_64, pythons, newer, aarch64, emulated or pins" ;;
    esac
done
