// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device numbers, access bits and container paths: the words everyone shares.

use std::fmt;

use serde::{Serialize, Serializer};

/// The upper half of a device number: which driver. Dynamic majors lie in 234-254 and 384-511
/// (fs/char_dev.c, `CHRDEV_MAJOR_DYN_END`, `CHRDEV_MAJOR_DYN_EXT_START`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Major(pub u32);

/// The lower half of a device number: which device of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Minor(pub u32);

impl fmt::Display for Major {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of one character device; written `major:minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId {
    /// Which driver.
    pub major: Major,
    /// Which device of that driver.
    pub minor: Minor,
}

impl DeviceId {
    /// The device `major:minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major: Major(major), minor: Minor(minor) }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

bitflags::bitflags! {
    /// What a device filter may allow. The values are the kernel's (`BPF_DEVCG_ACC_*`, include/uapi/linux/bpf.h).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Access: u32 {
        /// Make a node of this number: `m`. gpuhook never grants it.
        const MKNOD = 1;
        /// Open for reading: `r`.
        const READ = 2;
        /// Open for writing: `w`.
        const WRITE = 4;
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, letter) in [(Self::READ, "r"), (Self::WRITE, "w"), (Self::MKNOD, "m")] {
            if self.contains(bit) {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

impl Serialize for Access {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One exact rule of a device filter, for a character device; written `c 509:0 rw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceRule {
    /// The one device it opens.
    pub id: DeviceId,
    /// How it may be opened.
    pub access: Access,
}

impl fmt::Display for DeviceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c {} {}", self.id, self.access)
    }
}

impl Serialize for DeviceRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An absolute path as the container sees it, made of plain names only. It is resolved below the container's root and
/// never used on the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ContainerPath(String);

impl ContainerPath {
    /// The path `text`, or nothing where it is relative or holds `.`, `..` or an empty component.
    pub fn new(text: &str) -> Option<Self> {
        let names = text.strip_prefix('/')?;
        let plain = names.split('/').all(|name| !matches!(name, "" | "." | ".."));
        plain.then(|| Self(text.to_owned()))
    }

    /// The path as written, with its leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The components, from the root.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0[1..].split('/')
    }

    /// Whether it lies below `directory`.
    pub fn is_below(&self, directory: &Self) -> bool {
        self.0.strip_prefix(&directory.0).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl fmt::Display for ContainerPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_written_as_managers_write_them() {
        let rule = DeviceRule { id: DeviceId::new(509, 0), access: Access::READ | Access::WRITE };
        assert_eq!(rule.to_string(), "c 509:0 rw");
    }

    #[test]
    fn container_paths_are_plain() {
        for (text, good) in [
            ("/dev/nvidia0", true),
            ("/dev/nvidia-caps/nvidia-cap1", true),
            ("dev/nvidia0", false),
            ("/dev/../etc/passwd", false),
            ("/dev//nvidia0", false),
            ("/", false),
            ("", false),
        ] {
            assert_eq!(ContainerPath::new(text).is_some(), good, "{text:?}");
        }
    }
}
