// SPDX-License-Identifier: MIT OR Apache-2.0
//! gpuhook is killed, or fails, at every step that changes something. After each the container runs with its GPU or was
//! refused; it is not frozen; once it has stopped nothing of gpuhook is mounted, attached, pinned, running or in
//! `/run/gpuhook`; and a second start works.
//!
//! The points are those in the source (`failpoint::reach`). Each must fire in at least one of the tests. `GPUHOOK_POINT`
//! chooses those that begin with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use gpuhook_tests::bed::Bed;
use gpuhook_tests::failpoints::{self, Ear};
use gpuhook_tests::host::{Host, Majors};
use gpuhook_tests::inside::Container;
use gpuhook_tests::lxc::{Lxc, Registration};
use gpuhook_tests::runc::Runc;

/// A request with mounts on files and in a directory that has to be made.
const REQUEST: &str = "--devices all --mig-config all";

/// A bed, and what is in it beside the container.
struct Stage {
    bed: Bed,
    host: Host,
    ear: Ear,
    gpuhook: std::path::PathBuf,
    keeps_report: bool,
}

impl Stage {
    fn new(name: &str) -> Option<Self> {
        let gpuhook = failpoints::gpuhook()?;
        let bed = Bed::pure(name)?;
        let host = Host::new(bed.dir("host"), Majors::NEW, 1);
        // Pins, as a host with a bpffs has them.
        rustix::mount::mount("none", "/sys/fs/bpf", "bpf", rustix::mount::MountFlags::empty(), None).expect("bpffs");
        Some(Self { ear: Ear::new(&bed), bed, host, gpuhook, keeps_report: false })
    }

    fn command(&self, words: &str) -> String {
        let plain = self.host.lxc_hook("").split_whitespace().skip(2).collect::<Vec<_>>().join(" ");
        format!("{} {} {words} {plain}", self.ear.words(), self.gpuhook.display())
    }

    /// The two ways in which each point is reached for the first time, and for a second time where there is one.
    fn orders(&self) -> Vec<(String, &'static str, String)> {
        let mut orders = Vec::new();
        let only = std::env::var("GPUHOOK_POINT").unwrap_or_default();
        for point in failpoints::points().into_iter().filter(|point| point.starts_with(&only)) {
            // A wrap, and with it a pin, comes only where the program cannot be prepended to.
            let before = if point.starts_with("wrap.") { "filter.prepend=return;" } else { "" };
            for (what, action) in [("killed", "return(kill)"), ("failing", "return")] {
                orders.push((point.clone(), what, format!("{before}{point}=1*{action}")));
            }
        }
        orders
    }

    /// Nothing of gpuhook is left: the container has stopped.
    fn assert_clean(&self, story: &str) {
        self.bed.wait_for(&self.gpuhook);
        let mut kept = self.bed.kept();
        // With pre-start alone nobody calls us when the container has stopped: what a killed child left stays.
        kept.retain(|path| !(self.keeps_report && path.ends_with("/report.json")));
        assert_eq!(kept, [""; 0], "{story}");
        let pins = fs::read_dir("/sys/fs/bpf").expect("bpffs").flatten().map(|entry| entry.file_name());
        let pins: Vec<_> = pins.filter(|name| name.to_string_lossy().starts_with("gpuhook")).collect();
        // They go with its next start.
        assert!(pins.len() <= usize::from(self.keeps_report), "{story}: {pins:?}");
        assert_eq!(mounts(), self.mounts_before(), "{story}");
    }

    fn mounts_before(&self) -> usize {
        thread_local! { static BEFORE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) } }
        BEFORE.with(|before| {
            if before.get() == 0 {
                before.set(mounts());
            }
            before.get()
        })
    }
}

fn mounts() -> usize {
    fs::read_to_string("/proc/thread-self/mountinfo").expect("mounts").lines().count()
}

fn node_is_open(container: &dyn Container, story: &str) {
    let said = container.nodes(&["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap1"]);
    for path in ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap1"] {
        assert_eq!(said.open(path), "ENXIO", "{path}: {story}\n{}\n{}", said.0, container.story());
    }
}

/// Runs `start` under every order and once without one, and says which points fired.
fn at_every_point(stage: &Stage, mut start: impl FnMut(&str) -> bool) -> BTreeSet<String> {
    let mut fired = BTreeSet::new();
    let (mut running, mut refused) = (0, 0);
    stage.mounts_before();
    for (point, what, order) in stage.orders() {
        let story = format!("{what} at {point}");
        println!("{story}");
        stage.ear.order(&order);
        let runs = start(&story);
        let reached = stage.ear.fired();
        stage.ear.order("");
        if !reached.contains(&point) {
            assert!(runs, "{story}: refused without having been reached");
            continue;
        }
        fired.extend(reached);
        if runs {
            running += 1
        } else {
            refused += 1
        }
        assert!(start(&format!("second start, after {story}")), "second start, after {story}");
        stage.assert_clean(&format!("after the second start, after {story}"));
    }
    println!("COUNT {} points fired, {running} starts with GPU, {refused} refused", fired.len());
    fired
}

