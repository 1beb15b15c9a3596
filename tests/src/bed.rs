// SPDX-License-Identifier: MIT OR Apache-2.0
//! The native bed: a mount namespace of the calling thread's own, in which real container managers find a fresh cgroup2
//! tree (or a hybrid one) at `/sys/fs/cgroup` and an empty `/run`. Processes that the thread starts inherit it.
//!
//! All files of a bed lie on its own tmpfs, which ends with the last process in the namespace. What can outlive a killed
//! test are cgroups with processes in them: their names carry the test's pid, and the next bed removes those of dead
//! pids. LXC's own empty `lxc.pivot` stays, as after any use of LXC.

use std::fs::{self, File};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::UnshareFlags;

use crate::program;

const CGROUPS: &str = "/sys/fs/cgroup";
const PREFIX: &str = "gpuhook-bed-";

/// How many beds this process has made.
static BEDS: AtomicU32 = AtomicU32::new(0);

/// A private mount namespace with cgroups and `/run` of its own.
#[derive(Debug)]
pub struct Bed {
    name: String,
    layout: Layout,
    /// The namespace is the thread's, so the bed cannot be another thread's.
    _thread: PhantomData<*const ()>,
}

/// How `/sys/fs/cgroup` is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// cgroup2 alone.
    Pure,
    /// cgroup v1 for devices, with cgroup2 beside it at `unified`.
    Hybrid,
}

impl Bed {
    /// A bed with cgroup2 alone; `None`, and `SKIP` printed, where this machine cannot have one.
    pub fn pure(name: &str) -> Option<Self> {
        Self::new(name, Layout::Pure)
    }

    /// A bed with the v1 device controller beside cgroup2; `None`, and `SKIP` printed, where this machine cannot have one.
    pub fn hybrid(name: &str) -> Option<Self> {
        Self::new(name, Layout::Hybrid)
    }

    /// Its name, which no other bed has: the test's pid and the name that the test gave. Containers and cgroups begin with it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A folder of that name on the bed's own tmpfs, which every user may pass through.
    pub fn dir(&self, name: &str) -> PathBuf {
        let dir = Path::new("/run").join(&self.name).join(name);
        fs::create_dir_all(&dir).expect("folder of the bed");
        dir
    }

    /// How its cgroups are laid out.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Where the cgroup2 tree is mounted.
    pub fn cgroup2(&self) -> PathBuf {
        match self.layout {
            Layout::Pure => PathBuf::from(CGROUPS),
            Layout::Hybrid => Path::new(CGROUPS).join("unified"),
        }
    }

    /// Waits until no process of `program` is left in the bed: what it left running beside a container has done its work.
    pub fn wait_for(&self, program: &Path) {
        let ours = fs::read_link("/proc/thread-self/ns/mnt").expect("mount namespace");
        for process in children(Path::new("/proc")) {
            let is = |link: &str, what: &Path| fs::read_link(process.join(link)).is_ok_and(|found| found == what);
            let Some(pid) = process.file_name().and_then(|name| name.to_str()?.parse().ok()).and_then(Pid::from_raw)
            else {
                continue;
            };
            // The pidfd first: what the links say afterwards is true of the process that it holds, or of none.
            let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            if is("exe", program) && is("ns/mnt", &ours) {
                let limit = Timespec::try_from(Duration::from_secs(60)).expect("a short time");
                let ended = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit)).expect("poll");
                assert_eq!(ended, 1, "{} still runs as {pid:?}", program.display());
            }
        }
    }

    /// What gpuhook keeps: its files below `/run/gpuhook`, and its mounts there.
    pub fn kept(&self) -> Vec<String> {
        fn files(dir: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    true => files(&entry.path(), found),
                    false => found.push(entry.path().display().to_string()),
                }
            }
        }
        let mut found = Vec::new();
        files(Path::new("/run/gpuhook"), &mut found);
        let mounts = fs::read_to_string("/proc/thread-self/mountinfo").expect("mounts");
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        found.extend(points.filter(|point| point.starts_with("/run/gpuhook/")).map(|point| format!("mount {point}")));
        found.sort();
        found
    }

    fn new(name: &str, layout: Layout) -> Option<Self> {
        if let Some(reason) = missing() {
            assert!(std::env::var_os("GPUHOOK_MUST_WORK").is_none_or(|word| word != "1"), "must work, but {reason}");
            println!("SKIP {reason}");
            return None;
        }
        enter(layout);
        // No bed's name may be the beginning of another's, whose containers its end would kill.
        let number = BEDS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}-{name}", std::process::id());
        let bed = Self { name, layout, _thread: PhantomData };
        bed.remove_cgroups(|name| owner(name).is_some_and(is_dead));
        Some(bed)
    }

    /// Kills what runs in the top cgroups whose names `chosen` wants, and removes them.
    fn remove_cgroups(&self, chosen: impl Fn(&str) -> bool) {
        let trees = match self.layout {
            Layout::Pure => vec![self.cgroup2()],
            Layout::Hybrid => ["unified", "freezer", "devices"].map(|tree| Path::new(CGROUPS).join(tree)).to_vec(),
        };
        for tree in &trees {
            for cgroup in children(tree) {
                if chosen(&cgroup.file_name().unwrap_or_default().to_string_lossy()) {
                    end(&cgroup);
                }
            }
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.remove_cgroups(|name| name.contains(&self.name));
    }
}

