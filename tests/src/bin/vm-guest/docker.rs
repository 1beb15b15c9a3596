// SPDX-License-Identifier: MIT OR Apache-2.0
//! docker with gpuhook's runtime, and with a CDI file of gpuhook.

use std::fs;
use std::path::Path;
use std::process::Command;

use gpuhook_tests::host::Majors;
use gpuhook_tests::program;
use serde_json::{Value, json};

use crate::driver::Driver;
use crate::one_gpu::{self, VARIABLE};
use crate::{kept, lxc};

const CONF: &str = "/etc/docker/daemon.json";
const CDI: &str = "/etc/cdi/gpuhook.json";
const NAME: &str = "vmt-docker";
const IMAGE: &str = "vmt-docker";

/// A daemon that runs until this is dropped.
struct Docker;

impl Docker {
    fn start(more: &Value) -> Self {
        let mut daemon = json!({ "bridge": "none", "iptables": false,
            "runtimes": { "gpuhook": { "path": "/usr/bin/gpuhook-runtime" } } });
        for (key, value) in more.as_object().into_iter().flatten() {
            daemon[key] = value.clone();
        }
        fs::create_dir_all("/etc/docker").expect("folder of the configuration");
        fs::write(CONF, daemon.to_string()).expect("configuration");
        systemctl(&["restart", "docker"]);
        let docker = Self;
        docker.said(&["rm", "-f", NAME]);
        one_gpu::import("docker", &one_gpu::rootfs("docker"), IMAGE);
        docker
    }

    fn run(&self, how: &[&str]) {
        let options = ["--network", "none", "--cap-add", "MKNOD", "--security-opt", "seccomp=unconfined"];
        let mut run = program::command("docker", &["run", "--detach", "--name", NAME]);
        run.args(options).args(["--security-opt", "apparmor=unconfined"]).args(how).args([IMAGE, "/sbin/init"]);
        let output = program::output(run);
        assert!(output.status.success(), "{}\n{}", program::both(&output), lxc::journal());
    }

    fn said(&self, args: &[&str]) -> String {
        program::both(&program::output(program::command("docker", args)))
    }

    fn exec(&self) -> Command {
        program::command("docker", &["exec", NAME])
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        self.said(&["rm", "-f", NAME]);
        let _stopped =
            program::output(program::command("systemctl", &["stop", "docker", "docker.socket", "containerd"]));
        for file in [CONF, CDI] {
            let _there_may_be_none = fs::remove_file(file);
        }
    }
}

fn systemctl(args: &[&str]) {
    program::stdout(program::command("systemctl", args));
}

pub(crate) fn docker_with_the_runtime_keeps_the_gpu() {
    Driver::with(Majors::NEW).load().make_host_nodes();
    let docker = Docker::start(&json!({}));
    docker.run(&["--runtime", "gpuhook", "--env", VARIABLE]);
    one_gpu::assert_exact(docker.exec(), Majors::NEW);
    kept::wait_for_gpuhook();
    systemctl(&["daemon-reload"]);
    one_gpu::assert_exact(docker.exec(), Majors::NEW);
    docker.said(&["update", "--memory", "1g", "--memory-swap", "2g", NAME]);
    one_gpu::assert_exact(docker.exec(), Majors::NEW);
    docker.said(&["rm", "-f", NAME]);
    one_gpu::assert_nothing_kept();
}

pub(crate) fn docker_renews_the_numbers_at_a_restart() {
    Driver::with(Majors::OLD).load().make_host_nodes();
    let docker = Docker::start(&json!({}));
    docker.run(&["--runtime", "gpuhook", "--env", VARIABLE]);
    one_gpu::assert_exact(docker.exec(), Majors::OLD);
    docker.said(&["stop", "-t", "0", NAME]);
    kept::wait_for_gpuhook();
    Driver::with(Majors::NEXT).load().make_host_nodes();
    docker.said(&["start", NAME]);
    one_gpu::assert_exact(docker.exec(), Majors::NEXT);
}

pub(crate) fn docker_says_why_a_container_is_refused() {
    Driver::with(Majors::NEW).load();
    let docker = Docker::start(&json!({}));
    let refused =
        docker.said(&["run", "--rm", "--runtime", "gpuhook", "--env", "NVIDIA_VISIBLE_DEVICES=7", IMAGE, "/bin/true"]);
    assert!(refused.contains("gpuhook: ") && refused.contains("no GPU"), "{refused}");
    let quiet = docker.said(&["run", "--rm", "--network", "none", "--runtime", "gpuhook", IMAGE, "/bin/ls", "/dev"]);
    assert!(quiet.contains("null") && !quiet.contains("nvidia"), "{quiet}");
}

pub(crate) fn docker_with_a_cdi_file_gets_the_gpu() {
    let version = program::stdout(program::command("docker", &["--version"]));
    let major = version.split(['.', ' ']).find_map(|word| word.parse::<u32>().ok());
    if major.is_none_or(|major| major < 25) {
        println!("SKIP docker has CDI from 25 on; this is {}", version.trim());
        return;
    }
    Driver::with(Majors::NEW).load().make_host_nodes();
    program::stdout(program::command("gpuhook", &["cdi", "generate", "--output", CDI]));
    assert!(Path::new(CDI).exists());
    let docker = Docker::start(&json!({ "features": { "cdi": true }, "experimental": true }));
    docker.run(&["--device", "gpuhook.dev/gpu=0"]);
    one_gpu::assert_exact(docker.exec(), Majors::NEW);
    systemctl(&["daemon-reload"]);
    one_gpu::assert_exact(docker.exec(), Majors::NEW);
    docker.said(&["stop", "-t", "0", NAME]);
    kept::wait_for_gpuhook();
    // The file is as it was, and holds no number. But a daemon keeps the numbers that it once looked up, as it would not over
    // a kernel upgrade; the hook refuses to start with those, and says so.
    Driver::with(Majors::NEXT).load().make_host_nodes();
    docker.said(&["start", NAME]);
    let refused = lxc::journal();
    assert!(refused.contains("start refused") && refused.contains("but the driver has"), "{refused}");
    systemctl(&["restart", "docker"]);
    docker.said(&["start", NAME]);
    one_gpu::assert_exact(docker.exec(), Majors::NEXT);
}
