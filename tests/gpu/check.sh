#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# What no test bed of this repository has: a GPU. Run this as root on a host that has one.
#
#     tests/gpu/check.sh [GPUHOOK]      GPUHOOK: a built binary; without it one is built
#
# It changes nothing on the host: no node, no module, no configuration. It starts one container of runc and one of LXC, where
# these are installed, from a root filesystem of its own with busybox and the host's C library and libcuda bind mounted.
# One line per check, PASS, FAIL or SKIP and why; status 1 where one failed; nothing stays behind.
#
#     DEVICES=0        which devices, in the words of NVIDIA_VISIBLE_DEVICES (all)
#     HOST_ROOT=DIR, LIBCUDA=FILE      for the test of this script alone: facts below DIR and a library that plays libcuda
set -uo pipefail

devices=${DEVICES:-all}
name=gpuhook-check-$$
failed=0

say() { # PASS|FAIL|SKIP, check, why
    [ "$1" != FAIL ] || failed=1
    printf '%s %s%s\n' "$1" "$2" "${3:+: $3}"
}

first_line() { sed -n '/./{p;q}' "$1" | cut -c 1-300; }

if [ "$(id -u)" -ne 0 ]; then
    say FAIL root 'run this as root'
    exit 1
fi

here=$(cd "$(dirname "$0")/../.." && pwd)
if [ $# -gt 0 ]; then
    gpuhook=$(realpath -- "$1")
else
    target=$(rustc -vV | sed -n 's/^host: //p')
    (cd "$here" && cargo build -q --release -p gpuhook) || { say FAIL build 'cargo build --release -p gpuhook'; exit 1; }
    gpuhook=${CARGO_TARGET_DIR:-$here/target}/$target/release/gpuhook
fi
[ -x "$gpuhook" ] || { say FAIL gpuhook "$gpuhook is no program"; exit 1; }

scratch=$(mktemp -d /tmp/gpuhook-check.XXXXXX)
out=$scratch/out
options=(--config "$scratch/config.toml")
[ -z "${HOST_ROOT:-}" ] || options+=(--host-root "$HOST_ROOT")

# A hook's child and LXC's monitor outlive their container by a moment.
wait_for_all() {
    local pid
    for pid in $(pgrep -f -- "$scratch/"); do
        timeout 30 tail --pid="$pid" -f /dev/null
    done
}

# shellcheck disable=SC2317 # called by the trap
clean() {
    runc --root "$scratch/runc" delete --force "$name" >/dev/null 2>&1
    lxc-stop -P "$scratch/lxc" -n "$name" -k >/dev/null 2>&1
    wait_for_all
    rm -rf --one-file-system "$scratch"
}
trap clean EXIT
trap 'exit 130' INT TERM

# Every check refuses the start. Without a driver behind the numbers no open can succeed.
l3=enforce
[ -z "${HOST_ROOT:-}" ] || l3=warn
printf 'load-modules = false\n[verify]\nl3 = "%s"\nl5 = "enforce"\n' $l3 >"$scratch/config.toml"

tool() { timeout 120 "$gpuhook" "$@" "${options[@]}" >"$out" 2>&1; }

check() { # name, words of gpuhook
    local check=$1
    shift
    if tool "$@"; then say PASS "$check"; else say FAIL "$check" "$(first_line "$out")"; fi
}

# --- the host ---------------------------------------------------------------------------------------------------------

"$gpuhook" --version
version=${HOST_ROOT:-}/proc/driver/nvidia/version
has_driver=
if [ -r "$version" ]; then
    has_driver=1
    say PASS driver "$(first_line "$version")"
    [ -z "${HOST_ROOT:-}" ] || echo "the facts are those below $HOST_ROOT: nothing here is a CUDA result"
else
    say FAIL driver "there is no NVIDIA driver: $version cannot be read"
fi

host_checks() {
    local wanted
    wanted=$(sed -n -e '/^Block devices:/q' -e 's/^ *\([0-9]* nvidia.*\)$/\1/p' "${HOST_ROOT:-}/proc/devices" | sort)
    if ! tool majors --gpu; then
        say FAIL majors "$(first_line "$out")"
    elif [ "$(sed -n 's/^ *\([0-9]* nvidia.*\)$/\1/p' "$out" | sort)" = "$wanted" ]; then
        say PASS majors "$(echo "$wanted" | tr '\n' ';')"
    else
        say FAIL majors "they are not those of /proc/devices: $(tr '\n' ';' <"$out")"
    fi
    check plan plan --devices "$devices"
    if [ -n "${HOST_ROOT:-}" ]; then
        say SKIP 'nodes, doctor, probe --host' 'the facts are not those of this host'
        return
    fi
    check 'nodes --check' nodes --check
    check doctor doctor
    if tool probe --host --devices "$devices" --json && grep -q '"cuinit": 0' "$out"; then
        say PASS 'probe --host' 'cuInit returned 0'
    else
        say FAIL 'probe --host' "$(why_not)"
    fi
}

# --- a container's root filesystem ------------------------------------------------------------------------------------

# Every library that the host's libcuda needs, the program that loads them, and the parts of the C library, which the
# check from inside needs.
libraries() {
    local needed name
    needed=$(ldd "$libcuda" | sed -n -e 's/^.* => \(\/[^ ]*\) .*$/\1/p' -e 's/^\t\(\/[^ ]*\) .*$/\1/p')
    echo "$needed"
    for name in libdl.so.2 libpthread.so.0 libm.so.6 librt.so.1; do
        echo "$needed" | sed -n "s|/libc\.so\.6\$|/$name|p"
    done | while read -r name; do [ ! -e "$name" ] || echo "$name"; done
}

make_rootfs() {
    libcuda=${LIBCUDA:-$(ldconfig -p 2>/dev/null | sed -n "s/^.*libcuda\.so\.1 (.*$1.*) => //p" | head -n 1)}
    [ -r "$libcuda" ] || { echo 'the host has no libcuda.so.1'; return 1; }
    busybox=$(command -v busybox) || { echo 'busybox is not installed'; return 1; }
    grep -q '=>' <<<"$(ldd "$busybox" 2>/dev/null)" && { echo 'busybox is not static (busybox-static)'; return 1; }
    mkdir -p "$rootfs"/{bin,dev,etc,proc,sys,tmp}
    mkfifo "$rootfs/report" "$rootfs/end"
    cp "$busybox" "$rootfs/bin/busybox"
    libdir=$(dirname "$(libraries | grep -m 1 '/libc\.so\.6$')")
    : >"$scratch/binds"
    local library
    while read -r library; do
        case $library in
        */ld-linux*) bind "$library" "$library" ;;
        *) bind "$library" "$libdir/$(basename "$library")" ;;
        esac
    done < <(libraries | sort -u)
    bind "$libcuda" "$libdir/libcuda.so.1"
    # Its first act: the nodes are there and open. Then it lives until it is told to end.
    cat >"$rootfs/bin/first" <<'SH'
