// SPDX-License-Identifier: MIT OR Apache-2.0
//! The texts that a diagnosis reads, as they stand, for a bug report: laid out so that `--host-root` reads the same facts
//! from them. What could name people or machines beside the driver is not taken.

use gpuhook_core::facts::HostFacts;
use gpuhook_core::facts::surroundings::Surroundings;

use super::{GatherError, Warnings, surroundings};
use crate::root::Root;
use crate::sys::open::EntryKind;

const FILES: [&str; 9] = [
    "proc/devices",
    "proc/modules",
    "proc/filesystems",
    "proc/driver/nvidia/version",
    "proc/driver/nvidia/params",
    "proc/sys/kernel/osrelease",
    "sys/module/nvidia_uvm/parameters/uvm_disable_hmm",
    "run/systemd/container",
    ".dockerenv",
];

const TREES: [&str; 5] =
    ["proc/driver/nvidia/gpus", "proc/driver/nvidia/capabilities", "etc/cdi", "run/cdi", "var/run/cdi"];

/// Path below the root and text of everything that was read for `host` and `surroundings`; a path that ends in `/` is a
/// directory.
///
/// # Errors
/// The kernel lacks what a safe lookup needs, so nothing can be read.
pub fn raw(root: &Root, host: &HostFacts, surroundings: &Surroundings) -> Result<Vec<(String, String)>, GatherError> {
    let mut warnings = Warnings::default();
    let mut files: Vec<(String, String)> = Vec::new();
    for path in FILES {
        files.extend(warnings.text(root, path)?.map(|text| (path.to_owned(), text)));
    }
    for path in TREES {
        tree(root, path, 8, &mut warnings, &mut files)?;
    }
    let mounts = super::mountinfo(root);
    let cgroups = lines(&mounts, |line| line.contains(" - cgroup"));
    files.extend((!cgroups.is_empty()).then_some(("proc/self/mountinfo".to_owned(), cgroups)));
    let programs = [("runc", surroundings.runc), ("nvidia-ctk", surroundings.nvidia_ctk)];
    for (program, there) in programs.into_iter().filter_map(|(program, there)| Some((program, there?))) {
        files.push(("usr/bin/".to_owned(), String::new()));
        files.extend(there.then(|| (format!("usr/bin/{program}"), String::new())));
    }
    let hand_made = surroundings.udev.iter().map(|rule| rule.path.as_str());
    let hooks = surroundings.oci_hooks.iter().map(|hook| hook.path.as_str());
    let mut others: Vec<&str> = hand_made.chain(hooks).collect();
    others.dedup();
    for path in others {
        let text = warnings.text(root, path.trim_start_matches('/'))?;
        files.extend(text.map(|text| (path.trim_start_matches('/').to_owned(), text)));
    }
    if let Some(release) = &surroundings.kernel {
        let path = format!("lib/modules/{release}/modules.dep");
        let text = warnings.keep(root.text_at_most(&path, surroundings::MODULES_DEP_MAX))?.flatten();
        files.extend(text.map(|text| (path, lines(&text, |line| line.contains("nvidia")))));
    }
    if let Some(text) = surroundings::log_text(root, &mut warnings)? {
        let drivers = ["NVRM", "nvidia", "kfd"];
        files.push(("dmesg.txt".to_owned(), lines(&text, |line| drivers.iter().any(|name| line.contains(name)))));
    }
    if let Some(versions) = &surroundings.firmware {
        files.push(("lib/firmware/nvidia/".to_owned(), String::new()));
        files.extend(versions.iter().map(|version| (format!("lib/firmware/nvidia/{version}/gsp.bin"), String::new())));
    }
    let expected = gpuhook_core::host_nodes::expected(host).unwrap_or_default();
    let mut named: Vec<&str> = expected.iter().map(|device| device.path.as_str()).collect();
    named.extend(surroundings.dev.absent.iter().map(String::as_str));
    named.push("/dev/nvidia-caps-imex-channels/channel0");
    named.sort_unstable();
    named.dedup();
    let listing = surroundings.dev.listing(named);
    files.push(("dev.list".to_owned(), listing));
    Ok(files)
}

fn lines(text: &str, wanted: impl Fn(&str) -> bool) -> String {
    text.split_inclusive('\n').filter(|line| wanted(line)).collect()
}

fn tree(
    root: &Root,
    path: &str,
    depth: usize,
    warnings: &mut Warnings,
    files: &mut Vec<(String, String)>,
) -> Result<(), GatherError> {
    let Some((directory, entries)) = warnings.keep(root.list(path))?.flatten() else { return Ok(()) };
    files.push((format!("{path}/"), String::new()));
    for entry in entries.into_iter().filter(|_| depth > 0) {
        let below = format!("{path}/{}", entry.name);
        match entry.kind {
            EntryKind::Directory => tree(root, &below, depth - 1, warnings, files)?,
            _ => files.extend(warnings.text(&directory, &entry.name)?.map(|text| (below, text))),
        }
    }
    Ok(())
}