/// Why no bed can be had here.
fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("a bed needs root".to_owned());
    }
    let programs = ["busybox", "cc", "lxc-start", "lxc-attach", "lxc-stop", "lxc-wait", "runc"];
    let missing: Vec<_> = programs.into_iter().filter(|name| !program::installed(name)).collect();
    (!missing.is_empty()).then(|| format!("a bed needs {}", missing.join(", ")))
}

fn enter(layout: Layout) {
    let flags = UnshareFlags::NEWNS;
    // SAFETY: a new mount namespace (and with it a working directory of the thread's own) leaves the file table shared, so
    // no descriptor of another thread loses its meaning.
    #[expect(unsafe_code, reason = "rustix marks unshare unsafe for the sake of CLONE_FILES, which is not asked for")]
    let unshared = unsafe { rustix::thread::unshare_unsafe(flags) };
    unshared.expect("a mount namespace");
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("private mounts");
    // Detached from the top until nothing is mounted there.
    while unmount(CGROUPS, UnmountFlags::DETACH).is_ok() {}
    let none = MountFlags::empty();
    match layout {
        Layout::Pure => mount("none", CGROUPS, "cgroup2", none, None).expect("cgroup2"),
        Layout::Hybrid => {
            mount("none", CGROUPS, "tmpfs", none, c"mode=755").expect("tmpfs for the hierarchies");
            for (name, kind, options) in [
                ("devices", "cgroup", Some(c"devices")),
                ("freezer", "cgroup", Some(c"freezer")),
                ("unified", "cgroup2", None),
            ] {
                let at = Path::new(CGROUPS).join(name);
                fs::create_dir(&at).expect("folder of a hierarchy");
                mount("none", &at, kind, none, options).unwrap_or_else(|error| panic!("mount {name}: {error}"));
            }
        }
    }
    mount("none", "/run", "tmpfs", none, c"mode=755").expect("tmpfs at /run");
    allow_id_maps();
}

/// LXC calls `newuidmap`, also as root, where it is installed, and that asks these files.
fn allow_id_maps() {
    for file in ["/etc/subuid", "/etc/subgid"] {
        if Path::new(file).exists() {
            let own = Path::new("/run").join(Path::new(file).file_name().expect("a file name"));
            fs::write(&own, "root:100000:65536\n").expect("the bed's own id ranges");
            rustix::mount::mount_bind(&own, file).expect("bind of the id ranges");
        }
    }
}

/// The pid in a cgroup's name, where it is one of a bed's.
fn owner(name: &str) -> Option<u32> {
    name.split_once(PREFIX)?.1.split('-').next()?.parse().ok()
}

/// Whether no process has that pid, or only one that nobody has waited for yet: such a one has no program.
fn is_dead(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_err()
}

fn children(cgroup: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cgroup).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// Kills everything in a cgroup and removes it. Another test may sweep at the same time, so nothing here must succeed.
fn end(cgroup: &Path) {
    if fs::write(cgroup.join("cgroup.kill"), "1").is_ok() {
        wait_until_empty(cgroup);
    } else {
        // A frozen v1 cgroup would not notice the kill that its cgroup2 twin gave.
        let _absent_in_other_hierarchies = fs::write(cgroup.join("freezer.state"), "THAWED");
    }
    remove(cgroup);
}

fn wait_until_empty(cgroup: &Path) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let Ok(events) = File::open(cgroup.join("cgroup.events")) else { return };
    // The read must come before the poll: the kernel reports a change since the last read.
    while fs::read_to_string(cgroup.join("cgroup.events")).is_ok_and(|text| text.contains("populated 1")) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let step = Timespec::try_from(left.min(Duration::from_millis(100))).expect("a short time");
        let _ready = poll(&mut [PollFd::new(&events, PollFlags::PRI)], Some(&step));
    }
}

fn remove(cgroup: &Path) {
    for child in children(cgroup) {
        remove(&child);
    }
    let _swept_by_another = fs::remove_dir(cgroup);
}
