// SPDX-License-Identifier: MIT OR Apache-2.0
//! gpuhook where cgroup v1 controls devices and cgroup2 stands beside it, judged from inside.

use std::fs;
use std::path::Path;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::injected;
use gpuhook_tests::lxc::{Lxc, Registration};
use gpuhook_tests::program;
use gpuhook_tests::runc::Runc;

fn host(bed: &Bed) -> Host {
    Host::new(bed.dir("host"), Majors::NEW, 2)
}

/// The v1 list of the cgroup that a process is in.
fn devices_list(pid: u32) -> String {
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("cgroups of init");
    let path = cgroups.lines().find_map(|line| line.split_once(":devices:")).expect("a device cgroup").1;
    let dir = Path::new("/sys/fs/cgroup/devices").join(path.trim_start_matches('/'));
    fs::read_to_string(dir.join("devices.list")).expect("devices.list")
}

/// The list has a line of rw without m for each device asked for, and none for the others.
fn assert_list(pid: u32, majors: Majors) {
    let list = devices_list(pid);
    for (path, (major, minor)) in injected::asked(majors) {
        assert!(list.contains(&format!("c {major}:{minor} rw\n")), "{path}:\n{list}");
    }
    for (path, (major, minor)) in injected::not_asked(majors) {
        assert!(!list.contains(&format!("c {major}:{minor} ")), "{path}:\n{list}");
    }
}

fn lxc_gets_exactly_what_it_asked(name: &str, how: Registration, inner: bool) {
    let Some(bed) = Bed::hybrid(name) else { return };
    let host = host(&bed);
    let mut lxc = Lxc::privileged(&bed, "c1");
    injected::prepare(lxc.rootfs(), host.majors());
    for pair in injected::ENVIRONMENT {
        lxc.line(&format!("lxc.environment = {pair}"));
    }
    if inner {
        lxc.inner_cgroup();
    }
    let running = lxc.register(how, &host.lxc_hook("")).start();
    injected::assert_exact(&running, host.majors());
    bed.wait_for(&program::gpuhook());
    injected::assert_still_open(&running, host.majors());
    assert_list(running.init_pid(), host.majors());
}

#[test]
fn lxc_with_the_include() {
    lxc_gets_exactly_what_it_asked("v1-include", Registration::Include, false);
}

#[test]
fn lxc_with_start_host_alone() {
    lxc_gets_exactly_what_it_asked("v1-start-host", Registration::StartHost, false);
}

#[test]
fn lxc_with_an_inner_cgroup() {
    lxc_gets_exactly_what_it_asked("v1-inner", Registration::Include, true);
}

#[test]
fn lxc_without_gpuhook_has_nothing() {
    let Some(bed) = Bed::hybrid("v1-control") else { return };
    let lxc = Lxc::privileged(&bed, "c1");
    injected::prepare(lxc.rootfs(), Majors::NEW);
    injected::assert_nothing(&lxc.start(), Majors::NEW);
}

#[test]
fn runc_with_create_runtime() {
    let Some(bed) = Bed::hybrid("v1-runc") else { return };
    let host = host(&bed);
    let mut runc = Runc::new(&bed, "c1");
    injected::prepare(runc.rootfs(), host.majors());
    runc.env(injected::ENVIRONMENT[0]);
    runc.hook("createRuntime", &host.oci_hook("createRuntime", &injected::ARGUMENTS));
    let running = runc.start();
    injected::assert_exact(&running, host.majors());
    injected::assert_still_open(&running, host.majors());
    assert_list(running.init_pid(), host.majors());
}

#[test]
fn runc_without_gpuhook_has_nothing() {
    let Some(bed) = Bed::hybrid("v1-runc-control") else { return };
    let runc = Runc::new(&bed, "c1");
    injected::prepare(runc.rootfs(), Majors::NEW);
    injected::assert_nothing(&runc.start(), Majors::NEW);
}
