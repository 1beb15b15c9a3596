// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bed itself, without gpuhook: real containers, real device filters, and the failure that gpuhook must end. If one
//! of these fails, nothing that the bed says of gpuhook means anything.

use std::fs;
use std::process::Command;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::inside::Container;
use gpuhook_tests::lxc::Lxc;
use gpuhook_tests::runc::Runc;

const CTL: (&str, (u32, u32)) = ("/dev/nvidiactl", (195, 255));
const GPU: (&str, (u32, u32)) = ("/dev/nvidia0", (195, 0));
const UVM: (&str, (u32, u32)) = ("/dev/nvidia-uvm", (509, 0));
const LOOK: &str = "node-check /dev/nvidiactl /dev/nvidia0 /dev/nvidia-uvm\ncuda-check\n";

fn with_todays_nodes<'lxc, 'bed>(lxc: &'lxc mut Lxc<'bed>) -> &'lxc mut Lxc<'bed> {
    lxc.rootfs().first(LOOK);
    for (path, number) in [CTL, GPU, UVM] {
        lxc.bind_node(path, number);
    }
    lxc
}

/// The story before gpuhook: the nodes are right, `nvidia-smi`'s devices open, CUDA's do not.
fn assert_cuda_is_refused(container: &dyn Container) {
    let report = container.report();
    assert_eq!(report.node(UVM.0).expect("the node is there").number, UVM.1);
    assert_eq!(report.open(CTL.0), "ENXIO");
    assert_eq!(report.open(GPU.0), "ENXIO");
    assert_eq!(report.open(UVM.0), "EPERM");
    assert_eq!(report.cuinit(), 999);
}

fn assert_cuda_is_reached(container: &dyn Container) {
    let report = container.report();
    assert_eq!(report.open(UVM.0), "ENXIO");
    assert_eq!((report.cuinit(), report.devices()), (0, 1));
}

fn lxc_story(bed: &Bed, change: impl Fn(&mut Lxc)) {
    let mut yesterday = Lxc::privileged(bed, "yesterday");
    with_todays_nodes(&mut yesterday).allow("c 195:* rwm").allow("c 504:* rwm").allow("c 507:* rwm");
    change(&mut yesterday);
    let running = yesterday.start();
    assert_cuda_is_refused(&running);
    assert_eq!(running.open_own(UVM.1), "EPERM", "making a node does not open it");
    assert_eq!(running.open_own((504, 0)), "ENXIO", "the stale rule lets another driver's number through");

    let mut today = Lxc::privileged(bed, "today");
    with_todays_nodes(&mut today).allow("c 195:* rwm").allow("c 509:* rwm").allow("c 237:* rwm");
    change(&mut today);
    let running = today.start();
    assert_cuda_is_reached(&running);
    assert_eq!(running.open_own((504, 0)), "EPERM");
}

#[test]
fn lxc_with_yesterdays_rules_has_cuda_999_and_with_todays_0() {
    let Some(bed) = Bed::pure("lxc") else { return };
    lxc_story(&bed, |_| {});
}

#[test]
fn lxc_with_an_inner_cgroup_obeys_the_filter_of_the_outer() {
    let Some(bed) = Bed::pure("inner") else { return };
    lxc_story(&bed, |lxc| {
        lxc.inner_cgroup();
    });
    let mut lxc = Lxc::privileged(&bed, "where");
    lxc.inner_cgroup();
    let running = lxc.start();
    let cgroups = fs::read_to_string(format!("/proc/{}/cgroup", running.init_pid())).expect("cgroups of init");
    assert!(cgroups.contains(&format!("0::/{}.lxc/{}/ns\n", bed.name(), lxc.name())), "{cgroups}");
}

#[test]
fn lxc_on_a_hybrid_host_obeys_the_v1_device_controller() {
    let Some(bed) = Bed::hybrid("lxc-v1") else { return };
    lxc_story(&bed, |_| {});
}

#[test]
fn unprivileged_lxc_without_rules_opens_every_node_that_is_there_and_makes_none() {
    let Some(bed) = Bed::pure("unprivileged") else { return };
    let mut lxc = Lxc::unprivileged(&bed, "c1");
    let running = with_todays_nodes(&mut lxc).start();
    assert_cuda_is_reached(&running);
    assert_eq!(running.report().node(UVM.0).expect("there").uid, 65534, "the host's node has no owner here");
    assert_eq!(running.open_own(UVM.1), "EPERM");
}

