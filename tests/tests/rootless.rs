// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rootless manager's container: gpuhook is root of a user namespace alone, so it binds the host's nodes after having
//! compared their numbers with the driver's.

use std::fs;
use std::process::Command;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::program;

/// Puts a `/dev` with a driver's nodes in the place of the host's, then, as user 1000 in a user namespace, starts a
/// process in a mount namespace with an empty `/dev` and injects into it.
const SCRIPT: &str = r#"
set -eu
mkdir /run/dev
mount -t tmpfs -o mode=755 none /run/dev
for node in null:1:3 nvidiactl:195:255 nvidia0:195:0 nvidia-uvm:$UVM:0 nvidia-uvm-tools:$UVM:1; do
    name=${node%%:*} number=${node#*:}
    mknod -m 666 "/run/dev/$name" c "${number%:*}" "${number#*:}"
done
mount --move /run/dev /dev
mkdir -p /run/user/1000
chown 1000 /run/user/1000
exec setpriv --reuid 1000 --regid 1000 --clear-groups unshare -Urm sh -euc '
    mkfifo /run/user/1000/ready
    unshare -m sh -c "mount -t tmpfs none /dev; echo > /run/user/1000/ready; exec sleep 1000" &
    read line < /run/user/1000/ready
    rm /run/user/1000/ready
    status=0
    "$GPUHOOK" inject --pid $! --host-root "$HOST" --config "$CONFIG" --devices 0 || status=$?
    nsenter -t $! -m sh -c "stat -c \"%n %F\" /dev/*" || true
    find /run/user/1000 -type f
    kill $!
    exit $status
'
"#;

fn run(bed: &Bed, host: &Host, uvm: u32) -> (bool, String) {
    let script = bed.dir("script").join("rootless.sh");
    fs::write(&script, SCRIPT).expect("script");
    let mut shell = Command::new("sh");
    shell.arg(&script).env("GPUHOOK", program::gpuhook()).env("UVM", uvm.to_string());
    shell.env("HOST", host.root()).env("CONFIG", host.config());
    let output = shell.output().expect("sh");
    (output.status.success(), program::both(&output))
}

fn bed(name: &str) -> Option<(Bed, Host)> {
    let bed = Bed::pure(name)?;
    let host = Host::new(bed.dir("host"), Majors::NEW, 1);
    host.configure("[verify]\nl3 = \"warn\"\nl5 = \"off\"\n");
    // User 1000 has to come to the files and the program.
    let open = Command::new("chmod").args(["-R", "a+rX"]).arg(bed.dir("host")).status().expect("chmod");
    assert!(open.success());
    Some((bed, host))
}

#[test]
fn the_hosts_nodes_are_bound_where_no_node_can_be_made() {
    let Some((bed, host)) = bed("rootless") else { return };
    let (_, said) = run(&bed, &host, 509);
    for node in ["nvidiactl", "nvidia0", "nvidia-uvm", "nvidia-uvm-tools"] {
        let line = format!("/dev/{node} character special file");
        assert!(said.lines().any(|said| said == line), "{node}\n{said}");
    }
    assert!(said.contains("L1  ok      /dev/nvidia-uvm"), "{said}");
    // No driver is behind the number here, and the open came as far as to ask for one.
    assert!(said.contains("L3  failed  /dev/nvidia-uvm  ENXIO"), "{said}");
    assert!(said.contains("/run/user/1000/gpuhook/pid/"), "its report is its user's\n{said}");
}

#[test]
fn a_stale_node_of_the_host_is_refused_by_name_and_nothing_remains() {
    let Some((bed, host)) = bed("rootless-stale") else { return };
    let (fine, said) = run(&bed, &host, 504);
    assert!(!fine, "{said}");
    assert!(said.contains("/dev/nvidia-uvm is c 504:0, not c 509:0; hint: "), "{said}");
    assert!(!said.contains("/dev/nvidiactl character"), "{said}");
    assert!(!said.contains("/run/user/1000/gpuhook"), "{said}");
}