#!/bin/busybox sh
for node in /dev/nvidiactl /dev/nvidia-uvm; do
    if [ ! -c $node ]; then echo "no $node"
    else busybox dd if=$node of=/dev/zero count=0 2>&1 | busybox grep -v records
    fi
done >/report
read -r word </end
SH
    chmod +x "$rootfs/bin/first"
}

bind() { # source, path in the container
    mkdir -p "$rootfs$(dirname "$2")"
    : >"$rootfs$2"
    echo "$(realpath "$1") $2" >>"$scratch/binds"
}

judge() { # check, the init's pid
    local problems
    problems=$(timeout 60 cat "$rootfs/report")
    # Nothing is behind a made-up number.
    [ -z "${HOST_ROOT:-}" ] || problems=$(echo "$problems" | grep -v 'No such device')
    if [ -n "$problems" ]; then
        say FAIL "$1" "$(echo "$problems" | head -n 1)"
    elif tool probe --pid "$2" --devices "$devices" --json || [ -n "${HOST_ROOT:-}" ] && grep -q '"cuinit": 0' "$out"; then
        say PASS "$1" 'the nodes open and cuInit returned 0, from inside'
    else
        say FAIL "$1" "$(why_not)"
    fi
}

why_not() { # of the ladder in $out
    grep -A 6 '"rung": "L5"' "$out" | sed -n 's/^ *"explain": //p' | grep . || first_line "$out"
}

refused() { # check, log
    say FAIL "$1" "the container did not start: $(grep -m 1 -o 'gpuhook: .*' "$2" || first_line "$2")"
}

# --- runc -------------------------------------------------------------------------------------------------------------

hook() { # stage
    local words
    words=$(printf ', "%s"' "${options[@]}")
    printf '"%s": [{ "path": "%s", "args": ["gpuhook", "oci", "%s"%s], "env": [] }]' "$1" "$gpuhook" "$1" "$words"
}

