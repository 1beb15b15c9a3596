// SPDX-License-Identifier: MIT OR Apache-2.0
//! The swap race: brings nodes into a container again and again while a process inside swaps a directory on the way for
//! a symbolic link to a host path, as fast as it can, and counts what came out on the host.
//!
//! ```text
//! race [--naive] COUNT
//! ```
//!
//! `--naive` does the same with path strings, as hooks in shell do, to show that the race is one: it ends with 1 at the
//! first escape. Without it the exit status is 0 where nothing escaped and nothing was left mounted.

use std::fs::{self, File};
use std::io::{Read, Write, pipe};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use gpuhook_core::facts::ContainerFacts;
use gpuhook_core::plan::Plan;
use gpuhook_core::request::{Arguments, Request};
use gpuhook_linux::apply::Mounts;
use gpuhook_linux::gather::{self, Wanted};
use gpuhook_linux::root::Root;
use gpuhook_linux::sys::process::{self, Child};
use gpuhook_linux::sys::{confine, ns};
use gpuhook_linux::target::Target;
use gpuhook_tests::bed::Bed;
use gpuhook_tests::host::{Host, Majors};
use rustix::fs::{CWD, RenameFlags, renameat_with};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (naive, count) = match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [count] => (false, count.parse()),
        ["--naive", count] => (true, count.parse()),
        _ => return usage(),
    };
    let Ok(count) = count else { return usage() };
    let Some(bed) = Bed::pure("race") else { return ExitCode::SUCCESS };
    let arena = Arena::new(&bed);
    let started = Instant::now();
    let outcome = if naive { arena.naive(count) } else { arena.race(count) };
    println!("{outcome} in {:.1} s\nescapes: {}", started.elapsed().as_secs_f64(), outcome.escapes);
    match outcome.escapes == 0 && outcome.left == 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: race [--naive] COUNT");
    ExitCode::from(2)
}

#[derive(Debug, Default)]
struct Outcome {
    done: u64,
    refused: u64,
    escapes: u64,
    left: usize,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { done, refused, left, .. } = self;
        write!(f, "race: {} injections, {done} done, {refused} refused, {left} mounts left", done + refused)
    }
}

/// A root filesystem, a directory of the host, and the container's process that swaps.
struct Arena {
    rootfs: PathBuf,
    victim: PathBuf,
    host: Host,
    swapper: Child,
}

const GPU: &str = "dev/nvidia-caps";

impl Arena {
    fn new(bed: &Bed) -> Self {
        let (rootfs, victim) = (bed.dir("rootfs"), bed.dir("victim"));
        fs::create_dir_all(rootfs.join(GPU)).expect("directory");
        fs::create_dir_all(victim.join("nvidia-caps")).expect("directory");
        fs::write(victim.join("secret"), "of the host").expect("file");
        // What the link means below the container's root is there as well, so that a safe lookup has where to go.
        fs::create_dir_all(below(&rootfs, &victim).join("nvidia-caps")).expect("directory");
        symlink(victim.join("nvidia-caps"), rootfs.join("caps.link")).expect("link");
        symlink(&victim, rootfs.join("dev.link")).expect("link");
        let swapper = start_swapper(&rootfs);
        Self { host: Host::new(bed.dir("host"), Majors::NEW, 1), rootfs, victim, swapper }
    }

    fn race(&self, count: u64) -> Outcome {
        let plan = self.plan();
        let rootfs = self.rootfs.to_str().expect("UTF-8").to_owned();
        let target = Target::open(self.swapper.pid()).expect("container").with_rootfs(rootfs);
        let before = self.mounts();
        let mut outcome = Outcome::default();
        for _ in 0..count {
            let mounts = Mounts::make(&plan, &target);
            // Looked at while they stand: an undo would hide it.
            outcome.escapes += u64::from(self.is_touched());
            match mounts {
                Ok(_undone_here) => outcome.done += 1,
                Err(_) => outcome.refused += 1,
            }
        }
        outcome.left = self.mounts().len().saturating_sub(before.len());
        outcome
    }

    /// The same by path strings, in the same mount namespace.
    fn naive(&self, count: u64) -> Outcome {
        let mut outcome = Outcome::default();
        for _ in 0..count {
            let path = self.rootfs.join(GPU).join("nvidia-cap1");
            let made = fs::create_dir_all(self.rootfs.join(GPU)).and_then(|()| File::create(&path));
            match made {
                Ok(_) => outcome.done += 1,
                Err(_) => outcome.refused += 1,
            }
            if self.is_touched() {
                outcome.escapes += 1;
                break;
            }
            let _swapped_meanwhile = fs::remove_file(&path);
        }
        outcome
    }

    /// Whether anything of the host's directory is other than it was.
    fn is_touched(&self) -> bool {
        let names = |dir: &Path| fs::read_dir(dir).expect("the host's directory").count();
        let mounted = self.mounts().iter().any(|point| Path::new(point).starts_with(&self.victim));
        mounted
            || names(&self.victim) != 2
            || names(&self.victim.join("nvidia-caps")) != 0
            || fs::read(self.victim.join("secret")).expect("the host's file") != b"of the host"
    }

    /// The mount points of the container's namespace.
    fn mounts(&self) -> Vec<String> {
        let text = fs::read_to_string(format!("/proc/{}/mountinfo", self.swapper.pid())).expect("mounts");
        text.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned).collect()
    }

    fn plan(&self) -> Plan {
        let root = Root::open(self.host.root().to_str().expect("UTF-8")).expect("host");
        let facts = gather::host(&root, Wanted { capabilities: true, ..Wanted::default() }).expect("facts");
        let arguments = Arguments { devices: Some("all"), mig_config: Some("all"), ..Arguments::default() };
        let request = Request::from_arguments(&arguments).expect("request");
        let own = "         0          0 4294967295\n";
        let map = gpuhook_core::facts::IdMap::parse(own).expect("id map");
        let container = ContainerFacts { uid_map: map.clone(), gid_map: map, ..ContainerFacts::default() };
        Plan::make(&facts, &container, &request).expect("plan")
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.swapper.pid().cast_signed()).expect("pid");
        let _ended_with_us_otherwise = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn below(rootfs: &Path, path: &Path) -> PathBuf {
    rootfs.join(path.strip_prefix("/").expect("an absolute path"))
}

/// The container: a mount namespace in which the host's tree is visible, as at createRuntime, and a process that swaps.
fn start_swapper(rootfs: &Path) -> Child {
    let (mut ready, say) = pipe().expect("pipe");
    let mut say = Some(say);
    let swapper = process::fork(|| {
        confine::die_with_parent().expect("death with the parent");
        ns::private_mounts().expect("mount namespace");
        rustix::mount::mount_bind(rootfs, rootfs).expect("bind of the root");
        say.take().expect("one end").write_all(b"x").expect("word");
        let at = |name: &str| rootfs.join(name);
        let swap = |one: &str, other: &str| renameat_with(CWD, at(one), CWD, at(other), RenameFlags::EXCHANGE);
        loop {
            // There and back, so that each stands half of the time. EBUSY: a mount stands on it just now.
            for (one, other) in [(GPU, "caps.link"), ("dev", "dev.link")] {
                if swap(one, other).is_ok() {
                    while swap(one, other).is_err() {}
                }
            }
        }
    })
    .expect("the container's process");
    drop(say);
    ready.read_exact(&mut [0]).expect("the container comes up");
    swapper
}