fn lxc(name: &str, how: Registration) {
    let Some(mut stage) = Stage::new(name) else { return };
    stage.keeps_report = how == Registration::PreStartAlone;
    let mut lxc = Lxc::privileged(&stage.bed, "c1");
    lxc.rootfs().first("node-check /dev/nvidia-uvm\n");
    lxc.register(how, &stage.command(&format!("lxc {REQUEST}")));
    let fired = at_every_point(&stage, |story| {
        let runs = match lxc.try_start() {
            Err(_) => false,
            Ok(running) => {
                stage.bed.wait_for(&stage.gpuhook);
                let open = running.report().open("/dev/nvidia-uvm");
                match open.as_str() {
                    "ENXIO" => node_is_open(&running, story),
                    // The one who refuses takes over from one who was killed: init may come as far as its first lines.
                    _ => assert!(running.has_stopped(), "{story}: it runs without its GPU\n{}", running.story()),
                }
                open == "ENXIO"
            }
        };
        stage.bed.wait_for(&stage.gpuhook);
        assert_eq!(cgroups(&stage, lxc.name()), [""; 0], "{story}");
        runs
    });
    let missed: Vec<_> = failpoints::points().into_iter().filter(|point| !fired.contains(point)).collect();
    println!("{how:?} does not reach {missed:?}");
    let of_pre_start_alone = |point: &String| point.starts_with("watch.") || point == "detached.worker";
    match how {
        Registration::PreStartAlone => assert!(!missed.iter().any(of_pre_start_alone), "{missed:?}"),
        _ => assert!(missed.iter().all(of_pre_start_alone), "{missed:?}"),
    }
}

/// What is left of a container's cgroups.
fn cgroups(stage: &Stage, name: &str) -> Vec<String> {
    fs::read_dir(stage.bed.cgroup2())
        .expect("cgroups")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|found| found.contains("payload") && found.contains(name))
        .collect()
}

#[test]
fn an_lxc_container_with_the_include_is_whole_or_refused_wherever_gpuhook_dies() {
    lxc("kills-include", Registration::Include);
}

#[test]
fn an_lxc_container_with_pre_start_alone_is_whole_or_refused_wherever_gpuhook_dies() {
    lxc("kills-pre-start", Registration::PreStartAlone);
}

/// LXC goes on only when the process that is to hold init is ready for it, however late it gets a processor.
#[test]
fn with_pre_start_alone_lxc_waits_for_the_process_that_holds_init() {
    let Some(stage) = Stage::new("kills-late") else { return };
    stage.ear.order("detached.worker=sleep(300)");
    let mut lxc = Lxc::privileged(&stage.bed, "c1");
    lxc.rootfs().first("node-check /dev/nvidia-uvm\n");
    lxc.register(Registration::PreStartAlone, &stage.command(&format!("lxc {REQUEST}")));
    let running = lxc.start();
    assert_eq!(running.report().open("/dev/nvidia-uvm"), "ENXIO", "{}", running.story());
    stage.bed.wait_for(&stage.gpuhook);
}

fn runc<'bed>(stage: &'bed Stage, name: &str, stages: &[&str]) -> Runc<'bed> {
    let mut runc = Runc::new(&stage.bed, name);
    runc.rootfs().first("node-check /dev/nvidia-uvm\n");
    for name in stages {
        let command = stage.command(&format!("oci {name} {REQUEST}"));
        runc.hook(name, &["/bin/sh", "-c", &command].map(str::to_owned));
    }
    runc
}

/// Engines give every container an id of its own, so nobody would ever ask for that of a killed hook again.
#[test]
fn what_a_killed_hook_leaves_of_a_container_goes_with_the_next_one() {
    let Some(stage) = Stage::new("kills-left") else { return };
    stage.ear.order("flow.filter=1*return(kill)");
    let gone = runc(&stage, "gone", &["createRuntime"]);
    gone.try_start().map(drop).expect_err("its hook was killed");
    let left = Path::new("/run/gpuhook/oci").join(gone.id());
    assert!(left.is_dir(), "nobody was there to remove it");
    stage.ear.order("");
    drop(runc(&stage, "next", &["createRuntime", "poststop"]).start());
    assert!(!left.exists() && !Path::new("/run/gpuhook").exists());
}

#[test]
fn a_runc_container_is_whole_or_refused_wherever_gpuhook_dies() {
    let Some(stage) = Stage::new("kills-runc") else { return };
    let runc = runc(&stage, "c1", &["createRuntime", "poststop"]);
    let fired = at_every_point(&stage, |story| match runc.try_start() {
        Err(_) => false,
        Ok(running) => {
            stage.bed.wait_for(&stage.gpuhook);
            node_is_open(&running, story);
            true
        }
    });
    assert!(fired.iter().any(|point| point.starts_with("mounts.")), "{fired:?}");
    assert!(!Path::new("/run/gpuhook").exists(), "not even an empty folder is left");
}
