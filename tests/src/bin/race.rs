// SPDX-License-Identifier: MIT OR Apache-2.0
//! The swap race: brings nodes into a container again and again while a process inside swaps a directory on the way for
//! a symbolic link to a host path, as fast as it can, and counts what came out on the host.
//!
//! ```text
//! race [--naive] COUNT
//! ```
//!
//! The injections are the product's own (`Mounts::make`). Most of their time the kernel waits before an unmount is done, so
//! there are more injectors than processors, each with a root filesystem of its own; the one swapping process, in whose
//! mount namespace they all are, swaps in each some thousand times a second: many times during an injection.
//!
//! `--naive` does the same with path strings, as hooks in shell do, to show that the race is one: it ends with 1 at the
//! first escape. Without it the exit status is 0 where nothing escaped and nothing was left mounted.

use std::fs::{self, File};
use std::io::{Read, Write, pipe};
use std::os::unix::fs::{MetadataExt, symlink};
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
    let started = Instant::now();
    let processors = std::thread::available_parallelism().map_or(1, |number| number.get() as u64);
    let arenas: Vec<Arena> = (0..if naive { 1 } else { 3 * processors }).map(|at| Arena::new(&bed, at)).collect();
    let swapper = Swapper::start(&arenas);
    let outcome = if naive { arenas[0].naive(&swapper, count) } else { race(&arenas, &swapper, count) };
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

/// The injections, shared out.
fn race(arenas: &[Arena], swapper: &Swapper, count: u64) -> Outcome {
    let workers: Vec<_> = arenas
        .iter()
        .zip(0_u64..)
        .map(|(arena, at)| {
            let all = arenas.len() as u64;
            let share = count / all + u64::from(at < count % all);
            let (told, tell) = pipe().expect("pipe");
            let (mut tell, mut told) = (Some(tell), Some(told));
            let worker = process::fork(|| {
                drop(told.take());
                confine::die_with_parent().expect("death with the parent");
                let Outcome { done, refused, escapes, left } = arena.race(swapper, share);
                let mut tell = tell.take().expect("one end");
                tell.write_all(format!("{done} {refused} {escapes} {left}").as_bytes()).expect("word");
                0
            });
            drop(tell);
            (worker.expect("worker"), told.expect("the other end"))
        })
        .collect();
    let mut sum = Outcome::default();
    for (worker, mut told) in workers {
        let mut text = String::new();
        told.read_to_string(&mut text).expect("outcome");
        assert_eq!(worker.wait().expect("wait"), Ok(0), "a worker ended early");
        let numbers: Vec<u64> = text.split(' ').map(|word| word.parse().expect("a number")).collect();
        let [done, refused, escapes, left] = numbers[..] else { panic!("four numbers, not {text:?}") };
        sum.done += done;
        sum.refused += refused;
        sum.escapes += escapes;
        sum.left += left;
    }
    sum
}

#[derive(Debug, Default)]
struct Outcome {
    done: u64,
    refused: u64,
    escapes: u64,
    left: u64,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { done, refused, left, .. } = self;
        write!(f, "race: {} injections, {done} done, {refused} refused, {left} mounts left", done + refused)
    }
}

/// A root filesystem, and a directory of the host.
struct Arena {
    rootfs: PathBuf,
    victim: PathBuf,
    host: Host,
}

const GPU: &str = "dev/nvidia-caps";

impl Arena {
    fn new(bed: &Bed, at: u64) -> Self {
        let (rootfs, victim) = (bed.dir(&format!("rootfs-{at}")), bed.dir(&format!("victim-{at}")));
        fs::create_dir_all(rootfs.join(GPU)).expect("directory");
        fs::create_dir_all(victim.join("nvidia-caps")).expect("directory");
        fs::write(victim.join("secret"), "of the host").expect("file");
        // What the link means below the container's root is there as well, so that a safe lookup has where to go.
        fs::create_dir_all(below(&rootfs, &victim).join("nvidia-caps")).expect("directory");
        symlink(victim.join("nvidia-caps"), rootfs.join("caps.link")).expect("link");
        symlink(&victim, rootfs.join("dev.link")).expect("link");
        Self { host: Host::new(bed.dir(&format!("host-{at}")), Majors::NEW, 1), rootfs, victim }
    }

