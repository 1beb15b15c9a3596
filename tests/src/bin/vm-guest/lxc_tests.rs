// SPDX-License-Identifier: MIT OR Apache-2.0
//! gpuhook under everything that LXC and its users do to a container.

use std::fs;

use gpuhook_tests::host::Majors;
use gpuhook_tests::injected;
use gpuhook_tests::inside::Container;
use gpuhook_tests::program;

use crate::driver::{self, Driver};
use crate::kept::{self, Kept};
use crate::lxc::{INCLUDE, Lxc, PRE_START};
use crate::seen;

const MAJORS: Majors = Majors::NEW;

/// Loads the driver and writes down a privileged container that asks.
fn privileged(registration: &str) -> Lxc {
    Driver::with(MAJORS).load();
    let mut lxc = Lxc::privileged("c1");
    lxc.ask(MAJORS, registration);
    lxc
}

/// The label of a process, as AppArmor shows it.
fn label(pid: u32) -> String {
    let label = fs::read_to_string(format!("/proc/{pid}/attr/current")).expect("label of a process");
    label.trim_end_matches(['\n', '\0']).to_owned()
}

pub(crate) fn the_monitor_is_confined_by_the_shipped_profile_and_injection_works() {
    let mut lxc = privileged(INCLUDE);
    lxc.generated_profile();
    let running = lxc.start();
    let monitor = parent(running.init_pid());
    assert_eq!(label(monitor), "/usr/bin/lxc-start (enforce)");
    let of_init = label(running.init_pid());
    assert!(of_init.starts_with("lxc-c1_") && of_init.ends_with("(enforce)"), "{of_init}");
    seen::assert_exact(&running, MAJORS);
    kept::wait_for_gpuhook();
    seen::assert_still_exact(&running, MAJORS);
    assert!(!running.story().contains("produced output"), "a hook that succeeds is silent:\n{}", running.story());
}

/// What gives lxc-start the right to run a hook unconfined.
const START_CONTAINER: &str = "/etc/apparmor.d/abstractions/lxc/start-container";

fn load_profile(abstraction: &str) {
    fs::write(START_CONTAINER, abstraction).expect("profile of lxc-start");
    program::stdout(program::command("apparmor_parser", &["-r", "-T", "-K", "/etc/apparmor.d/usr.bin.lxc-start"]));
}

pub(crate) fn where_apparmor_mediates_move_mount_an_injection_that_cannot_leave_the_profile_is_refused() {
    // Linux 6.7 (AppArmor 4.0's "detached"); 6.1 lets every move_mount pass.
    let mediated = fs::exists("/sys/kernel/security/apparmor/features/mount/move_mount").expect("features of AppArmor");
    let shipped = fs::read_to_string(START_CONTAINER).expect("profile of lxc-start");
    let without = shipped.replace("  change_profile -> unconfined,\n", "");
    assert_ne!(shipped, without);
    let lxc = privileged(INCLUDE);
    load_profile(&without);
    let tried = lxc.try_start(&[]).map(|running| seen::assert_exact(&running, MAJORS));
    load_profile(&shipped);
    match (mediated, tried) {
        (true, Err(story)) => {
            for word in ["EACCES", "hint: ", "change_profile -> unconfined"] {
                assert!(story.contains(word), "{word:?} is not in:\n{story}");
            }
        }
        (false, Ok(())) => {}
        (_, tried) => panic!("move_mount is mediated: {mediated}, and then: {tried:?}"),
    }
    kept::wait_for_gpuhook();
}

fn parent(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status of a process");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent.and_then(|pid| pid.trim().parse().ok()).expect("a parent")
}

pub(crate) fn pre_start_alone_gives_exactly_what_was_asked() {
    let lxc = privileged(PRE_START);
    let running = lxc.start();
    seen::assert_exact(&running, MAJORS);
    kept::wait_for_gpuhook();
    seen::assert_still_exact(&running, MAJORS);
}

fn unprivileged(registration: &str) {
    Driver::with(MAJORS).load();
    let mut lxc = Lxc::unprivileged("c1");
    lxc.generated_profile().ask(MAJORS, registration);
    let running = lxc.start();
    seen::assert_nodes(&running, MAJORS);
    kept::wait_for_gpuhook();
    seen::assert_still_open(&running, MAJORS);
}

