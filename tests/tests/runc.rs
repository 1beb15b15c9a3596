// SPDX-License-Identifier: MIT OR Apache-2.0
//! gpuhook in real runc containers on cgroup2, judged from inside.

use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::injected;
use gpuhook_tests::inside::Container;
use gpuhook_tests::program;
use gpuhook_tests::runc::Runc;

fn host(bed: &Bed) -> Host {
    Host::new(bed.dir("host"), Majors::NEW, 2)
}

/// Makes the bundle ask, and registers gpuhook at `stage` and at poststop.
fn ask<'runc, 'bed>(runc: &'runc mut Runc<'bed>, host: &Host, stage: &str) -> &'runc mut Runc<'bed> {
    injected::prepare(runc.rootfs(), host.majors());
    runc.env(injected::ENVIRONMENT[0]);
    runc.hook(stage, &host.oci_hook(stage, &injected::ARGUMENTS));
    runc.hook("poststop", &host.oci_hook("poststop", &[]))
}

fn gets_exactly_what_it_asked(name: &str, stage: &str, change: impl Fn(&mut Runc)) {
    let Some(bed) = Bed::pure(name) else { return };
    let host = host(&bed);
    let mut runc = Runc::new(&bed, "c1");
    change(&mut runc);
    let running = ask(&mut runc, &host, stage).start();
    injected::assert_exact(&running, host.majors());
    injected::assert_still_open(&running, host.majors());
    drop(running);
    bed.wait_for(&program::gpuhook());
    assert_eq!(bed.kept(), [""; 0], "poststop removes what was kept");
}

#[test]
fn without_gpuhook_there_is_no_node_and_every_number_is_refused() {
    let Some(bed) = Bed::pure("runc-control") else { return };
    let mut runc = Runc::new(&bed, "c1");
    injected::prepare(runc.rootfs(), Majors::NEW);
    injected::assert_nothing(&runc.env(injected::ENVIRONMENT[0]).start(), Majors::NEW);
}

#[test]
fn prestart() {
    gets_exactly_what_it_asked("runc-prestart", "prestart", |_| {});
}

#[test]
fn create_runtime() {
    gets_exactly_what_it_asked("runc-create", "createRuntime", |_| {});
}

#[test]
fn create_runtime_with_a_user_namespace() {
    gets_exactly_what_it_asked("runc-user-create", "createRuntime", |runc| {
        runc.user_namespace();
    });
}

#[test]
fn prestart_with_a_user_namespace() {
    gets_exactly_what_it_asked("runc-user-prestart", "prestart", |runc| {
        runc.user_namespace();
    });
}

#[test]
fn create_runtime_with_a_read_only_root() {
    gets_exactly_what_it_asked("runc-ro-create", "createRuntime", |runc| {
        runc.read_only();
    });
}

#[test]
fn a_bundle_that_asks_for_nothing_gets_nothing() {
    for pair in ["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=", "UNRELATED=1"] {
        let Some(bed) = Bed::pure("runc-nothing") else { return };
        let host = host(&bed);
        let mut runc = Runc::new(&bed, "c1");
        injected::prepare(runc.rootfs(), host.majors());
        runc.env(pair).hook("createRuntime", &host.oci_hook("createRuntime", &[]));
        injected::assert_nothing(&runc.start(), host.majors());
        assert_eq!(bed.kept(), [""; 0]);
    }
}

#[test]
fn what_an_image_says_does_not_widen_its_rights() {
    let Some(bed) = Bed::pure("runc-image") else { return };
    let host = host(&bed);
    let mut runc = Runc::new(&bed, "c1");
    injected::prepare(runc.rootfs(), host.majors());
    for pair in injected::ENVIRONMENT {
        runc.env(pair);
    }
    let running = runc.hook("createRuntime", &host.oci_hook("createRuntime", &[])).start();
    injected::assert_reached(&running, "/dev/nvidia-uvm");
    for path in ["/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps-imex-channels/channel0"] {
        assert_eq!(running.report().node(path), None, "{path}");
    }
    for number in [(host.majors().caps, 1), (host.majors().imex, 0)] {
        assert_eq!(running.open_own(number), "EPERM");
    }
}

#[test]
fn a_refused_start_leaves_nothing_behind() {
    let Some(bed) = Bed::pure("runc-refused") else { return };
    let host = host(&bed);
    let mut runc = Runc::new(&bed, "c1");
    ask(&mut runc, &host, "createRuntime");
    runc.rootfs().write("/etc/standin-cuda", "999");
    let story = runc.try_start().expect_err("the start is refused");
    assert!(story.contains("cuInit") && story.contains("999"), "{story}");
    assert_eq!(bed.kept(), [""; 0]);
}

#[test]
fn the_same_bundle_serves_every_new_number() {
    let Some(bed) = Bed::pure("runc-renumber") else { return };
    let mut host = host(&bed);
    let mut runc = Runc::new(&bed, "c1");
    ask(&mut runc, &host, "createRuntime");
    for majors in [Majors::NEW, Majors::NEXT, Majors::OLD] {
        host.renumber(majors);
        injected::prepare(runc.rootfs(), majors);
        injected::assert_exact(&runc.start(), majors);
    }
}
