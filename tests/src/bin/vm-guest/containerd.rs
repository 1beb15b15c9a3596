// SPDX-License-Identifier: MIT OR Apache-2.0
//! containerd's `ctr run` with gpuhook in the place of runc.

use std::process::Command;

use gpuhook_tests::host::Majors;
use gpuhook_tests::program;

use crate::driver::Driver;
use crate::one_gpu::{self, VARIABLE};
use crate::{kept, lxc};

const NAME: &str = "vmt-ctr";

/// A container that runs until this is dropped, and the daemon with it.
struct Containerd;

impl Containerd {
    fn run(more: &[&str]) -> Self {
        program::stdout(program::command("systemctl", &["start", "containerd"]));
        let containerd = Self;
        containerd.end();
        let rootfs = one_gpu::rootfs("containerd");
        let mut run = program::command("ctr", &["run", "--detach", "--runc-binary", "/usr/bin/gpuhook-runtime"]);
        run.args(more).args(["--env", VARIABLE, "--rootfs"]).arg(rootfs.dir()).args([NAME, "/sbin/init"]);
        let output = program::output(run);
        assert!(output.status.success(), "{}\n{}", program::both(&output), lxc::journal());
        containerd
    }

    fn exec(&self) -> Command {
        program::command("ctr", &["tasks", "exec", "--exec-id", "check", NAME])
    }

    fn stop(&self) {
        let _none_yet = program::output(program::command("ctr", &["tasks", "delete", "--force", NAME]));
    }

    fn end(&self) {
        self.stop();
        let _none_yet = program::output(program::command("ctr", &["containers", "delete", NAME]));
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        self.end();
        let _stopped = program::output(program::command("systemctl", &["stop", "containerd"]));
    }
}

fn keeps_the_gpu(more: &[&str]) {
    Driver::with(Majors::NEW).load().make_host_nodes();
    let containerd = Containerd::run(more);
    one_gpu::assert_exact(containerd.exec(), Majors::NEW);
    kept::wait_for_gpuhook();
    program::stdout(program::command("systemctl", &["daemon-reload"]));
    one_gpu::assert_exact(containerd.exec(), Majors::NEW);
    containerd.stop();
    one_gpu::assert_nothing_kept();
    // containerd keeps the spec that it was given; the next task's bundle gets the numbers of the day.
    Driver::with(Majors::NEXT).load().make_host_nodes();
    program::stdout(program::command("ctr", &["tasks", "start", "--detach", NAME]));
    one_gpu::assert_exact(containerd.exec(), Majors::NEXT);
}

pub(crate) fn containerd_keeps_and_renews_the_gpu() {
    keeps_the_gpu(&[]);
}

pub(crate) fn containerd_with_systemd_keeps_and_renews_the_gpu() {
    keeps_the_gpu(&["--runc-systemd-cgroup", "--cgroup", "system.slice:vmt:ctr"]);
}
