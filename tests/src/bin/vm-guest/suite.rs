// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of tests, and how they are run: on the first boot, then on the second, then the machine goes off.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use gpuhook_tests::program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::{
    boot, bundle_hooks, containerd, docker, doctor, kept, kill, lxc_tests, oci_tests, podman, precreate, story,
};

/// One test.
pub(crate) struct Test {
    pub(crate) name: &'static str,
    boot: Boot,
    run: fn(),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Boot {
    First,
    /// After a real reboot, for which [`boot::prepare`] made ready.
    Second,
}

macro_rules! tests {
    ($($boot:ident $module:ident $($name:ident)+;)+) => {
        &[$($(Test { name: stringify!($name), boot: Boot::$boot, run: $module::$name },)+)+]
    };
}

/// Every test, in the order in which they run.
pub(crate) const ALL: &[Test] = tests! {
    First story
        a_static_config_goes_from_0_to_999_when_the_numbers_change
        gpuhook_stays_0_over_three_renumberings
        an_old_driver_with_nvidia_frontend_works;
    First lxc_tests
        the_monitor_is_confined_by_the_shipped_profile_and_injection_works
        where_apparmor_mediates_move_mount_an_injection_that_cannot_leave_the_profile_is_refused
        pre_start_alone_gives_exactly_what_was_asked
        unprivileged_with_the_include
        unprivileged_with_pre_start_alone
        proxmoxs_layout_works
        proxmoxs_unprivileged_layout_works
        a_missing_uvm_module_is_loaded_at_start
        a_foreground_start_works
        a_reboot_from_inside_injects_again
        a_copied_container_works
        a_change_of_the_config_of_a_running_container_does_no_harm
        lxc_stop_k_leaves_nothing
        lxc_stop_k_with_pre_start_alone_leaves_nothing
        lxc_freeze_and_unfreeze_keep_the_gpu
        live_updates_keep_the_gpu
        daemon_reload_does_not_touch_lxc
        a_dead_gpu_refuses_the_start_and_is_named
        mig_capabilities_reach_the_container;
    First oci_tests
        runc_with_cgroupfs
        runc_with_systemd
        crun_with_cgroupfs
        crun_with_systemd
        runc_with_systemd_keeps_the_gpu_over_daemon_reload
        crun_with_systemd_keeps_the_gpu_over_daemon_reload
        runc_with_systemd_keeps_the_gpu_over_set_property
        crun_with_systemd_keeps_the_gpu_over_set_property
        runc_update_with_cgroupfs_keeps_the_gpu
        runc_update_with_systemd_keeps_the_gpu
        crun_update_with_cgroupfs_keeps_the_gpu
        crun_update_with_systemd_keeps_the_gpu;
    First podman
        podman_root_with_a_hooks_directory
        podman_exec_and_restart_keep_the_gpu
        podman_keeps_the_gpu_over_daemon_reload
        what_podman_update_takes_from_a_hook_inject_gives_back
        podman_rootless_with_a_hooks_directory;
    First bundle_hooks
        containerd_with_a_hook_in_the_bundle
        docker_with_a_hook_in_the_bundle_keeps_the_gpu;
    First precreate
        podman_precreate_with_runc_and_systemd_keeps_the_gpu
        podman_precreate_with_crun_and_systemd_keeps_the_gpu
        podman_precreate_with_runc_and_cgroupfs_keeps_the_gpu
        podman_with_the_runtime_and_crun_keeps_the_gpu_over_an_update
        podman_with_the_runtime_and_the_hook_keeps_the_gpu_over_an_update
        podman_precreate_needs_no_node_of_the_host
        podman_precreate_renews_the_numbers_at_a_restart
        podman_precreate_gives_one_mig_device
        podman_precreate_gives_the_mig_device_of_a_uuid
        podman_precreate_gives_imex_channels
        podman_precreate_rootless
        podman_play_kube_gets_the_gpu_and_builds_are_left_alone;
    First docker
        docker_with_the_runtime_keeps_the_gpu
        docker_renews_the_numbers_at_a_restart
        docker_says_why_a_container_is_refused
        docker_with_a_cdi_file_gets_the_gpu;
    First containerd
        containerd_keeps_and_renews_the_gpu
        containerd_with_systemd_keeps_and_renews_the_gpu;
    First doctor
        doctor_names_the_rule_of_the_old_kernel_and_its_fix_cures_the_running_container
        doctor_names_a_dead_gpu
        doctor_names_an_unloaded_module_and_its_fix_loads_it;
    First kill
        fifty_containers_at_once_get_their_devices_and_leave_nothing
        a_hook_killed_at_start_host_leaves_nothing
        a_hook_killed_with_pre_start_alone_leaves_nothing;
    Second boot
        the_story_after_a_real_reboot
        a_container_started_at_boot_loads_uvm_itself
        hardened_bpf_works_with_lxc
        hardened_bpf_works_with_runc;
};

/// How long a test may take: far more than any does on two busy cores in software emulation.
fn limit() -> Duration {
    Duration::from_secs(600 + 15 * u64::from(kill::kills()))
}

/// What the first boot hands to the second: the counts so far.
const STATE: &str = "/var/lib/vm-guest.state";

/// Runs one test in this process.
pub(crate) fn one(name: &str) -> ExitCode {
    let Some(test) = ALL.iter().find(|test| test.name == name) else {
        println!("no test is called {name}");
        return ExitCode::FAILURE;
    };
    (test.run)();
    ExitCode::SUCCESS
}

#[derive(Clone, Copy, Default)]
struct Counts {
    passed: u32,
    failed: u32,
}

/// Runs those whose names hold one of `words`, or all.
pub(crate) fn all(words: &[String]) -> ExitCode {
    let (boot, mut counts) = match fs::read_to_string(STATE) {
        Err(_) => (Boot::First, Counts::default()),
        Ok(state) => {
            let mut lines = state.lines();
            let mut number = || lines.next().and_then(|line| line.parse().ok()).unwrap_or_default();
            (Boot::Second, Counts { passed: number(), failed: number() })
        }
    };
    let chosen = |test: &&Test| words.is_empty() || words.iter().any(|word| test.name.contains(word.as_str()));
    say(&format!("# up after {} s", uptime()));
    if boot == Boot::First {
        install();
        say(&format!("# {}", versions()));
    }
    for test in ALL.iter().filter(|test| test.boot == boot).filter(chosen) {
        run(test, &mut counts);
    }
    if boot == Boot::First && ALL.iter().filter(|test| test.boot == Boot::Second).any(|test| chosen(&test)) {
        boot::prepare();
        let state = format!("{}\n{}\n", counts.passed, counts.failed);
        fs::write(STATE, state).expect("state for the second boot");
        say("# reboot");
        program::stdout(program::command("systemctl", &["reboot"]));
    } else {
        say(&format!("{} passed, {} failed", counts.passed, counts.failed));
        program::stdout(program::command("systemctl", &["poweroff"]));
    }
    ExitCode::SUCCESS
}

/// Puts gpuhook where a package would put it, from the disk that was handed in.
fn install() {
    program::stdout(program::command("cp", &["-a", "/handin/root/.", "/"]));
}

/// What the tests ran on, in one line.
fn versions() -> String {
    let packages = ["lxc", "runc", "crun", "podman", "docker.io", "containerd", "systemd", "apparmor"];
    let query = ["-W", "-f", "${Package} ${Version}, "];
    let listed = program::output(program::command("dpkg-query", &[&query[..], &packages].concat()));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("kernel {}, {}", kernel.trim(), String::from_utf8_lossy(&listed.stdout).trim_end_matches(", "))
}

fn run(test: &Test, counts: &mut Counts) {
    let said = Path::new("/run/vm-guest.said");
    let output = File::create(said).expect("file for a test's output");
    let start = Instant::now();
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["--one", test.name]).env("GPUHOOK_MUST_WORK", "1").process_group(0).stdin(Stdio::null());
    command.stdout(output.try_clone().expect("dup")).stderr(output);
    let mut child = command.spawn().expect("a test's process");
    let pid = Pid::from_child(&child);
    let ended = pidfd_open(pid, PidfdFlags::empty()).expect("pidfd of a test");
    let limit = limit();
    let timeout = Timespec::try_from(limit).expect("a short time");
    let in_time = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&timeout)).expect("poll") == 1;
    if !in_time {
        let _ended_just_now = kill_process_group(pid, Signal::KILL);
    }
    let status = child.wait().expect("wait for a test");
    let seconds = start.elapsed().as_secs_f32();
    let said = String::from_utf8_lossy(&fs::read(said).unwrap_or_default()).into_owned();
    if status.success() {
        if let Some(reason) = said.lines().find_map(|line| line.strip_prefix("SKIP ")) {
            return say(&format!("SKIP {} {reason}", test.name));
        }
        counts.passed += 1;
        say(&format!("PASS {} {seconds:.1}", test.name));
        return said.lines().filter(|line| line.starts_with("COUNT ")).for_each(say);
    }
    counts.failed += 1;
    say(&format!("FAIL {} {seconds:.1}", test.name));
    if !in_time {
        say(&format!("    no end within {limit:?}"));
    }
    said.lines().for_each(|line| say(&format!("    {line}")));
    kept::sweep();
}

fn uptime() -> String {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split('.').next().unwrap_or_default().to_owned()
}

/// A line for the runner. The terminal is the machine's second serial port.
fn say(line: &str) {
    let mut out = std::io::stdout();
    let _nobody_listens = writeln!(out, "{line}").and_then(|()| out.flush());
}
