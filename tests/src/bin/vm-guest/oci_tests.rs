// SPDX-License-Identifier: MIT OR Apache-2.0
//! gpuhook as an OCI hook under runc and crun, and what systemd and the runtimes do to the filter afterwards.

use gpuhook_tests::host::Majors;
use gpuhook_tests::program;

use crate::driver::Driver;
use crate::kept::{self, Kept};
use crate::oci::{Bundle, Running, Runtime, SCOPE};
use crate::seen;

const MAJORS: Majors = Majors::NEW;
const RUNC: Runtime = Runtime { program: "runc", systemd: false };
const RUNC_SYSTEMD: Runtime = Runtime { program: "runc", systemd: true };
const CRUN: Runtime = Runtime { program: "crun", systemd: false };
const CRUN_SYSTEMD: Runtime = Runtime { program: "crun", systemd: true };

/// At either stage the container has exactly what it asked for, and leaves nothing.
fn exactly_what_was_asked(runtime: Runtime) {
    Driver::with(MAJORS).load();
    for stage in ["createRuntime", "prestart"] {
        let before = Kept::now();
        let bundle = Bundle::asking(runtime, MAJORS, stage);
        let running = bundle.start();
        seen::assert_exact(&running, MAJORS);
        seen::assert_still_exact(&running, MAJORS);
        drop(running);
        kept::wait_for_gpuhook();
        before.assert_nothing_new();
    }
}

pub(crate) fn runc_with_cgroupfs() {
    exactly_what_was_asked(RUNC);
}

pub(crate) fn runc_with_systemd() {
    exactly_what_was_asked(RUNC_SYSTEMD);
}

pub(crate) fn crun_with_cgroupfs() {
    exactly_what_was_asked(CRUN);
}

pub(crate) fn crun_with_systemd() {
    exactly_what_was_asked(CRUN_SYSTEMD);
}

/// The container has its GPU before and after `change`.
fn keeps_the_gpu(runtime: Runtime, change: impl Fn(&Running<'_>)) {
    Driver::with(MAJORS).load();
    let bundle = Bundle::asking(runtime, MAJORS, "createRuntime");
    let running = bundle.start();
    seen::assert_exact(&running, MAJORS);
    // The hand-over to systemd goes on in the background.
    kept::wait_for_gpuhook();
    change(&running);
    seen::assert_still_exact(&running, MAJORS);
}

fn daemon_reload(_: &Running<'_>) {
    program::stdout(program::command("systemctl", &["daemon-reload"]));
}

fn set_property(_: &Running<'_>) {
    program::stdout(program::command("systemctl", &["set-property", "--runtime", SCOPE, "MemoryHigh=1G"]));
}

fn update(running: &Running<'_>) {
    running.runtime(&["update", "--pids-limit", "100"]);
}

pub(crate) fn runc_with_systemd_keeps_the_gpu_over_daemon_reload() {
    keeps_the_gpu(RUNC_SYSTEMD, daemon_reload);
}

pub(crate) fn crun_with_systemd_keeps_the_gpu_over_daemon_reload() {
    keeps_the_gpu(CRUN_SYSTEMD, daemon_reload);
}

pub(crate) fn runc_with_systemd_keeps_the_gpu_over_set_property() {
    keeps_the_gpu(RUNC_SYSTEMD, set_property);
}

pub(crate) fn crun_with_systemd_keeps_the_gpu_over_set_property() {
    keeps_the_gpu(CRUN_SYSTEMD, set_property);
}

pub(crate) fn runc_update_with_cgroupfs_keeps_the_gpu() {
    keeps_the_gpu(RUNC, update);
}

pub(crate) fn runc_update_with_systemd_keeps_the_gpu() {
    keeps_the_gpu(RUNC_SYSTEMD, update);
}

pub(crate) fn crun_update_with_cgroupfs_keeps_the_gpu() {
    keeps_the_gpu(CRUN, update);
}

pub(crate) fn crun_update_with_systemd_keeps_the_gpu() {
    keeps_the_gpu(CRUN_SYSTEMD, update);
}
