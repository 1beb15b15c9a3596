// SPDX-License-Identifier: MIT OR Apache-2.0
//! An LXC container's config with its includes: every line with the place where it stands, and the values that are in
//! force at the end. LXC keeps what it parsed to itself, so a hook has to read the files again
//! (src/lxc/confile.c, `parse_line`).

use std::fmt;

pub use self::read::{LxcConfigError, Source};
use crate::device_lines::is_legacy_hook;
use crate::facts::IdMap;
use crate::quoted::Quoted;

pub(crate) mod command;
mod read;

/// The lines of a config and of everything that it includes, in the order in which LXC takes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LxcConfig {
    /// Every line that sets or clears a key.
    pub entries: Vec<Entry>,
}

/// One line `key = value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands.
    pub place: Place,
    /// The key, `lxc.hook.start-host`.
    pub key: String,
    /// The value without the blanks and the one pair of quotes around it; empty clears what stood before.
    pub value: String,
}

/// A line of a file; written `file:line`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's path as it was given or included.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.escape_debug(), self.line)
    }
}

impl LxcConfig {
    /// The values of `key` that are in force, in their order.
    pub fn values(&self, key: &str) -> Vec<&str> {
        self.active(|known| known == key).into_iter().map(|entry| entry.value.as_str()).collect()
    }