#[test]
fn unprivileged_lxc_with_rules_obeys_them() {
    let Some(bed) = Bed::pure("unprivileged-strict") else { return };
    let mut lxc = Lxc::unprivileged(&bed, "c1");
    lxc.strict().allow("c 195:* rwm").allow("c 504:* rwm");
    let running = with_todays_nodes(&mut lxc).start();
    assert_cuda_is_refused(&running);
}

fn runc_story(bed: &Bed, change: impl Fn(&mut Runc)) {
    for (name, uvm) in [("yesterday", 504), ("today", 509)] {
        let mut runc = Runc::new(bed, name);
        runc.rootfs().first(LOOK);
        for (path, number) in [CTL, GPU, UVM] {
            runc.bind_node(path, number);
        }
        runc.allow(195, None).allow(uvm, None);
        change(&mut runc);
        let running = runc.start();
        match uvm {
            509 => assert_cuda_is_reached(&running),
            _ => assert_cuda_is_refused(&running),
        }
    }
}

#[test]
fn runc_with_yesterdays_rules_has_cuda_999_and_with_todays_0() {
    let Some(bed) = Bed::pure("runc") else { return };
    runc_story(&bed, |_| {});
}

#[test]
fn runc_with_a_user_namespace_obeys_the_filter() {
    let Some(bed) = Bed::pure("runc-user") else { return };
    runc_story(&bed, |runc| {
        runc.user_namespace();
    });
}

#[test]
fn runc_with_a_read_only_root_obeys_the_filter_and_still_reports() {
    let Some(bed) = Bed::pure("runc-ro") else { return };
    runc_story(&bed, |runc| {
        runc.read_only();
    });
    let mut runc = Runc::new(&bed, "written");
    let running = runc.read_only().start();
    let said = running.run(&["/bin/sh", "-c", "echo x >/etc/x"]);
    assert!(said.0.contains("Read-only file system"), "{said:?}");
}

#[test]
fn runc_on_a_hybrid_host_obeys_the_v1_device_controller() {
    let Some(bed) = Bed::hybrid("runc-v1") else { return };
    runc_story(&bed, |_| {});
}

#[test]
fn a_container_that_cannot_start_says_why() {
    let Some(bed) = Bed::pure("refused") else { return };
    let mut lxc = Lxc::privileged(&bed, "c1");
    lxc.line("lxc.hook.start-host = sh -c 'echo this is the reason; exit 1' --");
    let story = lxc.try_start().expect_err("a failing hook refuses the start");
    assert!(story.contains("this is the reason"), "{story}");

    let mut runc = Runc::new(&bed, "c2");
    runc.hook("createRuntime", &["/bin/sh", "-c", "echo this is the reason >&2; exit 1"].map(str::to_owned));
    let story = runc.try_start().expect_err("a failing hook refuses the start");
    assert!(story.contains("this is the reason"), "{story}");
}

#[test]
fn what_a_killed_test_left_behind_is_removed_by_the_next_bed() {
    let Some(bed) = Bed::pure("sweeper") else { return };
    let mut dead = Command::new("true").spawn().expect("true");
    dead.wait().expect("its end");
    let left = bed.cgroup2().join(format!("lxc.payload.gpuhook-bed-{}-killed-c1", dead.id()));
    fs::create_dir_all(left.join("inner")).expect("a cgroup");
    let mut orphan = Command::new("sleep").arg("1000").spawn().expect("sleep");
    fs::write(left.join("inner/cgroup.procs"), orphan.id().to_string()).expect("move into the cgroup");

    let next = Bed::pure("next").expect("the second bed");

    assert!(!left.exists(), "{} is still there", left.display());
    assert!(!orphan.wait().expect("its end").success(), "the orphan was killed");
    drop(next);
}

#[test]
fn a_bed_leaves_no_cgroup_of_its_own() {
    let Some(bed) = Bed::pure("tidy") else { return };
    let name = bed.name().to_owned();
    let lxc = Lxc::privileged(&bed, "c1");
    let running = lxc.start();
    let runc = Runc::new(&bed, "c2");
    let also_running = runc.start();
    let of_this_bed = || {
        let top = fs::read_dir("/sys/fs/cgroup").expect("cgroups").flatten();
        let names: Vec<_> = top.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.into_iter().filter(|found| found.contains(&name)).count()
    };
    assert!(of_this_bed() >= 3, "monitor, payload and runc's");
    drop((running, also_running));
    drop((lxc, runc));
    drop(bed);
    assert_eq!(of_this_bed(), 0);
}
