// SPDX-License-Identifier: MIT OR Apache-2.0
//! gpuhook as a hook of the bundle under docker and containerd, as far as they let anyone: containerd takes a whole spec
//! from its client, docker none, so there a runtime stands between that adds the hook.

use std::fs;
use std::process::Command;

use gpuhook_tests::host::Majors;
use gpuhook_tests::injected;
use gpuhook_tests::program;

use crate::driver::Driver;
use crate::kept::{self, Kept};
use crate::managed::{Managed, Manager};
use crate::oci::{Bundle, Runtime};
use crate::seen;

const MAJORS: Majors = Majors::NEW;
const NAME: &str = "vmt-managed";

const DOCKER: Manager = Manager { exec: &["docker", "exec", NAME], remove: &[&["docker", "rm", "-f", NAME]] };
const CONTAINERD: Manager = Manager {
    exec: &["ctr", "task", "exec", "--exec-id", "check", NAME],
    remove: &[
        &["ctr", "task", "kill", "-s", "KILL", NAME],
        &["ctr", "task", "delete", NAME],
        &["ctr", "container", "delete", NAME],
    ],
};

/// A daemon that runs until this is dropped: the others need no memory of it.
struct Service(&'static [&'static str]);

impl Service {
    fn start(units: &'static [&'static str]) -> Self {
        program::stdout(program::command("systemctl", &[&["start"], units].concat()));
        Self(units)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _best_effort = program::output(program::command("systemctl", &[&["stop"], self.0].concat()));
    }
}

pub(crate) fn containerd_with_a_hook_in_the_bundle() {
    Driver::with(MAJORS).load();
    let _service = Service::start(&["containerd"]);
    let before = Kept::now();
    let bundle = Bundle::asking(Runtime { program: "runc", systemd: false }, MAJORS, "createRuntime");
    let config = bundle.write_absolute();
    let mut run = program::command("ctr", &["run", "--detach", "--config"]);
    run.arg(config).arg(NAME);
    let running = Managed::start(&CONTAINERD, bundle.into_rootfs(), run);
    seen::assert_exact(&running, MAJORS);
    kept::wait_for_gpuhook();
    seen::assert_still_exact(&running, MAJORS);
    drop(running);
    kept::wait_for_gpuhook();
    before.assert_nothing_new();
}

/// runc, with the hook added to the bundle first.
const HOOKED: &str = r#"#!/bin/sh
previous=
for word; do
	if [ "$previous" = --bundle ]; then
		jq '.hooks.createRuntime += [{"path": "/usr/bin/gpuhook", "args": ["gpuhook", "oci", "createRuntime", ARGUMENTS]}]
			| .hooks.poststop += [{"path": "/usr/bin/gpuhook", "args": ["gpuhook", "oci", "poststop"]}]' \
			"$word/config.json" >"$word/config.new" && mv "$word/config.new" "$word/config.json"
	fi
	previous=$word
done
exec runc "$@"
"#;

fn docker(args: &[&str]) -> Command {
    program::command("docker", args)
}

pub(crate) fn docker_with_a_hook_in_the_bundle_keeps_the_gpu() {
    Driver::with(MAJORS).load();
    let arguments = injected::ARGUMENTS.map(|word| format!("\"{word}\"")).join(", ");
    fs::write("/usr/local/bin/hooked-runc", HOOKED.replace("ARGUMENTS", &arguments)).expect("runtime");
    program::stdout(program::command("chmod", &["755", "/usr/local/bin/hooked-runc"]));
    let daemon = r#"{ "bridge": "none", "iptables": false, "ip6tables": false,
        "runtimes": { "hooked": { "path": "/usr/local/bin/hooked-runc" } } }"#;
    fs::create_dir_all("/etc/docker").expect("folder of docker");
    fs::write("/etc/docker/daemon.json", daemon).expect("daemon.json");
    let _service = Service::start(&["docker.service", "docker.socket", "containerd.service"]);
    let before = Kept::now();
    let rootfs = seen::rootfs("docker");
    injected::prepare(&rootfs, MAJORS);
    let import = format!("tar -C {} -c . | docker import - vmt >/dev/null", rootfs.dir().display());
    program::stdout(program::command("sh", &["-c", &import]));
    let mut run = docker(&["run", "--detach", "--name", NAME, "--runtime", "hooked", "--network", "none"]);
    run.args(["--cap-add", "MKNOD", "--security-opt", "seccomp=unconfined"]);
    run.args(["--volume", &format!("{}:/report", rootfs.path("/report").display())]);
    for pair in injected::ENVIRONMENT {
        run.args(["--env", pair]);
    }
    run.args(["vmt", "/sbin/init"]);
    let mut running = Managed::start(&DOCKER, rootfs, run);
    seen::assert_exact(&running, MAJORS);
    kept::wait_for_gpuhook();
    seen::assert_still_exact(&running, MAJORS);
    program::stdout(program::command("systemctl", &["daemon-reload"]));
    seen::assert_still_exact(&running, MAJORS);
    program::stdout(docker(&["update", "--pids-limit", "100", NAME]));
    seen::assert_still_exact(&running, MAJORS);
    running.restart(docker(&["restart", "-t", "0", NAME]));
    seen::assert_exact(&running, MAJORS);
    drop(running);
    kept::wait_for_gpuhook();
    before.assert_nothing_new();
    program::stdout(docker(&["rmi", "vmt"]));
}
