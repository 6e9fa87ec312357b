# Shared by the scripts of other systems: the pinned tools, and roots of Debian. Sourced from the checkout's folder.

work=target/wheels
tools=.venvs/wheels
PATH=$(tools/rust_env.sh path)
export PATH
rustup_home=$(tools/rust_env.sh rustup-home)
[ -z "$rustup_home" ] || export RUSTUP_HOME="$rustup_home"
export UV_PYTHON_DOWNLOADS="${UV_PYTHON_DOWNLOADS:-never}"
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}"; fi
# Debian's release with a Rust that is new enough (`rustc-web`) and an arm64 standard library.
suite=trixie

say() { printf '==> %s\n' "$*" >&2; }
fail() { say "$*" && exit 1; }

# maturin, zig, auditwheel and twine, in the versions that tools/wheels/requirements.txt names.
install_tools() {
    [ "$(uname -m)" = x86_64 ] || fail "this machine is $(uname -m): the wheels are made on x86_64"
    command -v cargo >/dev/null || fail "cargo is neither in PATH nor in ~/.cargo/bin: install Rust 1.89 or newer"
    uv=$(tools/uv.sh)
    PATH="$PWD/$tools/bin:$PATH"
    [ "$tools/.stamp" -nt tools/wheels/requirements.txt ] && return
    say "packages: the tools that make wheels"
    "$uv" venv --quiet --clear --python "${PYTHON:-3.11}" "$tools"
    "$uv" pip install --quiet --python "$tools/bin/python" --require-hashes --no-build -r tools/wheels/requirements.txt
    touch "$tools/.stamp"
}

need_roots() { # need_roots COMMAND...
    local missing=() one
    [ "$(id -u)" = 0 ] || fail "a root of Debian is made and entered by root: name other parts, or become root"
    for one in "$@"; do command -v "$one" >/dev/null || missing+=("$one"); done
    [ ${#missing[@]} -eq 0 ] || fail "not here: ${missing[*]}; apt-get install debootstrap util-linux"
}

# A folder with Debian under $work; `.stamp` is there once it is whole.
make_root() { # make_root NAME ARCHITECTURE SUITE PACKAGE...
    local root=$work/$1 architecture=$2 release=$3
    shift 3
    [ ! -e "$root/.stamp" ] || return 0
    say "root: Debian $release $architecture"
    mkdir -p "$work"
    rm -rf "$root"
    if ! debootstrap --variant=minbase --arch="$architecture" "$release" "$root" >"$root.log" 2>&1; then
        tail -n 20 "$root.log" >&2
        fail "debootstrap failed: $root.log"
    fi
    install_packages "$root" "$@" && touch "$root/.stamp"
}

install_packages() { # install_packages ROOT PACKAGE...
    local root=$1
    shift
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    dpkg --root="$root" --add-architecture arm64
    chroot "$root" apt-get -q update
    DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get -q -y --no-install-recommends install "$@"
    chroot "$root" apt-get clean
}

# Runs the rest of this file's part in a mount namespace of its own: what it mounts is gone with it.
alone() { unshare --mount --propagation private "$BASH" "$0" "$@"; }
