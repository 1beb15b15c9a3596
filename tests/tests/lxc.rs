// SPDX-License-Identifier: MIT OR Apache-2.0
//! gpuhook in real LXC containers on cgroup2, judged from inside.

use std::fs;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::injected;
use gpuhook_tests::inside::Container;
use gpuhook_tests::lxc::{Lxc, Registration};
use gpuhook_tests::program;

fn host(bed: &Bed) -> Host {
    Host::new(bed.dir("host"), Majors::NEW, 2)
}

/// Makes the container ask, and registers gpuhook with it.
fn ask<'lxc, 'bed>(lxc: &'lxc mut Lxc<'bed>, host: &Host, how: Registration, version: u32) -> &'lxc mut Lxc<'bed> {
    injected::prepare(lxc.rootfs(), host.majors());
    for pair in injected::ENVIRONMENT {
        lxc.line(&format!("lxc.environment = {pair}"));
    }
    lxc.line(&format!("lxc.hook.version = {version}"));
    lxc.register(how, &host.lxc_hook(""))
}

/// A strict privileged container has exactly what it asked for, before init's first instruction.
fn privileged_gets_exactly_what_it_asked(name: &str, how: Registration, version: u32) {
    let Some(bed) = Bed::pure(name) else { return };
    let host = host(&bed);
    let mut lxc = Lxc::privileged(&bed, "c1");
    let running = ask(&mut lxc, &host, how, version).start();
    injected::assert_exact(&running, host.majors());
    bed.wait_for(&program::gpuhook());
    injected::assert_still_open(&running, host.majors());
    assert!(!running.story().contains("produced output"), "a hook that succeeds is silent:\n{}", running.story());
}

#[test]
fn without_gpuhook_there_is_no_node_and_every_number_is_refused() {
    let Some(bed) = Bed::pure("control") else { return };
    let mut lxc = Lxc::privileged(&bed, "c1");
    injected::prepare(lxc.rootfs(), Majors::NEW);
    injected::assert_nothing(&lxc.line("lxc.environment = NVIDIA_VISIBLE_DEVICES=0").start(), Majors::NEW);
}

#[test]
fn included_with_hook_version_0() {
    privileged_gets_exactly_what_it_asked("include-0", Registration::Include, 0);
}

#[test]
fn included_with_hook_version_1() {
    privileged_gets_exactly_what_it_asked("include-1", Registration::Include, 1);
}

#[test]
fn start_host_alone_with_hook_version_0() {
    privileged_gets_exactly_what_it_asked("start-host-0", Registration::StartHost, 0);
}

#[test]
fn start_host_alone_with_hook_version_1() {
    privileged_gets_exactly_what_it_asked("start-host-1", Registration::StartHost, 1);
}

#[test]
fn pre_start_alone_with_hook_version_0() {
    privileged_gets_exactly_what_it_asked("pre-start-0", Registration::PreStartAlone, 0);
}

#[test]
fn pre_start_alone_with_hook_version_1() {
    privileged_gets_exactly_what_it_asked("pre-start-1", Registration::PreStartAlone, 1);
}

#[test]
fn a_neighbouring_hook_with_a_mount_namespace_is_not_taken_for_the_container() {
    let Some(bed) = Bed::pure("neighbour") else { return };
    let host = host(&bed);
    let mut lxc = Lxc::privileged(&bed, "c1");
    ask(&mut lxc, &host, Registration::PreStartAlone, 0);
    // It lives long enough to be seen, and then executes a program at which it would be held and the container missed.
    let busy = "i=0; while [ $i -lt 100 ]; do i=$((i + 1)); /bin/true; done; exec /bin/true";
    lxc.line(&format!("lxc.hook.pre-start = unshare -m sh -c '{busy}'"));
    injected::assert_exact(&lxc.start(), host.majors());
}

/// The filter sits on the cgroup above the one that init is in, as on Proxmox.
fn inner_cgroup_gets_exactly_what_it_asked(name: &str, how: Registration) {
    let Some(bed) = Bed::pure(name) else { return };
    let host = host(&bed);
    let mut lxc = Lxc::privileged(&bed, "c1");
    let running = ask(&mut lxc, &host, how, 0).inner_cgroup().start();
    injected::assert_exact(&running, host.majors());
    bed.wait_for(&program::gpuhook());
    injected::assert_still_open(&running, host.majors());
}

#[test]
fn an_inner_cgroup_with_the_include() {
    inner_cgroup_gets_exactly_what_it_asked("inner-include", Registration::Include);
}

