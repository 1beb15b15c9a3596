// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of `ls -l` -> nodes, for hosts that are known from a report only.

use super::{HostNode, MAJOR_MAX, MINOR_MAX, NodeKind, decimal};
use crate::device::DeviceId;

impl HostNode {
    /// The directories of nodes below `/dev`; they are no nodes themselves.
    pub const DIRECTORIES: [&str; 2] = ["nvidia-caps", "nvidia-caps-imex-channels"];

    /// The GPU nodes in `text`, sorted by path: what `ls -l` prints of `/dev`, of its directories or of single nodes,
    /// with or without dates. Whatever else people paste with it is passed over.
    pub fn parse_listing(text: &str) -> Vec<Self> {
        let mut nodes = Self::parse_whole_listing(text);
        nodes.retain(|node| !node.path.starts_with(DRI));
        nodes
    }

    /// The same with the display nodes in `/dev/dri`, which a diagnosis looks at as well.
    pub fn parse_whole_listing(text: &str) -> Vec<Self> {
        let mut directory = None;
        let mut nodes = Vec::new();
        for line in text.lines() {
            let line = line.trim();
            match line.strip_suffix(':').filter(|path| path.starts_with('/') && !path.contains(' ')) {
                Some(path) => directory = Some(path.trim_end_matches('/')),
                None => nodes.extend(node(line, directory)),
            }
        }
        nodes.sort_by(|a, b| a.path.cmp(&b.path));
        nodes
    }

    /// Whether `name` in `/dev` belongs to a GPU driver.
    pub fn is_gpu_name(name: &str) -> bool {
        name == super::majors::KFD || name.starts_with("nvidia")
    }
}

/// Where the kernel's display drivers keep their nodes.
const DRI: &str = "/dev/dri/";

fn node(line: &str, directory: Option<&str>) -> Option<HostNode> {
    let (line, _) = line.split_once(" -> ").unwrap_or((line, ""));
    let mut words = line.split_whitespace();
    let mode = words.next()?;
    let mut letters = mode.chars();
    let file_type = letters.next().filter(|letter| "-cbdlps".contains(*letter))?;
    let mode = permissions(letters.as_str())?;
    let _links = decimal(words.next()?, u32::MAX)?;
    let (uid, gid) = (id(words.next()?), id(words.next()?));
    let kind = match file_type {
        'c' => NodeKind::Character(number(&mut words)?),
        _ => NodeKind::NotADevice,
    };
    let path = path(words.next_back().filter(|name| !matches!(*name, "." | ".."))?, directory)?;
    let name = path.strip_prefix("/dev/")?;
    let is_directory = file_type == 'd' && HostNode::DIRECTORIES.contains(&name);
    let is_gpu = HostNode::is_gpu_name(name) || (path.starts_with(DRI) && file_type != 'd');
    (is_gpu && !is_directory).then_some(HostNode { path, kind, mode, uid, gid })
}

/// `195,   0` or `195,0`.
fn number<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<DeviceId> {
    let (major, minor) = words.next()?.split_once(',')?;
    let minor = if minor.is_empty() { words.next()? } else { minor };
    Some(DeviceId::new(decimal(major, MAJOR_MAX)?, decimal(minor, MINOR_MAX)?))
}

/// The bits of `rw-rw-rw-`, which a `.`, `+` or `@` may follow.
fn permissions(text: &str) -> Option<u32> {
    let letters = text.get(..9).filter(|_| text.len() <= 10)?;
    let mut bits = 0;
    for (position, letter) in letters.chars().enumerate() {
        let bit = 0o400 >> position;
        let special = [0o4000, 0o2000, 0o1000][position / 3];
        bits |= match (position % 3, letter) {
            (_, '-') => 0,
            (0, 'r') | (1, 'w') | (2, 'x') => bit,
            (2, 's' | 't') => bit | special,
            (2, 'S' | 'T') => special,
            _ => return None,
        };
    }
    Some(bits)
}

/// Only these names have the same number on every machine.
fn id(name: &str) -> Option<u32> {
    match name {
        "root" => Some(0),
        "nobody" | "nogroup" => Some(65_534),
        _ => decimal(name, u32::MAX).filter(|_| !name.is_empty()),
    }
}