pub(crate) fn unprivileged_with_the_include() {
    unprivileged(INCLUDE);
}

pub(crate) fn unprivileged_with_pre_start_alone() {
    unprivileged(PRE_START);
}

/// What pve-container writes around a container: its cgroups, its private mounts of the monitor, hooks of its own first.
fn as_proxmox_does(lxc: &mut Lxc) {
    lxc.line("lxc.monitor.unshare = 1");
    lxc.line("lxc.cgroup.relative = 0");
    lxc.line("lxc.cgroup.dir.monitor = lxc.monitor/c1");
    lxc.line("lxc.cgroup.dir.container = lxc/c1");
    lxc.line("lxc.cgroup.dir.container.inner = ns");
    for stage in ["pre-start", "autodev", "post-stop"] {
        lxc.line(&format!("lxc.hook.{stage} = /bin/true"));
    }
}

pub(crate) fn proxmoxs_layout_works() {
    Driver::with(MAJORS).load();
    let mut lxc = Lxc::privileged("c1");
    as_proxmox_does(&mut lxc);
    lxc.ask(MAJORS, INCLUDE);
    let running = lxc.start();
    let cgroup = fs::read_to_string(format!("/proc/{}/cgroup", running.init_pid())).expect("cgroup of init");
    assert_eq!(cgroup.trim(), "0::/lxc/c1/ns");
    seen::assert_exact(&running, MAJORS);
    kept::wait_for_gpuhook();
    seen::assert_still_exact(&running, MAJORS);
}

pub(crate) fn proxmoxs_unprivileged_layout_works() {
    Driver::with(MAJORS).load();
    let mut lxc = Lxc::unprivileged("c1");
    as_proxmox_does(&mut lxc);
    lxc.line("lxc.cgroup2.devices.allow = a");
    lxc.ask(MAJORS, PRE_START);
    let running = lxc.start();
    seen::assert_nodes(&running, MAJORS);
    kept::wait_for_gpuhook();
    seen::assert_still_open(&running, MAJORS);
}

pub(crate) fn a_missing_uvm_module_is_loaded_at_start() {
    for registration in [INCLUDE, PRE_START] {
        Driver::with(MAJORS).load_only(&["nvidia"]);
        let devices = fs::read_to_string("/proc/devices").expect("/proc/devices");
        assert!(!devices.contains("nvidia-uvm"), "{devices}");
        let mut lxc = Lxc::privileged("c1");
        lxc.ask(MAJORS, registration);
        let running = lxc.start();
        seen::assert_exact(&running, MAJORS);
        drop(running);
        kept::wait_for_gpuhook();
    }
}

pub(crate) fn a_foreground_start_works() {
    let lxc = privileged(INCLUDE);
    let running = lxc.start_in_foreground();
    seen::assert_exact(&running, MAJORS);
    kept::wait_for_gpuhook();
    seen::assert_still_exact(&running, MAJORS);
}

pub(crate) fn a_reboot_from_inside_injects_again() {
    for registration in [INCLUDE, PRE_START] {
        let lxc = privileged(registration);
        let mut running = lxc.start();
        kept::wait_for_gpuhook();
        let before = running.init_pid();
        running.reboot_from_inside();
        kept::wait_for_gpuhook();
        assert_ne!(running.init_pid(), before);
        seen::assert_exact(&running, MAJORS);
        seen::assert_still_exact(&running, MAJORS);
        drop(running);
        kept::wait_for_gpuhook();
    }
}

pub(crate) fn a_copied_container_works() {
    let lxc = privileged(INCLUDE);
    lxc.write_config();
    program::stdout(program::command("lxc-copy", &["-n", "c1", "-N", "c2"]));
    program::stdout(program::command("lxc-start", &["-n", "c2"]));
    kept::wait_for_gpuhook();
    let said = program::output(program::command("lxc-attach", &["-n", "c2", "--", "/bin/cuda-check"]));
    let said = program::both(&said);
    program::stdout(program::command("lxc-stop", &["-n", "c2", "-k"]));
    program::stdout(program::command("lxc-destroy", &["-n", "c2"]));
    assert!(said.contains("cuInit=0 devices=1"), "{said}\n{}", crate::lxc::journal());
}

