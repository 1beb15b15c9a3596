// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a machine holds that a container could leave behind, for a comparison before and after; and the broom for what a
//! failed test left.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use gpuhook_tests::program;
use serde_json::Value;

use crate::driver;

/// Mounts, device filters, files under /run/gpuhook, processes of gpuhook, containers' cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept(BTreeSet<String>);

impl Kept {
    pub(crate) fn now() -> Self {
        let mut found = BTreeSet::new();
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        // podman mounts its storage over itself as it likes.
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        let points = points.filter(|point| !point.starts_with("/var/lib/containers/"));
        found.extend(points.map(|point| format!("mount {point}")));
        found.extend(programs());
        walk(Path::new("/run/gpuhook"), &mut |path, _| {
            found.insert(format!("file {}", path.display()));
        });
        walk(Path::new("/sys/fs/cgroup"), &mut |path, is_dir| {
            let text = path.display().to_string();
            if is_dir
                && ["lxc.payload.", "lxc.monitor.", "/lxc/", "vmt-", "libpod-"].iter().any(|word| text.contains(word))
            {
                found.insert(format!("cgroup {text}"));
            }
        });
        found.extend(processes("gpuhook").into_iter().map(|pid| format!("process {pid}")));
        Self(found)
    }

    /// Waits until the machine holds no more than then: the kernel frees a filter a moment after its cgroup.
    pub(crate) fn assert_nothing_new(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let now = Self::now();
            let new: Vec<_> = now.0.difference(&self.0).collect();
            if new.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "left behind: {new:#?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Device filters of any cgroup. Those of systemd come and go with its units, so only the names of the others count.
fn programs() -> Vec<String> {
    let listed = program::stdout(program::command("bpftool", &["-j", "prog", "show"]));
    let listed: Value = serde_json::from_str(&listed).expect("JSON of bpftool");
    let programs = listed.as_array().into_iter().flatten();
    let filters = programs.filter(|program| program["type"] == "cgroup_device");
    filters
        .filter(|program| program["name"] != "sd_devices")
        .map(|program| format!("filter {} {}", program["id"], program["name"]))
        .collect()
}

/// The processes whose program has that file name.
pub(crate) fn processes(name: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.file_name().is_some_and(|file| file == name))
    })
    .collect()
}

/// Waits until no gpuhook runs any more: what it left running beside a container has done its work.
pub(crate) fn wait_for_gpuhook() {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !processes("gpuhook").is_empty() {
        assert!(Instant::now() < deadline, "gpuhook still runs");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn walk(dir: &Path, found: &mut dyn FnMut(&Path, bool)) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        found(&entry.path(), is_dir);
        if is_dir {
            walk(&entry.path(), found);
        }
    }
}

/// Ends what a failed test left running, so that the next one starts on a clean machine.
pub(crate) fn sweep() {
    let script = "pkill -9 -x gpuhook
        for c in /var/lib/lxc/*/; do lxc-unfreeze -n $(basename $c); lxc-stop -k -n $(basename $c); rm -f $c/config; done
        for r in runc crun; do for c in $($r list -q); do $r delete --force $c; done; done
        podman rm -fat 0; rm -f /etc/gpuhook/config.toml; cp /handin/root/etc/gpuhook/config.toml /etc/gpuhook/";
    let _best_effort = program::output(program::command("timeout", &["90", "sh", "-c", script]));
    if Path::new("/sys/module/nvidia").exists() {
        driver::kill_gpu(-1);
    }
}