bundle() { # hooks
    local mounts='' source path
    while read -r source path; do
        mounts+=", { \"destination\": \"$path\", \"source\": \"$source\", \"type\": \"bind\", \"options\": [\"bind\", \"ro\"] }"
    done <"$scratch/binds"
    cat >"$scratch/config.json" <<JSON
{ "ociVersion": "1.0.2",
  "process": { "user": { "uid": 0, "gid": 0 }, "args": ["/bin/busybox", "sh", "/bin/first"], "cwd": "/",
    "env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=$devices"], "noNewPrivileges": true,
    "capabilities": { "bounding": [], "effective": [], "permitted": [] } },
  "root": { "path": "rootfs" },
  "mounts": [
    { "destination": "/proc", "type": "proc", "source": "proc" },
    { "destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", "ro"] },
    { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"] }$mounts ],
  "hooks": { $1 },
  "linux": { "cgroupsPath": "/$name",
    "namespaces": [{ "type": "pid" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" }],
    "resources": { "devices": [{ "allow": false, "access": "rwm" }] } } }
JSON
}

run_runc() {
    runc --root "$scratch/runc" delete --force "$name" >/dev/null 2>&1
    timeout 120 runc --root "$scratch/runc" run -d --pid-file "$scratch/pid" --bundle "$scratch" "$name" \
        </dev/null >"$scratch/runc.log" 2>&1
}

check_runc() {
    if ! command -v runc >/dev/null; then say SKIP runc 'runc is not installed'; return; fi
    if ! $is_rootfs_made; then say SKIP runc "$why"; return; fi
    bundle ''
    local report
    # Read whole: a reader that leaves at the first match ends the writer by SIGPIPE, which fails the pipe.
    if run_runc && report=$(timeout 60 cat "$rootfs/report") && grep -q 'no /dev/nvidiactl' <<<"$report"; then
        say PASS 'runc without gpuhook' 'the container has no GPU'
    else
        say FAIL 'runc without gpuhook' "$(first_line "$scratch/runc.log")"
    fi
    bundle "$(hook createRuntime), $(hook poststop)"
    if run_runc; then judge runc "$(cat "$scratch/pid")"; else refused runc "$scratch/runc.log"; fi
    runc --root "$scratch/runc" delete --force "$name" >/dev/null 2>&1
}

# --- LXC --------------------------------------------------------------------------------------------------------------

check_lxc() {
    if ! command -v lxc-start >/dev/null; then say SKIP LXC 'lxc-start is not installed'; return; fi
    if ! $is_rootfs_made; then say SKIP LXC "$why"; return; fi
    mkdir -p "$scratch/lxc/$name"
    {
        echo "lxc.uts.name = $name"
        echo "lxc.rootfs.path = dir:$rootfs"
        echo 'lxc.net.0.type = empty'
        echo 'lxc.init.cmd = /bin/busybox sh /bin/first'
        echo 'lxc.mount.auto = proc:mixed sys:ro'
        for key in lxc.cgroup.devices lxc.cgroup2.devices; do
            echo "$key.deny = a"
            echo "$key.allow = c 1:3 rwm"
        done
        while read -r source path; do
            echo "lxc.mount.entry = $source ${path#/} none bind,ro 0 0"
        done <"$scratch/binds"
        echo "lxc.environment = NVIDIA_VISIBLE_DEVICES=$devices"
        for stage in pre-start start-host post-stop; do
            echo "lxc.hook.$stage = $gpuhook lxc ${options[*]}"
        done
    } >"$scratch/lxc/$name/config"
    if timeout 120 lxc-start -P "$scratch/lxc" -n "$name" -d -l DEBUG -o "$scratch/lxc.log" </dev/null >"$out" 2>&1; then
        judge LXC "$(lxc-info -P "$scratch/lxc" -n "$name" -p -H)"
    else
        refused LXC "$scratch/lxc.log"
    fi
    lxc-stop -P "$scratch/lxc" -n "$name" -k >/dev/null 2>&1
    timeout 60 lxc-wait -P "$scratch/lxc" -n "$name" -s STOPPED
}

# --- all of it --------------------------------------------------------------------------------------------------------

rootfs=$scratch/rootfs
is_rootfs_made=false
if [ -z "$has_driver" ]; then
    say SKIP 'majors, plan, nodes --check, doctor, probe --host, runc, LXC' 'no driver'
else
    host_checks
    case $(uname -m) in
    x86_64) arch=x86-64 ;;
    *) arch=AArch64 ;;
    esac
    if why=$(make_rootfs $arch); then is_rootfs_made=true; fi
    check_runc
    check_lxc
fi

wait_for_all
# LXC leaves its monitor's empty cgroup behind where a start is refused.
find /sys/fs/cgroup -maxdepth 5 -name "lxc.monitor.$name" -exec rmdir {} + 2>/dev/null
left=$(
    grep -o "[^ ]*${name}[^ ]*" /proc/self/mountinfo
    find /run/gpuhook /sys/fs/cgroup -maxdepth 5 -name "*$name*" 2>/dev/null
)
if [ -z "$left" ]; then
    say PASS 'nothing left behind'
else
    say FAIL 'nothing left behind' "$(echo "$left" | head -n 1)"
fi
exit $failed