/// A whole path; else below the directory whose heading came last, else where the driver keeps nodes of such names.
fn path(name: &str, directory: Option<&str>) -> Option<String> {
    let numbered = |prefix| name.strip_prefix(prefix).is_some_and(|rest| decimal(rest, MINOR_MAX).is_some());
    let directory = match directory {
        _ if name.starts_with('/') => return Some(name.to_owned()),
        Some(directory) => directory,
        None if numbered("nvidia-cap") => "/dev/nvidia-caps",
        None if numbered("channel") => "/dev/nvidia-caps-imex-channels",
        None if numbered("renderD") || numbered("card") => "/dev/dri",
        None => "/dev",
    };
    Some(format!("{directory}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_are_read_in_every_style_seen() {
        for (line, path, kind, mode, gid) in [
            (
                "crw-rw-rw- 1 root root 195,   0 Nov 1 12:00 /dev/nvidia0",
                "/dev/nvidia0",
                Some((195, 0)),
                0o666,
                Some(0),
            ),
            (
                "crw-rw-rw-. 1 root root 195, 254 Aug 23 17:11 nvidia-modeset",
                "/dev/nvidia-modeset",
                Some((195, 254)),
                0o666,
                Some(0),
            ),
            (
                "crw-rw---- 1 root video 511,1 /dev/nvidia-uvm-tools",
                "/dev/nvidia-uvm-tools",
                Some((511, 1)),
                0o660,
                None,
            ),
            (
                "cr-------- 1 nobody nogroup 236,   1 nvidia-cap1",
                "/dev/nvidia-caps/nvidia-cap1",
                Some((236, 1)),
                0o400,
                Some(65_534),
            ),
            (
                "crw-rw-rw- 1 root root 508, 0 Oct 10 04:15 channel0",
                "/dev/nvidia-caps-imex-channels/channel0",
                Some((508, 0)),
                0o666,
                Some(0),
            ),
            (
                "c-w--wx-wT 1 0 44 195, 255 Jun 25 11:05 /dev/nvidiactl",
                "/dev/nvidiactl",
                Some((195, 255)),
                0o1232,
                Some(44),
            ),
            ("-rw-r--r-- 1 root root      0       /dev/nvidia-uvm", "/dev/nvidia-uvm", None, 0o644, Some(0)),
            ("drwxr-xr-x 2 root root 40 Nov 1 12:00 nvidia0", "/dev/nvidia0", None, 0o755, Some(0)),
            ("lrwxrwxrwx 1 root root 9 Nov 1 12:00 /dev/nvidia1 -> /dev/null", "/dev/nvidia1", None, 0o777, Some(0)),
            ("crw-------   1 root    root    234,   0 Mai 21 05:13 kfd", "/dev/kfd", Some((234, 0)), 0o600, Some(0)),
        ] {
            let kind =
                kind.map_or(NodeKind::NotADevice, |(major, minor)| NodeKind::Character(DeviceId::new(major, minor)));
            let uid = if line.contains("nobody") { 65_534 } else { 0 };
            let node = HostNode { path: path.to_owned(), kind, mode, uid: Some(uid), gid };
            assert_eq!(HostNode::parse_listing(line), [node], "{line}");
        }
    }

    #[test]
    fn whatever_else_is_pasted_is_passed_over() {
        for line in [
            "total 0",
            "ls: cannot access '/dev/nvidia-uvm': No such file or directory",
            "root@pve:~# ls -l /dev/nvidia*",
            "drwxr-xr-x 2 root root 80 Nov 1 12:00 nvidia-caps",
            "crw-rw---- 1 root video 226, 0 Apr  8 16:46 /dev/dri/card0",
            "crw-rw-rw- 1 root root 195, /dev/nvidia0",
            "crw-rw-rw- 1 root",
            "cr\u{e9}-rw-rw- 1 root root 195, 0 nvidia0",
            "",
        ] {
            assert_eq!(HostNode::parse_listing(line), [], "{line}");
        }
    }

    #[test]
    fn names_stand_below_the_heading_before_them() {
        let caps = "/dev/nvidia-caps:\ntotal 0\ncr-------- 1 root root 236, 1 nvidia-cap1\n";
        let text = format!("crw-rw-rw- 1 root root 195, 0 /dev/nvidia0\n{caps}");
        let paths: Vec<String> = HostNode::parse_listing(&text).into_iter().map(|node| node.path).collect();
        assert_eq!(paths, ["/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia0"]);
    }
}