pub(crate) fn a_change_of_the_config_of_a_running_container_does_no_harm() {
    let lxc = privileged(INCLUDE);
    let running = lxc.start();
    kept::wait_for_gpuhook();
    let text = fs::read_to_string(lxc.config()).expect("config");
    fs::write(lxc.config(), format!("{text}lxc.environment = LATER=1\n[snapshot]\n")).expect("config");
    seen::assert_still_exact(&running, MAJORS);
    fs::write(lxc.config(), text).expect("config");
}

fn stopped_leaves_nothing(registration: &str) {
    let before = Kept::now();
    let lxc = privileged(registration);
    let running = lxc.start();
    kept::wait_for_gpuhook();
    assert_ne!(Kept::now(), before, "while it runs, something of it is there");
    running.tool("lxc-stop", &["-k"]);
    running.wait_for("STOPPED");
    drop(running);
    before.assert_nothing_new();
}

pub(crate) fn lxc_stop_k_leaves_nothing() {
    stopped_leaves_nothing(INCLUDE);
}

pub(crate) fn lxc_stop_k_with_pre_start_alone_leaves_nothing() {
    stopped_leaves_nothing(PRE_START);
}

pub(crate) fn lxc_freeze_and_unfreeze_keep_the_gpu() {
    let lxc = privileged(INCLUDE);
    let running = lxc.start();
    kept::wait_for_gpuhook();
    running.tool("lxc-freeze", &[]);
    running.wait_for("FROZEN");
    running.tool("lxc-unfreeze", &[]);
    running.wait_for("RUNNING");
    seen::assert_still_exact(&running, MAJORS);
}

pub(crate) fn live_updates_keep_the_gpu() {
    for registration in [INCLUDE, PRE_START] {
        let lxc = privileged(registration);
        let running = lxc.start();
        kept::wait_for_gpuhook();
        for (rule, number) in [("c 10:183 rw", (10, 183)), ("c 10:200 rwm", (10, 200))] {
            running.cgroup("devices.allow", rule);
            seen::assert_still_exact(&running, MAJORS);
            assert_ne!(running.open_own(number), "EPERM", "LXC's own rule counts");
        }
        running.cgroup("devices.deny", "c 10:183 rw");
        seen::assert_still_exact(&running, MAJORS);
        assert_eq!(running.open_own((10, 183)), "EPERM", "LXC's own rule counts");
        drop(running);
        kept::wait_for_gpuhook();
    }
}

pub(crate) fn daemon_reload_does_not_touch_lxc() {
    let lxc = privileged(INCLUDE);
    let running = lxc.start();
    kept::wait_for_gpuhook();
    program::stdout(program::command("systemctl", &["daemon-reload"]));
    seen::assert_still_exact(&running, MAJORS);
}

pub(crate) fn a_dead_gpu_refuses_the_start_and_is_named() {
    let lxc = privileged(INCLUDE);
    driver::kill_gpu(1);
    let refused = lxc.try_start(&[]).err();
    driver::kill_gpu(-1);
    let story = refused.expect("the start is refused");
    for word in ["/dev/nvidia1", "EIO"] {
        assert!(story.contains(word), "{word:?} is not in:\n{story}");
    }
    kept::wait_for_gpuhook();
    seen::assert_exact(&lxc.start(), MAJORS);
}

pub(crate) fn mig_capabilities_reach_the_container() {
    Driver { majors: MAJORS, gpus: 2, options: "mig=2" }.load();
    let mut lxc = Lxc::privileged("c1");
    let caps = [(1, "OK"), (2, "OK")];
    let paths = caps.map(|(minor, _)| format!("/dev/nvidia-caps/nvidia-cap{minor}"));
    lxc.rootfs().first(&format!("node-check {}\ncuda-check\n", paths.join(" ")));
    for pair in [injected::ENVIRONMENT[0], "NVIDIA_MIG_CONFIG_DEVICES=all", "NVIDIA_MIG_MONITOR_DEVICES=all"] {
        lxc.line(&format!("lxc.environment = {pair}"));
    }
    lxc.line(INCLUDE);
    let running = lxc.start();
    for ((minor, open), path) in caps.into_iter().zip(&paths) {
        let node = running.report().node(path).unwrap_or_else(|| panic!("no {path}\n{}", running.story()));
        assert_eq!((node.number, node.open.as_str()), ((MAJORS.caps, minor), open), "{path}");
    }
}