#[test]
fn an_inner_cgroup_with_pre_start_alone() {
    inner_cgroup_gets_exactly_what_it_asked("inner-pre-start", Registration::PreStartAlone);
}

/// An unprivileged container has the nodes as its own root's; without rules in its config it stays without a filter.
fn unprivileged_gets_exactly_the_nodes_it_asked(name: &str, how: Registration) {
    let Some(bed) = Bed::pure(name) else { return };
    let host = host(&bed);
    let mut lxc = Lxc::unprivileged(&bed, "c1");
    let running = ask(&mut lxc, &host, how, 0).start();
    injected::assert_nodes(&running, host.majors());
    bed.wait_for(&program::gpuhook());
    injected::assert_still_open(&running, host.majors());
    for (path, number) in injected::not_asked(host.majors()) {
        let hand = format!("/hand/{}.{}", number.0, number.1);
        assert_eq!(running.report().open(&hand), "ENXIO", "{path}: gpuhook adds no filter where there was none");
    }
}

#[test]
fn unprivileged_with_the_include() {
    unprivileged_gets_exactly_the_nodes_it_asked("unprivileged-include", Registration::Include);
}

#[test]
fn unprivileged_with_start_host_alone() {
    unprivileged_gets_exactly_the_nodes_it_asked("unprivileged-start-host", Registration::StartHost);
}

#[test]
fn unprivileged_with_pre_start_alone() {
    unprivileged_gets_exactly_the_nodes_it_asked("unprivileged-pre-start", Registration::PreStartAlone);
}

#[test]
fn unprivileged_with_rules_of_its_own_gets_exactly_what_it_asked() {
    let Some(bed) = Bed::pure("unprivileged-rules") else { return };
    let host = host(&bed);
    let mut lxc = Lxc::unprivileged(&bed, "c1");
    lxc.strict();
    let running = ask(&mut lxc, &host, Registration::Include, 0).start();
    injected::assert_exact(&running, host.majors());
}

#[test]
fn a_container_that_may_not_make_nodes_may_not_make_these_either() {
    let Some(bed) = Bed::pure("no-mknod") else { return };
    let host = host(&bed);
    let mut lxc = Lxc::privileged_without_mknod(&bed, "c1");
    let running = ask(&mut lxc, &host, Registration::Include, 0).start();
    injected::assert_nodes(&running, host.majors());
    bed.wait_for(&program::gpuhook());
    for (path, (major, minor)) in injected::asked(host.majors()) {
        let said = running.run(&["/bin/node-check", "--mknod", &format!("{major}:{minor}"), "/dev/own"]);
        assert_eq!(said.mknod_refused("/dev/own").as_deref(), Some("EPERM"), "{path}: {said:?}");
    }
    injected::assert_still_open(&running, host.majors());
}

#[test]
fn the_same_config_serves_every_new_number() {
    let Some(bed) = Bed::pure("renumber") else { return };
    let mut host = host(&bed);
    let mut lxc = Lxc::privileged(&bed, "c1");
    ask(&mut lxc, &host, Registration::Include, 0);
    lxc.write_config();
    let config = fs::read(lxc.config()).expect("config");
    for majors in [Majors::NEW, Majors::NEXT, Majors::OLD] {
        host.renumber(majors);
        injected::prepare(lxc.rootfs(), majors);
        let running = lxc.start();
        injected::assert_exact(&running, majors);
        assert_eq!(running.open_own((if majors == Majors::NEW { 511 } else { 509 }, 0)), "EPERM", "yesterday's number");
    }
    assert_eq!(fs::read(lxc.config()).expect("config"), config);
}

#[test]
fn lxcs_own_live_update_keeps_the_gpu() {
    let Some(bed) = Bed::pure("live-update") else { return };
    let host = host(&bed);
    let mut lxc = Lxc::privileged(&bed, "c1");
    let running = ask(&mut lxc, &host, Registration::Include, 0).start();
    bed.wait_for(&program::gpuhook());
    for (rule, number) in [("c 504:0 rw", (504, 0)), ("c 504:1 rw", (504, 1))] {
        running.live_allow(rule);
        injected::assert_still_open(&running, host.majors());
        assert_ne!(running.open_own(number), "EPERM", "LXC's own rule counts");
    }
    assert_eq!(running.open_own((195, 0)), "EPERM", "and nothing else was opened");
}

