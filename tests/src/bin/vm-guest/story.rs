// SPDX-License-Identifier: MIT OR Apache-2.0
//! The story that gpuhook ends, with a driver whose numbers really change.

use std::fs;

use gpuhook_tests::host::Majors;
use gpuhook_tests::inside::Container;

use crate::driver::{self, Driver};
use crate::kept;
use crate::lxc::{INCLUDE, Lxc};

/// The host of the story: eight GPUs.
pub(crate) fn host(majors: Majors) -> Driver {
    Driver { majors, gpus: 8, options: "" }
}

/// Container 129: the nodes are bound in from the host, and the numbers of yesterday are allowed.
pub(crate) fn container_129(name: &str) -> Lxc {
    let mut lxc = Lxc::privileged(name);
    for major in [195, 504, 507] {
        lxc.line(&format!("lxc.cgroup2.devices.allow = c {major}:* rwm"));
    }
    let nodes = (0..8)
        .map(|minor| format!("nvidia{minor}"))
        .chain(["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"].map(str::to_owned));
    for node in nodes {
        lxc.line(&format!("lxc.mount.entry = /dev/{node} dev/{node} none bind,optional,create=file 0 0"));
    }
    lxc.rootfs().first("node-check /dev/nvidiactl /dev/nvidia0 /dev/nvidia7 /dev/nvidia-uvm\ncuda-check\n");
    lxc
}

/// What container 129 sees: GPUs always; nvidia-uvm and CUDA as told.
pub(crate) fn assert_129(container: &dyn Container, majors: Majors, uvm: &str, cuinit: i32) {
    let report = container.report();
    for path in ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia7"] {
        assert_eq!(report.open(path), "OK", "{path} is what nvidia-smi needs\n{}", report.0);
    }
    let node = report.node("/dev/nvidia-uvm").expect("the node is there");
    assert_eq!((node.number, node.open.as_str()), ((majors.uvm, 0), uvm), "{}\n{}", report.0, container.story());
    assert_eq!(report.cuinit(), cuinit, "{}\n{}", report.0, container.story());
    driver::forget_opens();
    assert_eq!(container.cuda().cuinit(), cuinit, "{}", container.story());
    let counted = driver::opens().get(&("nvidia-uvm".to_owned(), 0)).copied().unwrap_or_default();
    assert_eq!(counted, u32::from(cuinit == 0), "the driver counts what cuInit opened");
}

pub(crate) fn a_static_config_goes_from_0_to_999_when_the_numbers_change() {
    host(Majors::OLD).load().make_host_nodes();
    let lxc = container_129("129");
    assert_129(&lxc.start(), Majors::OLD, "OK", 0);
    host(Majors::NEW).load().make_host_nodes();
    assert_129(&lxc.start(), Majors::NEW, "EPERM", 999);
}

pub(crate) fn gpuhook_stays_0_over_three_renumberings() {
    let mut lxc = container_129("129");
    lxc.line(INCLUDE).write_config();
    let config = fs::read(lxc.config()).expect("config");
    for majors in [Majors::OLD, Majors::NEW, Majors::NEXT] {
        host(majors).load().make_host_nodes();
        let running = lxc.start();
        kept::wait_for_gpuhook();
        assert_129(&running, majors, "OK", 0);
        assert_eq!(running.report().devices(), 8);
        drop(running);
        kept::wait_for_gpuhook();
    }
    assert_eq!(fs::read(lxc.config()).expect("config"), config, "not a byte of the config changed");
}

pub(crate) fn an_old_driver_with_nvidia_frontend_works() {
    let driver = Driver { majors: Majors::OLD, gpus: 2, options: "frontend=1 version=535.161.08 kfd=1" }.load();
    let devices = fs::read_to_string("/proc/devices").expect("/proc/devices");
    assert!(devices.contains("195 nvidia-frontend\n") && !devices.contains("195 nvidia\n"), "{devices}");
    let mut lxc = Lxc::privileged("old");
    lxc.line(INCLUDE);
    lxc.rootfs().first("node-check /dev/nvidia0 /dev/nvidia1 /dev/nvidia-uvm\ncuda-check\n");
    let running = lxc.start();
    let report = running.report();
    assert_eq!((report.cuinit(), report.devices()), (0, driver.gpus), "{}\n{}", report.0, running.story());
}
