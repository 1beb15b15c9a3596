// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many containers at once, and one started and stopped again and again: afterwards the machine holds what it held before.
//!
//! `GPUHOOK_CYCLES` says how many cycles (20 where it is not set; CI 100, `make endurance` 1000), `GPUHOOK_AT_ONCE` how
//! many containers (10; CI and endurance 50).

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use gpuhook_linux::sys::bpf;
use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::lxc::{Lxc, Registration, RunningLxc};
use gpuhook_tests::{program, repeat};

/// What could leak.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    /// Device programs of ours that the kernel holds.
    programs: usize,
    /// In this mount namespace.
    mounts: usize,
    /// Of gpuhook, in this mount namespace.
    processes: usize,
    /// gpuhook's files, folders and mounts.
    kept: Vec<String>,
    /// Cgroups of this bed's containers.
    cgroups: usize,
}

fn held(bed: &Bed) -> Held {
    let ours = fs::read_link("/proc/thread-self/ns/mnt").expect("mount namespace");
    let links = |link: &str| {
        let all = fs::read_dir("/proc").expect("/proc").flatten();
        all.filter_map(|entry| Some((entry.path(), fs::read_link(entry.path().join(link)).ok()?)))
            .collect::<BTreeMap<_, _>>()
    };
    let namespaces = links("ns/mnt");
    let processes = links("exe")
        .into_iter()
        .filter(|(process, exe)| *exe == program::gpuhook() && namespaces.get(process) == Some(&ours))
        .count();
    let payloads = fs::read_dir(bed.cgroup2()).expect("cgroups").flatten();
    Held {
        programs: programs(),
        mounts: fs::read_to_string("/proc/thread-self/mountinfo").expect("mounts").lines().count(),
        processes,
        kept: bed.kept(),
        cgroups: payloads.filter(|entry| entry.file_name().to_string_lossy().contains(bed.name())).count(),
    }
}

/// Programs that the kernel holds and that have one of our names. Other tests have some as well for moments, so a lasting
/// one is what counts: the smallest number of several looks.
fn programs() -> usize {
    let look = || {
        let ids = 1..=newest_program();
        let names = ids.filter_map(|id| bpf::prog_info(bpf::prog_by_id(id).ok()?).ok()).map(|info| info.name);
        names.filter(|name| name.starts_with("gpuhook_")).count()
    };
    (0..20).map(|_| look()).min().unwrap_or(0)
}

/// The highest id that can be: that of a program made now.
fn newest_program() -> u32 {
    let accept = [[0xb7, 0, 0, 0, 1, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let program = bpf::prog_load(c"newest", &accept, 0).expect("program");
    bpf::prog_info(program).expect("its info").id
}

/// The process of LXC that stays with a container, and took gpuhook's rules over.
#[derive(Debug)]
struct Monitor {
    descriptors: usize,
    /// Resident memory.
    kib: u64,
}

impl Monitor {
    fn of(running: &RunningLxc) -> Self {
        let field = |pid: &str, name: &str| -> String {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
            line.split_whitespace().next().expect("a value").to_owned()
        };
        let pid = field(&running.init_pid().to_string(), "PPid:");
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors").count();
        Self { descriptors, kib: field(&pid, "VmRSS:").parse().expect("a number") }
    }
}

fn prepare<'bed>(bed: &'bed Bed, host: &Host, name: &str) -> Lxc<'bed> {
    let mut lxc = Lxc::privileged(bed, name);
    lxc.rootfs().first("node-check /dev/nvidia-uvm\n");
    lxc.register(Registration::Include, &host.lxc_hook("--devices all"));
    lxc.write_config();
    lxc
}

#[test]
fn start_and_stop_again_and_again_leaks_nothing() {
    let Some(bed) = Bed::pure("cycles") else { return };
    let host = Host::new(bed.dir("host"), Majors::NEW, 2);
    let lxc = prepare(&bed, &host, "c1");
    let cycles = repeat::of("GPUHOOK_CYCLES", 20);
    let run = || {
        let running = lxc.start();
        gpuhook_tests::injected::assert_reached(&running, "/dev/nvidia-uvm");
        // While the hand-back runs it is in the monitor's cgroup, and LXC leaves that one behind, empty.
        bed.wait_for(&program::gpuhook());
        drop(running);
        bed.wait_for(&program::gpuhook());
    };
    // Its monitor lives through all of it, as those of the other containers of a host do.
    let other = prepare(&bed, &host, "other");
    let staying = other.start();
    // The first one makes what LXC itself keeps.
    run();
    let before = held(&bed);
    let monitor = Monitor::of(&staying);
    let began = Instant::now();
    for _ in 0..cycles {
        run();
    }
    let took = began.elapsed();
    let after = held(&bed);
    let monitor_after = Monitor::of(&staying);
    assert_eq!(monitor_after.descriptors, monitor.descriptors);
    assert!(monitor_after.kib <= monitor.kib + 128, "{monitor:?} {monitor_after:?}");
    assert_eq!(after.kept, before.kept);
    assert_eq!((after.mounts, after.processes, after.cgroups), (before.mounts, before.processes, before.cgroups));
    assert!(after.programs <= before.programs + 2, "{before:?} {after:?}");
    println!(
        "COUNT {cycles} cycles in {:.1} s, {:.0} ms each: nothing left; the monitor of another container had {} \
         descriptors and {} KiB before, {} and {} after",
        took.as_secs_f64(),
        took.as_secs_f64() * 1e3 / f64::from(cycles),
        monitor.descriptors,
        monitor.kib,
        monitor_after.descriptors,
        monitor_after.kib
    );
}

#[test]
fn containers_that_start_at_once_all_have_their_gpu() {
    let Some(bed) = Bed::pure("at-once") else { return };
    let host = Host::new(bed.dir("host"), Majors::NEW, 2);
    let count = repeat::of("GPUHOOK_AT_ONCE", 10);
    let containers: Vec<Lxc> = (0..count).map(|at| prepare(&bed, &host, &format!("c{at}"))).collect();
    let before = held(&bed);
    let began = Instant::now();
    let mut starting: Vec<(_, Child)> = Vec::new();
    for lxc in &containers {
        let listener = lxc.rootfs().listen();
        let mut start: Command = lxc.tool("lxc-start");
        start.arg("-F").stdout(Stdio::null()).stderr(Stdio::null());
        starting.push((listener, start.spawn().expect("lxc-start")));
    }
    let mut monitors = Vec::new();
    for (listener, mut monitor) in starting {
        let report = listener.report_while(&mut monitor).expect("it comes up");
        assert_eq!(report.open("/dev/nvidia-uvm"), "ENXIO");
        monitors.push(monitor);
    }
    let up = began.elapsed();
    bed.wait_for(&program::gpuhook());
    for (lxc, monitor) in containers.iter().zip(&mut monitors) {
        program::output({
            let mut stop = lxc.tool("lxc-stop");
            stop.arg("-k");
            stop
        });
        monitor.wait().expect("wait for the monitor");
    }
    let after = held(&bed);
    assert_eq!(after.kept, before.kept);
    assert_eq!((after.mounts, after.processes), (before.mounts, before.processes));
    println!("COUNT {count} containers at once: all up after {:.1} s, nothing left", up.as_secs_f64());
}
