// SPDX-License-Identifier: MIT OR Apache-2.0
//! The links by number in `/dev/char` -> which node each leads to. systemd and runc 1.1.3 to 1.1.6 find a device by its
//! link, and nothing but NVIDIA's own tools makes links for NVIDIA's nodes, which are not in sysfs.

use super::{MAJOR_MAX, MINOR_MAX, decimal};
use crate::device::DeviceId;

/// `/dev/char/195:0` and the node that it leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CharLink {
    /// The number that its name says.
    pub id: DeviceId,
    /// The node's path, `/dev/nvidia0`.
    pub target: String,
}

impl CharLink {
    /// The link called `name` that holds `target`; nothing where the name is no number, or the target no path below `/dev`.
    pub fn of(name: &str, target: &str) -> Option<Self> {
        let (major, minor) = name.split_once(':')?;
        let id = DeviceId::new(decimal(major, MAJOR_MAX)?, decimal(minor, MINOR_MAX)?);
        let target = match target.strip_prefix("../") {
            Some(below) if !below.contains("..") => format!("/dev/{below}"),
            _ if target.starts_with("/dev/") => target.to_owned(),
            _ => return None,
        };
        Some(Self { id, target })
    }

    /// The links in a text that people post: `/dev/char/195:0 -> ../nvidia0` or `=>`, alone or as `ls -l` prints it.
    pub fn parse_listing(text: &str) -> Vec<Self> {
        let mut directory = false;
        let mut links = Vec::new();
        for line in text.lines() {
            match line.trim().strip_suffix(':').filter(|heading| heading.starts_with('/')) {
                Some(heading) => directory = heading.trim_end_matches('/') == "/dev/char",
                None => links.extend(link(line, directory)),
            }
        }
        links.sort();
        links.dedup();
        links
    }
}

fn link(line: &str, in_directory: bool) -> Option<CharLink> {
    let (before, target) = line.split_once(" -> ").or_else(|| line.split_once(" => "))?;
    let name = before.split_whitespace().next_back()?;
    let name = match name.strip_prefix("/dev/char/") {
        Some(name) => name,
        None if in_directory => name,
        None => return None,
    };
    CharLink::of(name, target.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_in_every_style_seen() {
        let text = "/dev/char/195:0 -> ../nvidia0\n\
                    lrwxrwxrwx 1 root root 10 Nov  1 12:00 /dev/char/509:0 -> ../nvidia-uvm\n\
                    /dev/char/234:111 => /dev/nvidia-caps/nvidia-cap111\n\
                    /dev/char:\nlrwxrwxrwx 1 root root 7 Nov  1 12:00 1:3 -> ../null\n\
                    /dev:\nlrwxrwxrwx 1 root root 7 Nov  1 12:00 1:4 -> ../null\n\
                    /dev/char/x:y -> ../nvidia0\n/dev/char/1:5 -> ../../etc/passwd\ncrw-rw-rw- 1 root root 195, 0 /dev/nvidia0\n";
        let found: Vec<String> =
            CharLink::parse_listing(text).iter().map(|link| format!("{} {}", link.id, link.target)).collect();
        assert_eq!(
            found,
            ["1:3 /dev/null", "195:0 /dev/nvidia0", "234:111 /dev/nvidia-caps/nvidia-cap111", "509:0 /dev/nvidia-uvm"]
        );
    }
}
