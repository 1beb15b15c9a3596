// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether this process is root of a user namespace alone: a rootless manager's hook. It can mount into its containers,
//! but makes no nodes, sees no device filter, and moves no process into another cgroup.

use std::fs;

use gpuhook_core::facts::IdMap;

/// The host's id of the user whose namespace this is; `None` for the host's own root.
pub fn user() -> Option<u32> {
    let map = IdMap::parse(&fs::read_to_string("/proc/self/uid_map").ok()?).ok()?;
    map.to_host(0).filter(|uid| *uid != 0)
}
