// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an injection changes in one container and on the host, to compare before and after; also after the container's
//! death, when only a witness still has its mount namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use gpuhook_linux::sys::bpf::{self, Query};

use crate::bed::Bed;
use crate::program;

/// A process outside of a container, in its mount namespace, which lives until this is dropped.
#[derive(Debug)]
pub struct Witness {
    process: Child,
    cgroup: PathBuf,
}

/// What can be left of an injection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Mount points in the container, each as often as something is mounted there.
    pub mounts: Vec<String>,
    /// Everything in the container's `/dev`.
    pub dev: Vec<String>,
    /// Ids and names of the device programs on its cgroup and above.
    pub programs: Vec<(u32, String)>,
    /// What gpuhook keeps in its run state, and mounts on the host.
    pub kept: Vec<String>,
}

impl Witness {
    /// A witness in the container of process `pid`.
    pub fn of(bed: &Bed, pid: u32) -> Self {
        let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("cgroups of the process");
        let cgroup = cgroups.lines().find_map(|line| line.strip_prefix("0::/")).expect("a cgroup2 path");
        let ours = fs::read_link("/proc/thread-self/ns/mnt").expect("mount namespace");
        let mut enter = program::command("nsenter", &["--mount", "--target", &pid.to_string()]);
        enter.args(["/bin/busybox", "sh", "-c", "echo inside; exec busybox sleep 2147483647"]).stdout(Stdio::piped());
        let mut process = enter.spawn().expect("nsenter");
        let mut word = [0; 7];
        let mut said = process.stdout.take().expect("a pipe");
        std::io::Read::read_exact(&mut said, &mut word).expect("the witness enters");
        let its = fs::read_link(format!("/proc/{}/ns/mnt", process.id())).expect("mount namespace");
        assert_ne!(its, ours, "the witness is in the container");
        Self { process, cgroup: bed.cgroup2().join(cgroup) }
    }

    /// What it sees now.
    pub fn footprint(&self, bed: &Bed) -> Footprint {
        let process = PathBuf::from(format!("/proc/{}", self.process.id()));
        let mounts = fs::read_to_string(process.join("mountinfo")).expect("mounts of the container");
        let mut mounts: Vec<_> = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned).collect();
        mounts.sort();
        let mut dev = Vec::new();
        names(&process.join("root/dev"), "/dev", &mut dev);
        dev.sort();
        let top = bed.cgroup2();
        let levels = self.cgroup.ancestors().take_while(|level| level.starts_with(&top));
        let programs = levels.flat_map(device_programs).collect();
        Footprint { mounts, dev, programs, kept: bed.kept() }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _reaped = self.process.wait();
    }
}

impl Footprint {
    /// How many mounts are at `path`.
    pub fn mounts_at(&self, path: &str) -> usize {
        self.mounts.iter().filter(|point| *point == path).count()
    }
}

fn names(dir: &Path, shown: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let shown = format!("{shown}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names(&entry.path(), &shown, found);
        }
        found.push(shown);
    }
}

/// Those of one cgroup.
fn device_programs(cgroup: &Path) -> Vec<(u32, String)> {
    let Ok(directory) = fs::File::open(cgroup) else { return Vec::new() };
    let attached = bpf::query(&directory, Query::Own).expect("device programs of a cgroup");
    let name = |id| bpf::prog_info(bpf::prog_by_id(id).expect("a program")).expect("its name").name;
    attached.ids.into_iter().map(|id| (id, name(id))).collect()
}
