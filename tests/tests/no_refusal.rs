// SPDX-License-Identifier: MIT OR Apache-2.0
//! No open is refused: init opens `/dev/nvidia-uvm` without a pause from its first instruction, through start, hand-back
//! and LXC's own live updates, and counts what comes of it.
//!
//! `GPUHOOK_REPEAT` says how often each start is repeated (10 where it is not set; CI 50, `make endurance` 500).

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use gpuhook_linux::sys::bpf::{self, Query};
use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::lxc::{Lxc, Registration, RunningLxc};
use gpuhook_tests::{program, repeat, standin};

const NODE: &str = "/dev/nvidia-uvm";

/// `struct counts` of `standin/open-loop.c`.
#[derive(Clone, Copy, Debug)]
struct Counts {
    opens: u64,
    refused: u64,
    absent: u64,
    other: u64,
    /// From main's first instruction to the first open that came through.
    until_good: Option<Duration>,
    longest: Duration,
}

impl Counts {
    fn bad(&self) -> u64 {
        self.refused + self.absent + self.other
    }
}

/// A strict privileged container whose init is the loop.
fn looping<'bed>(bed: &'bed Bed, host: &Host, how: Option<Registration>) -> Lxc<'bed> {
    let mut lxc = Lxc::privileged(bed, "c1");
    lxc.rootfs().copy(&standin::open_loop(), "/bin/open-loop");
    lxc.line(&format!("lxc.init.cmd = /bin/open-loop {NODE}"));
    if let Some(how) = how {
        lxc.register(how, &host.lxc_hook(""));
    }
    lxc
}

fn counts_file(lxc: &Lxc) -> PathBuf {
    lxc.rootfs().path("/counts")
}

fn start<'lxc>(lxc: &'lxc Lxc) -> RunningLxc<'lxc> {
    fs::write(counts_file(lxc), [0; 4096]).expect("counts");
    lxc.start()
}

fn counts(lxc: &Lxc) -> Counts {
    let bytes = fs::read(counts_file(lxc)).expect("counts");
    let words: Vec<u64> =
        bytes.chunks_exact(8).take(7).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect();
    let [opens, refused, absent, other, started, first_good, longest] = words[..] else {
        panic!("seven counts, not {words:?}");
    };
    let until_good = (first_good > 0).then(|| Duration::from_nanos(first_good - started));
    Counts { opens, refused, absent, other, until_good, longest: Duration::from_nanos(longest) }
}

/// The device programs on the cgroup that LXC gave the container.
fn programs(running: &RunningLxc) -> usize {
    let cgroups = fs::read_to_string(format!("/proc/{}/cgroup", running.init_pid())).expect("cgroup of init");
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::")).expect("a cgroup2 path");
    let cgroup = File::open(format!("/sys/fs/cgroup{path}")).expect("cgroup");
    bpf::query(&cgroup, Query::Own).expect("programs").ids.len()
}

/// Waits until the loop has gone round some more, so that it has met the filter as it is now.
fn go_round(lxc: &Lxc) -> Counts {
    let before = counts(lxc).opens;
    loop {
        let now = counts(lxc);
        if now.opens > before + 100 {
            return now;
        }
        std::thread::yield_now();
    }
}

/// The whole life of a container, and then twice more what LXC can do to its rules.
fn never_refused(name: &str, how: Registration) {
    let Some(bed) = Bed::pure(name) else { return };
    let host = Host::new(bed.dir("host"), Majors::NEW, 2);
    let lxc = looping(&bed, &host, Some(how));
    let (mut opens, mut bad, mut slowest, mut longest) = (0, 0, Duration::ZERO, Duration::ZERO);
    let times = repeat::times(10);
    for round in 0..times {
        let running = start(&lxc);
        bed.wait_for(&program::gpuhook());
        for (at, rule) in ["c 10:229 rwm", "c 504:0 rw", "c 504:1 rw"].into_iter().enumerate() {
            running.live_allow(rule);
            assert_eq!(programs(&running), 1, "round {round}, after live update {at}");
        }
        let seen = go_round(&lxc);
        assert_eq!(seen.bad(), 0, "round {round}: {seen:?}\n{}", lxc.story());
        (opens, bad) = (opens + seen.opens, bad + seen.bad());
        slowest = slowest.max(seen.until_good.expect("an open that came through"));
        longest = longest.max(seen.longest);
    }
    println!(
        "COUNT {how:?}: {times} starts, {opens} opens of {NODE}, {bad} refused; first open done at most {} us after \
         init's first instruction; longest open {} us",
        slowest.as_micros(),
        longest.as_micros()
    );
}

#[test]
fn no_open_is_refused_with_the_include() {
    never_refused("loop-include", Registration::Include);
}

#[test]
fn no_open_is_refused_with_start_host_alone() {
    never_refused("loop-start-host", Registration::StartHost);
}

/// The injector holds init at its exec, so that nothing can come first: not even the millisecond that one could allow.
#[test]
fn no_open_is_refused_with_pre_start_alone() {
    never_refused("loop-pre-start", Registration::PreStartAlone);
}

/// The loop does count: without gpuhook there is no node, and where there is one it is refused.
#[test]
fn without_gpuhook_every_open_is_counted_as_refused() {
    let Some(bed) = Bed::pure("loop-control") else { return };
    let host = Host::new(bed.dir("host"), Majors::NEW, 2);
    let mut lxc = looping(&bed, &host, None);
    {
        let _running = start(&lxc);
        let seen = go_round(&lxc);
        assert_eq!((seen.absent, seen.until_good), (seen.opens, None), "{seen:?}");
    }
    lxc.bind_node(NODE, (host.majors().uvm, 0)).write_config();
    let _running = start(&lxc);
    let seen = go_round(&lxc);
    assert_eq!((seen.refused, seen.until_good), (seen.opens, None), "{seen:?}");
}

/// What the obvious hand-back costs: LXC's program comes back before it knows the rules.
#[test]
fn a_hand_back_without_a_bridge_would_be_seen_by_the_loop() {
    let Some(bed) = Bed::pure("loop-naive") else { return };
    let host = Host::new(bed.dir("host"), Majors::NEW, 2);
    let mut lxc = looping(&bed, &host, None);
    lxc.bind_node(NODE, (host.majors().uvm, 0));
    let running = start(&lxc);
    let rule = format!("c {}:0 rwm", host.majors().uvm);
    running.live_allow(&rule);
    let before = go_round(&lxc);
    let mut deny = lxc.tool("lxc-cgroup");
    deny.args(["devices.deny", &rule]);
    program::stdout(deny);
    go_round(&lxc);
    running.live_allow(&rule);
    let after = go_round(&lxc);
    assert!(after.refused > before.refused, "{before:?} {after:?}");
}
