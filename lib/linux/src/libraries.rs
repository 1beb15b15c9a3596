// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which driver version a container's libraries are of: the file names say it, nothing is loaded.

use crate::root::Root;

/// Where distributions and images keep libcuda.
const DIRECTORIES: [&str; 9] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib64",
    "usr/lib",
    "lib/x86_64-linux-gnu",
    "usr/local/nvidia/lib64",
    "usr/local/lib",
    "opt/nvidia/lib",
];

/// The versions of the libcuda files below `root`, sorted. What cannot be read counts as absent.
pub fn versions(root: &Root) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for directory in DIRECTORIES {
        let Ok(Some((_, entries))) = root.list(directory) else { continue };
        let versions = entries.iter().filter_map(|entry| entry.name.strip_prefix("libcuda.so."));
        found.extend(versions.filter(|version| version.contains('.')).map(str::to_owned));
    }
    found.sort();
    found.dedup();
    found
}