    /// The value of a key that holds one: the last. `None` where it was never set, or cleared.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.values(key).pop()
    }

    /// The commands of a stage, `start-host`, in the order in which LXC runs them.
    pub fn hooks(&self, stage: &str) -> Vec<&str> {
        self.values(&format!("lxc.hook.{stage}"))
    }

    /// Whether a command of a stage runs `gpuhook lxc`.
    pub fn registered(&self, stage: &str) -> bool {
        self.hooks(stage).into_iter().any(command::runs_gpuhook)
    }

    /// Whether LXC's own hook for NVIDIA brings nodes in as well.
    pub fn has_legacy_hook(&self) -> bool {
        self.hooks("mount").into_iter().any(is_legacy_hook)
    }

    /// The variables that the operator gives to the container, in the order in which LXC sets them, so that the last of
    /// a name counts: `lxc.environment`, and since LXC 7 also `lxc.environment.hooks`. A name without a value takes the
    /// value that lxc-start itself was given, which a hook cannot know; it is passed over.
    pub fn environment(&self) -> Vec<(&str, &str)> {
        self.variables(&["lxc.environment", "lxc.environment.hooks"])
    }

    /// The variables of `lxc.environment.runtime` (LXC 7): Proxmox writes the variables of an OCI image there, and those
    /// of `pct set --env`, which nothing tells apart.
    pub fn image_environment(&self) -> Vec<(&str, &str)> {
        self.variables(&["lxc.environment.runtime"])
    }

    fn variables(&self, keys: &[&str]) -> Vec<(&str, &str)> {
        self.active(|key| keys.contains(&key)).into_iter().filter_map(|entry| entry.value.split_once('=')).collect()
    }

    /// `lxc.idmap`: the maps of user and group ids; empty for a container without a user namespace.
    ///
    /// # Errors
    ///
    /// A value that LXC or the kernel refuses as well.
    pub fn idmap(&self) -> Result<(IdMap, IdMap), LxcValueError> {
        let (mut users, mut groups) = (IdMap::default(), IdMap::default());
        for entry in self.active(|key| key == "lxc.idmap") {
            let refuse = || LxcValueError { entry: entry.clone(), expected: "u|g FIRST-INSIDE FIRST-OUTSIDE COUNT" };
            let words: Vec<&str> = entry.value.split_ascii_whitespace().collect();
            let [kind, inside, outside, count] = words[..] else { return Err(refuse()) };
            let number = |word: &str| word.parse::<u32>().ok();
            let (Some(inside), Some(outside), Some(count)) = (number(inside), number(outside), number(count)) else {
                return Err(refuse());
            };
            match kind {
                "u" => users.0.push((inside, outside, count)),
                "g" => groups.0.push((inside, outside, count)),
                _ => return Err(refuse()),
            }
        }
        Ok((users, groups))
    }

    /// `lxc.init.uid`: who the container's init is, inside; LXC's default is 0.
    ///
    /// # Errors
    ///
    /// A value that is not plainly decimal. LXC takes 010 for 8, 0x10 for 16 and a word for 0; nobody means that.
    pub fn init_uid(&self) -> Result<u32, LxcValueError> {
        self.id("lxc.init.uid")
    }

    /// `lxc.init.gid`, as [`LxcConfig::init_uid`].
    ///
    /// # Errors
    ///
    /// A value that is not plainly decimal. LXC takes 010 for 8, 0x10 for 16 and a word for 0; nobody means that.
    pub fn init_gid(&self) -> Result<u32, LxcValueError> {
        self.id("lxc.init.gid")
    }

    /// `lxc.cgroup.dir`: the parent of the cgroups that LXC makes.
    pub fn cgroup_dir(&self) -> Option<&str> {
        self.value("lxc.cgroup.dir")
    }

    /// `lxc.cgroup.dir.container`: the container's cgroup, which carries its device filter.
    pub fn cgroup_dir_container(&self) -> Option<&str> {
        self.value("lxc.cgroup.dir.container")
    }

    /// `lxc.cgroup.dir.container.inner`: the directory below it in which the container's init lives (Proxmox: `ns`).
    pub fn cgroup_dir_container_inner(&self) -> Option<&str> {
        self.value("lxc.cgroup.dir.container.inner")
    }

    /// `lxc.rootfs.path` as written: a path, or `TYPE:PATH`.
    pub fn rootfs_path(&self) -> Option<&str> {
        self.value("lxc.rootfs.path")
    }

    fn active(&self, wanted: impl Fn(&str) -> bool) -> Vec<&Entry> {
        let mut active: Vec<&Entry> = Vec::new();
        for entry in &self.entries {
            if entry.value.is_empty() {
                active.retain(|earlier| !clears(&entry.key, &earlier.key));
            } else if wanted(&entry.key) {
                active.push(entry);
            }
        }
        active
    }

    fn id(&self, key: &str) -> Result<u32, LxcValueError> {
        let Some(entry) = self.active(|known| known == key).pop() else { return Ok(0) };
        let plain = entry.value == "0" || entry.value.starts_with(|c| matches!(c, '1'..='9'));
        let id = if plain { entry.value.parse().ok() } else { None };
        id.ok_or_else(|| LxcValueError { entry: entry.clone(), expected: "a decimal number" })
    }
}

/// Whether an empty value of `cleared` clears `key`. The keys `lxc.hook`, `lxc.cgroup` and `lxc.cgroup2` exist only to
/// clear all below them, but the cgroup's directories are not controllers (`lxc_clear_hooks`, `lxc_clear_cgroups`).
pub(crate) fn clears(cleared: &str, key: &str) -> bool {
    const DIRECTORIES: [&str; 2] = ["lxc.cgroup.dir", "lxc.cgroup.relative"];
    let below = || key.strip_prefix(cleared).is_some_and(|rest| rest.starts_with('.'));
    let is_directory = || DIRECTORIES.iter().any(|directory| key.starts_with(directory));
    cleared == key
        || match cleared {
            "lxc.hook" | "lxc.cgroup2" => below(),
            "lxc.cgroup" => below() && !is_directory(),
            _ => false,
        }
}

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LxcValueError {
    /// The line.
    pub entry: Entry,
    /// What stands there in a good config.
    pub expected: &'static str,
}

impl fmt::Display for LxcValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { place, key, value } = &self.entry;
        write!(f, "read {place}: {key} is {}, not {}", Quoted(value), self.expected)
    }
}

impl std::error::Error for LxcValueError {}

#[cfg(test)]
mod tests;