    fn race(&self, swapper: &Swapper, count: u64) -> Outcome {
        let plan = self.plan();
        let rootfs = self.rootfs.to_str().expect("UTF-8").to_owned();
        let target = Target::open(swapper.0.pid()).expect("container").with_rootfs(rootfs);
        let (before, times) = (swapper.mounts(&self.rootfs), self.times());
        let mut outcome = Outcome::default();
        for at in 0..count {
            let mounts = Mounts::make(&plan, &target);
            // What is made in a directory changes its times, whether or not it is removed again. Mounts that stand on the
            // host's directory lie on what was made there.
            let touched = self.times() != times || at % 256 == 0 && self.is_touched(swapper);
            outcome.escapes += u64::from(touched);
            match mounts {
                Ok(_undone_here) => outcome.done += 1,
                Err(_) => outcome.refused += 1,
            }
        }
        outcome.escapes += u64::from(self.is_touched(swapper));
        outcome.left = swapper.mounts(&self.rootfs).len().saturating_sub(before.len()) as u64;
        outcome
    }

    /// The same by path strings, in the same mount namespace.
    fn naive(&self, swapper: &Swapper, count: u64) -> Outcome {
        let mut outcome = Outcome::default();
        for _ in 0..count {
            let path = self.rootfs.join(GPU).join("nvidia-cap1");
            let made = fs::create_dir_all(self.rootfs.join(GPU)).and_then(|()| File::create(&path));
            match made {
                Ok(_) => outcome.done += 1,
                Err(_) => outcome.refused += 1,
            }
            if self.is_touched(swapper) {
                outcome.escapes += 1;
                break;
            }
            let _swapped_meanwhile = fs::remove_file(&path);
        }
        outcome
    }

    /// When the host's directories and file were changed last.
    fn times(&self) -> [(i64, i64); 3] {
        ["", "nvidia-caps", "secret"].map(|name| {
            let metadata = fs::metadata(self.victim.join(name)).expect("what is the host's");
            (metadata.ctime(), metadata.ctime_nsec())
        })
    }

    /// Whether anything of the host's directory is other than it was.
    fn is_touched(&self, swapper: &Swapper) -> bool {
        let names = |dir: &Path| fs::read_dir(dir).expect("the host's directory").count();
        !swapper.mounts(&self.victim).is_empty()
            || names(&self.victim) != 2
            || names(&self.victim.join("nvidia-caps")) != 0
            || fs::read(self.victim.join("secret")).expect("the host's file") != b"of the host"
    }

    fn plan(&self) -> Plan {
        let root = Root::open(self.host.root().to_str().expect("UTF-8")).expect("host");
        let facts = gather::host(&root, Wanted { capabilities: true, ..Wanted::default() }).expect("facts");
        let arguments = Arguments { devices: Some("none"), mig_config: Some("all"), ..Arguments::default() };
        let request = Request::from_arguments(&arguments).expect("request");
        let own = "         0          0 4294967295\n";
        let map = gpuhook_core::facts::IdMap::parse(own).expect("id map");
        let container = ContainerFacts { uid_map: map.clone(), gid_map: map, ..ContainerFacts::default() };
        Plan::make(&facts, &container, &request).expect("plan")
    }
}

fn below(rootfs: &Path, path: &Path) -> PathBuf {
    rootfs.join(path.strip_prefix("/").expect("an absolute path"))
}

/// The container: a mount namespace in which the host's tree is visible, as at createRuntime, and a process that swaps.
struct Swapper(Child);

impl Swapper {
    fn start(arenas: &[Arena]) -> Self {
        let (mut ready, say) = pipe().expect("pipe");
        let mut say = Some(say);
        let swapper = process::fork(|| {
            confine::die_with_parent().expect("death with the parent");
            ns::private_mounts().expect("mount namespace");
            for Arena { rootfs, .. } in arenas {
                rustix::mount::mount_bind(rootfs, rootfs).expect("bind of the root");
            }
            say.take().expect("one end").write_all(b"x").expect("word");
            let swap = |one: &Path, other: &Path| renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
            let pairs = |Arena { rootfs, .. }: &Arena| {
                [(GPU, "caps.link"), ("dev", "dev.link")].map(|(one, other)| (rootfs.join(one), rootfs.join(other)))
            };
            let pairs: Vec<_> = arenas.iter().flat_map(pairs).collect();
            loop {
                // There and back, so that each stands half of the time. EBUSY: a mount stands on it just now.
                for (one, other) in &pairs {
                    if swap(one, other).is_ok() {
                        while swap(one, other).is_err() {}
                    }
                }
            }
        })
        .expect("the container's process");
        drop(say);
        ready.read_exact(&mut [0]).expect("the container comes up");
        Self(swapper)
    }

    /// The mount points of its namespace below a directory.
    fn mounts(&self, directory: &Path) -> Vec<String> {
        let text = fs::read_to_string(format!("/proc/{}/mountinfo", self.0.pid())).expect("mounts");
        let points = text.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned);
        points.filter(|point| Path::new(point).starts_with(directory)).collect()
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.0.pid().cast_signed()).expect("pid");
        let _ended_with_us_otherwise = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
