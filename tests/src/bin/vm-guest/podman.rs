// SPDX-License-Identifier: MIT OR Apache-2.0
//! podman with a hooks directory, as root and as a user.

use std::fs;
use std::process::Command;

use gpuhook_tests::host::Majors;
use gpuhook_tests::injected;
use gpuhook_tests::program;
use serde_json::json;

use crate::driver::{self, Driver};
use crate::kept::{self, Kept};
use crate::managed::{Managed, Manager};
use crate::{lxc, seen};

const MAJORS: Majors = Majors::NEW;
/// Where podman looks unless told otherwise, also at a restart.
const HOOKS: &str = "/usr/share/containers/oci/hooks.d";
const NAME: &str = "vmt-podman";
const PODMAN: Manager =
    Manager { exec: &["podman", "exec", NAME], remove: &[&["podman", "rm", "-f", "-t", "0", NAME]] };

/// One hook for both stages that gpuhook needs; podman gives each stage the same arguments, so there are two files.
fn write_hooks() {
    fs::create_dir_all(HOOKS).expect("hooks directory");
    for stage in ["createRuntime", "poststop"] {
        let arguments = ["gpuhook", "oci", stage].into_iter().chain(injected::ARGUMENTS).collect::<Vec<_>>();
        let hook = json!({
            "version": "1.0.0",
            "hook": { "path": "/usr/bin/gpuhook", "args": arguments },
            "when": { "always": true },
            "stages": [stage],
        });
        fs::write(format!("{HOOKS}/gpuhook-{stage}.json"), hook.to_string()).expect("hook of podman");
    }
}

fn start() -> Managed {
    Driver::with(MAJORS).load();
    write_hooks();
    let rootfs = seen::rootfs("podman");
    injected::prepare(&rootfs, MAJORS);
    let mut run = podman(&["run", "--detach", "--name", NAME]);
    run.args(["--network", "none", "--cap-add", "MKNOD", "--security-opt", "seccomp=unconfined"]);
    for pair in injected::ENVIRONMENT {
        run.args(["--env", pair]);
    }
    run.arg("--rootfs").arg(rootfs.dir()).arg("/sbin/init");
    Managed::start(&PODMAN, rootfs, run)
}

fn podman(args: &[&str]) -> Command {
    program::command("podman", args)
}

pub(crate) fn podman_root_with_a_hooks_directory() {
    let before = Kept::now();
    let running = start();
    seen::assert_exact(&running, MAJORS);
    seen::assert_still_exact(&running, MAJORS);
    drop(running);
    kept::wait_for_gpuhook();
    before.assert_nothing_new();
}

pub(crate) fn podman_exec_and_restart_keep_the_gpu() {
    let mut running = start();
    seen::assert_still_exact(&running, MAJORS);
    running.restart(podman(&["restart", "-t", "0", NAME]));
    seen::assert_exact(&running, MAJORS);
    seen::assert_still_exact(&running, MAJORS);
}

pub(crate) fn podman_keeps_the_gpu_over_daemon_reload() {
    let running = start();
    seen::assert_exact(&running, MAJORS);
    kept::wait_for_gpuhook();
    program::stdout(program::command("systemctl", &["daemon-reload"]));
    seen::assert_still_exact(&running, MAJORS);
}

/// podman 5 hands the runtime the rules of the spec that podman keeps, which no hook and no CDI file changes, and crun builds
/// its filter anew from them.
pub(crate) fn what_podman_update_takes_from_a_hook_inject_gives_back() {
    let running = start();
    seen::assert_still_exact(&running, MAJORS);
    kept::wait_for_gpuhook();
    program::stdout(podman(&["update", "--memory", "512m", NAME]));
    let pid = program::stdout(podman(&["inspect", "--format", "{{.State.Pid}}", NAME]));
    let mut inject = program::command("gpuhook", &["inject", "--pid", pid.trim(), "--devices", "0"]);
    inject.args(injected::ARGUMENTS);
    let said = program::both(&program::output(inject));
    kept::wait_for_gpuhook();
    println!("{said}");
    seen::assert_still_exact(&running, MAJORS);
    program::stdout(program::command("systemctl", &["daemon-reload"]));
    seen::assert_still_exact(&running, MAJORS);
}

/// Without CAP_MKNOD gpuhook binds the host's nodes, which a user may open where their mode says so.
pub(crate) fn podman_rootless_with_a_hooks_directory() {
    Driver::with(MAJORS).load().make_host_nodes();
    write_hooks();
    let rootfs = seen::rootfs("rootless");
    let user = 1000;
    rootfs.give_to(user);
    let script = format!(
        "XDG_RUNTIME_DIR=/run/user/{user} podman --cgroup-manager cgroupfs --hooks-dir {HOOKS} run --rm --cgroups disabled \
         --network none -e NVIDIA_VISIBLE_DEVICES=0 --security-opt seccomp=unconfined --rootfs {} /bin/cuda-check",
        rootfs.dir().display()
    );
    // What a login makes.
    let runtime_dir = ["-d", "-m", "700", "-o", "user", "-g", "user", &format!("/run/user/{user}")];
    program::stdout(program::command("install", &runtime_dir));
    // A hook of a user may not ask for what needs root: no MIG configuration, no IMEX channel.
    for stage in ["createRuntime", "poststop"] {
        let hook = json!({
            "version": "1.0.0",
            "hook": { "path": "/usr/bin/gpuhook", "args": ["gpuhook", "oci", stage] },
            "when": { "always": true },
            "stages": [stage],
        });
        fs::write(format!("{HOOKS}/gpuhook-{stage}.json"), hook.to_string()).expect("hook of podman");
    }
    driver::forget_opens();
    let said = program::output(program::command("su", &["user", "-c", &script]));
    let said = program::both(&said);
    assert!(said.contains("cuInit=0 devices=1"), "{said}\n{}", lxc::journal());
    assert!(driver::opens().contains_key(&("nvidia-uvm".to_owned(), 0)));
}
