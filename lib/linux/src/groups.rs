// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose group a node belongs to, outside and inside of a container: the same number can be `render` here and `ssl-cert`
//! there.

use gpuhook_core::facts::{IdMap, groups};

use crate::root::Root;
use crate::sys::mount::{self, Follow};
use crate::target::Target;

/// A node's group that is another one inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherGroup {
    /// Its number, in the container's ids where it has one there.
    pub gid: u32,
    /// Its name in the container; `None` where it has none, or no number.
    pub inside: Option<String>,
    /// Its name on the host, or its number where it has none.
    pub outside: String,
}

/// What is wrong with the group of the node at `path` in the container, whose group ids are mapped by `map`; nothing where
/// the group does not decide, has the same name on both sides, or cannot be looked at.
pub fn other_group(host: &Root, target: &Target, map: &IdMap, path: &str) -> Option<OtherGroup> {
    let root = target.root_directory().ok()?;
    let node = mount::locate(&root, path.trim_start_matches('/'), Follow::Yes).ok()?;
    let status = mount::status(node).ok()?;
    // Whoever is neither its owner nor in its group has no right, and the group has it.
    if status.mode & 0o006 == 0o006 || status.mode & 0o060 != 0o060 {
        return None;
    }
    let name = |root: &Root, gid| groups::name_of(&root.text("etc/group").ok().flatten()?, gid);
    let gid = map.to_inside(status.gid);
    let outside = name(host, status.gid);
    let inside = gid.and_then(|gid| name(&root, gid));
    if inside.is_some() && inside == outside {
        return None;
    }
    let outside = outside.unwrap_or_else(|| status.gid.to_string());
    Some(OtherGroup { gid: gid.unwrap_or(status.gid), inside, outside })
}