#[test]
fn a_stopped_container_leaves_nothing_behind() {
    let Some(bed) = Bed::pure("stopped") else { return };
    let host = host(&bed);
    let mut lxc = Lxc::privileged(&bed, "c1");
    let running = ask(&mut lxc, &host, Registration::Include, 0).start();
    assert_ne!(bed.kept(), [""; 0], "while it runs, its nodes and its report are there");
    drop(running);
    bed.wait_for(&program::gpuhook());
    assert_eq!(bed.kept(), [""; 0]);
}

#[test]
fn a_container_that_stops_during_the_hand_back_leaves_no_cgroup() {
    let Some(bed) = Bed::pure("stopped-early") else { return };
    let host = host(&bed);
    let mut lxc = Lxc::privileged(&bed, "c1");
    ask(&mut lxc, &host, Registration::Include, 0).write_config();
    for _ in 0..5 {
        // Not waiting for the child that hands back: it is in the middle of it.
        drop(lxc.start());
    }
    bed.wait_for(&program::gpuhook());
    let monitors = |name: &str| name.starts_with("lxc.monitor") && name.contains(bed.name());
    let left: Vec<String> = fs::read_dir(bed.cgroup2())
        .expect("cgroup2")
        .filter_map(|entry| entry.expect("entry").file_name().into_string().ok())
        .filter(|name| monitors(name))
        .collect();
    assert_eq!(left, [""; 0]);
}

/// The start is refused, with a sentence that has all of `words`, and nothing remains.
fn is_refused(name: &str, how: Registration, change: impl Fn(&mut Lxc, &Host), words: &[&str]) {
    let Some(bed) = Bed::pure(name) else { return };
    let host = host(&bed);
    let mut lxc = Lxc::privileged(&bed, "c1");
    ask(&mut lxc, &host, how, 0);
    change(&mut lxc, &host);
    let story = lxc.try_start().expect_err("the start is refused");
    for word in words {
        assert!(story.contains(word), "{word:?} is not in:\n{story}");
    }
    bed.wait_for(&program::gpuhook());
    assert_eq!(bed.kept(), [""; 0]);
}

#[test]
fn a_host_without_uvm_refuses_and_says_which_module() {
    for (name, how) in [("no-uvm", Registration::Include), ("no-uvm-pre-start", Registration::PreStartAlone)] {
        let without_uvm = |_: &mut Lxc, host: &Host| {
            let lines = host.devices();
            let lines: Vec<_> = lines.lines().filter(|line| !line.ends_with("nvidia-uvm")).collect();
            host.overwrite("proc/devices", &(lines.join("\n") + "\n"));
        };
        is_refused(name, how, without_uvm, &["nvidia-uvm", "modprobe"]);
    }
}

#[test]
fn an_unknown_gpu_is_refused_and_the_known_ones_are_listed() {
    let seven = |lxc: &mut Lxc, _: &Host| {
        lxc.line("lxc.environment = NVIDIA_VISIBLE_DEVICES=7");
    };
    is_refused("unknown", Registration::Include, seven, &["7", "GPU-00000000-0000-4000-8000-000000000001"]);
}

#[test]
fn a_failing_cuinit_refuses_where_the_administrator_enforces_it() {
    for (name, how) in [("cuinit-999", Registration::Include), ("cuinit-999-alone", Registration::StartHost)] {
        is_refused(name, how, |lxc, _| lxc.rootfs().write("/etc/standin-cuda", "999"), &["cuInit", "999"]);
    }
}

#[test]
fn a_hanging_cuinit_is_ended_at_the_time_limit() {
    let hang = |lxc: &mut Lxc, host: &Host| {
        host.configure("load-modules = false\n[verify]\nl3 = \"warn\"\nl5 = \"enforce\"\ntime-limit-seconds = 1\n");
        lxc.rootfs().write("/etc/standin-cuda", "sleep");
    };
    is_refused("cuinit-hangs", Registration::Include, hang, &["cuInit"]);
}

#[test]
fn a_dying_cuinit_is_reported_as_such() {
    let die = |lxc: &mut Lxc, _: &Host| lxc.rootfs().write("/etc/standin-cuda", "abort");
    is_refused("cuinit-dies", Registration::Include, die, &["cuInit"]);
}

#[test]
fn a_failing_cuinit_is_a_warning_by_default() {
    let Some(bed) = Bed::pure("cuinit-warn") else { return };
    let host = host(&bed);
    host.configure("load-modules = false\n[verify]\nl3 = \"warn\"\n");
    let mut lxc = Lxc::privileged(&bed, "c1");
    ask(&mut lxc, &host, Registration::Include, 0);
    lxc.rootfs().write("/etc/standin-cuda", "999");
    let running = lxc.start();
    assert_eq!(running.report().cuinit(), 999, "the stand-in says 999 to everyone");
    injected::assert_reached(&running, "/dev/nvidia-uvm");
}

