#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Installs what build, test and demo need, from Debian's packages. Says nothing where all is there.
set -euo pipefail

# The workspace's rust-version.
RUST=1.91

declare -A PACKAGE_OF=(
    [cc]='gcc libc6-dev' [c++]=g++ [ld]=binutils [readelf]=binutils [lxc-start]=lxc [runc]=runc [busybox]=busybox-static
    [newuidmap]=uidmap [strace]=strace [shellcheck]=shellcheck
)

wanted=()
for program in "${!PACKAGE_OF[@]}"; do
    command -v "$program" >/dev/null || wanted+=(${PACKAGE_OF[$program]})
done
[ -e /usr/include/stdio.h ] || wanted+=(libc6-dev)
[ -e /etc/ssl/certs/ca-certificates.crt ] || wanted+=(ca-certificates)

install_packages() {
    if [ "$(id -u)" -ne 0 ]; then
        echo "run as root, or first: apt-get install -y --no-install-recommends $*" >&2
        exit 1
    fi
    if ! command -v apt-get >/dev/null; then
        echo "this is no Debian; install what Debian calls: $*" >&2
        exit 1
    fi
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 update
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" >&2
}

rust_is_new_enough() {
    local has
    has=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) && [ -n "$has" ] &&
        [ "$(printf '%s\n%s\n' "$RUST" "$has" | sort -V | sed -n 1p)" = "$RUST" ]
}

# Debian 13 has it in its backports; where the mirror is, its own sources say. Debian 12 has none.
install_rust() {
    local codename mirror list
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    if [ "$codename" != trixie ]; then
        cat >&2 <<TEXT
gpuhook needs Rust $RUST or newer, and this system's packages have none (Debian 13's backports do).
Install it from https://rustup.rs (with the components clippy and rustfmt), then run this again.
TEXT
        exit 1
    fi
    install_packages ca-certificates
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: trixie' 'Created-By: Packages' | sed -n 1p)
    list=/etc/apt/sources.list.d/trixie-backports.list
    if [ -z "$(apt-get indextargets 'Codename: trixie-backports')" ]; then
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie-backports main" >"$list"
        echo "added $list, for Rust $RUST" >&2
    fi
    install_packages -t trixie-backports cargo rustc rust-clippy rustfmt
}

[ ${#wanted[@]} -eq 0 ] || install_packages "${wanted[@]}"
rust_is_new_enough || install_rust