#[test]
fn a_libcuda_that_prints_or_forks_does_not_hold_up_the_start() {
    for word in ["print", "fork"] {
        let Some(bed) = Bed::pure(word) else { return };
        let host = host(&bed);
        let mut lxc = Lxc::privileged(&bed, "c1");
        ask(&mut lxc, &host, Registration::Include, 0);
        lxc.rootfs().write("/etc/standin-cuda", word);
        // Only the probe meets the bad library: init's own look would hang on a child that keeps the report open.
        lxc.rootfs().first("rm /etc/standin-cuda\nnode-check /dev/nvidia-uvm\ncuda-check\n");
        let running = lxc.start();
        assert_eq!(running.report().cuinit(), 0, "{word}: {}", running.story());
        assert!(running.story().len() < 64 * 1024, "{word}: LXC hangs on more output of a hook");
        assert_eq!(processes_beside(running.init_pid()), [running.init_pid()], "{word}: the probe left a process");
    }
}

/// The processes in the cgroup that this one is in.
fn processes_beside(pid: u32) -> Vec<u32> {
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("cgroups of init");
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::")).expect("a cgroup2 path");
    let processes = fs::read_to_string(format!("/sys/fs/cgroup{path}/cgroup.procs")).expect("its processes");
    processes.lines().map(|pid| pid.parse().expect("a pid")).collect()
}

#[test]
fn a_hook_for_every_container_does_nothing_unless_asked() {
    let Some(bed) = Bed::pure("opt-in") else { return };
    let host = host(&bed);
    let mut silent = Lxc::privileged(&bed, "silent");
    injected::prepare(silent.rootfs(), host.majors());
    silent.register(Registration::Include, &host.lxc_hook("--opt-in"));
    injected::assert_nothing(&silent.start(), host.majors());

    let mut asking = Lxc::privileged(&bed, "asking");
    injected::prepare(asking.rootfs(), host.majors());
    for pair in injected::ENVIRONMENT {
        asking.line(&format!("lxc.environment = {pair}"));
    }
    asking.register(Registration::Include, &host.lxc_hook("--opt-in"));
    injected::assert_exact(&asking.start(), host.majors());
}

#[test]
fn a_hook_in_one_containers_config_means_all_gpus() {
    let Some(bed) = Bed::pure("all") else { return };
    let host = host(&bed);
    let mut lxc = Lxc::privileged(&bed, "c1");
    lxc.rootfs().first("node-check /dev/nvidia0 /dev/nvidia1\ncuda-check\n");
    lxc.register(Registration::Include, &host.lxc_hook(""));
    let running = lxc.start();
    for minor in [0, 1] {
        let node = running.report().node(&format!("/dev/nvidia{minor}")).expect("all GPUs");
        assert_eq!(node.number, (195, minor));
    }
    assert_eq!((running.report().cuinit(), running.report().devices()), (0, 2));
}

#[test]
fn the_hooks_arguments_ask_as_the_environment_does() {
    let Some(bed) = Bed::pure("arguments") else { return };
    let host = host(&bed);
    let mut lxc = Lxc::privileged(&bed, "c1");
    injected::prepare(lxc.rootfs(), host.majors());
    let arguments = format!("--devices {} {}", host.uuid_of_minor(1), injected::ARGUMENTS.join(" "));
    lxc.register(Registration::Include, &host.lxc_hook(&arguments));
    injected::assert_exact(&lxc.start(), host.majors());
}

#[test]
fn static_rules_and_mounts_of_yesterday_do_no_harm_beside_gpuhook() {
    let Some(bed) = Bed::pure("beside") else { return };
    let host = host(&bed);
    let mut lxc = Lxc::privileged(&bed, "c1");
    lxc.allow("c 195:* rwm").allow("c 504:* rwm").allow("c 507:* rwm");
    for (path, number) in [("/dev/nvidiactl", (195, 255)), ("/dev/nvidia1", (195, 1)), ("/dev/nvidia-uvm", (509, 0))] {
        lxc.bind_node(path, number);
    }
    let running = ask(&mut lxc, &host, Registration::Include, 0).start();
    injected::assert_nodes(&running, host.majors());
}
