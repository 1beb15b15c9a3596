// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of `/proc/PID/cgroup` and `/proc/self/mountinfo` -> which device filter governs a process.

use super::CgroupLocation;

impl CgroupLocation {
    /// Where the process with this `/proc/PID/cgroup` is filtered, by what our mount namespace shows in `mountinfo`:
    /// the v1 devices controller where its hierarchy is mounted and the process is in it, else cgroup2. The kernel
    /// lists hierarchies in `cgroup` that are mounted nowhere here, and a hybrid host has both.
    ///
    /// Lines that do not read as they should are passed over: a foreign mount must not stop a container.
    pub fn parse(cgroup: &str, mountinfo: &str) -> Self {
        let mounts: Vec<Mount<'_>> = mountinfo.lines().filter_map(Mount::parse).collect();
        let v1 = member_of(cgroup, |controllers| controllers.split(',').any(|name| name == "devices"))
            .and_then(|path| seen_through(&mounts, path, |mount| mount.has_devices_v1()));
        if let Some((mount, path)) = v1 {
            return Self::V1 { mount, path };
        }
        let v2 = member_of(cgroup, str::is_empty)
            .and_then(|path| seen_through(&mounts, path, |mount| mount.filesystem == "cgroup2"));
        match v2 {
            Some((mount, path)) => Self::V2 { mount, path },
            None => Self::Unknown,
        }
    }
}

/// The path on the line `ID:CONTROLLERS:PATH` whose controllers are `wanted`.
fn member_of(cgroup: &str, wanted: impl Fn(&str) -> bool) -> Option<&str> {
    cgroup.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        wanted(controllers).then_some(path)
    })
}

/// Mount point and path below it at which the cgroup `path` is seen, by the mount that shows most of its hierarchy.
fn seen_through(mounts: &[Mount<'_>], path: &str, wanted: impl Fn(&Mount<'_>) -> bool) -> Option<(String, String)> {
    // Outside of our own cgroup namespace: no mount of ours leads there.
    if path.split('/').any(|name| name == "..") {
        return None;
    }
    let seen = mounts.iter().filter(|mount| wanted(mount) && !mount.is_covered(mounts));
    let (mount, below) = seen
        .filter_map(|mount| Some((mount, strip(path, &unescape(mount.root))?)))
        .min_by_key(|(mount, _)| mount.root.len())?;
    Some((unescape(mount.point), below))
}

/// `path` below `root`, beginning with `/`.
fn strip(path: &str, root: &str) -> Option<String> {
    match path.strip_prefix(root.trim_end_matches('/'))? {
        "" => Some("/".to_owned()),
        below if below.starts_with('/') => Some(below.to_owned()),
        _ => None,
    }
}

/// One line of mountinfo (Documentation/filesystems/proc.rst, section 3.5).
struct Mount<'a> {
    id: &'a str,
    parent: &'a str,
    root: &'a str,
    point: &'a str,
    filesystem: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, superblock) = line.split_once(" - ")?;
        let mut mount = mount.split(' ');
        let mut superblock = superblock.split(' ');
        Some(Self {
            id: mount.next()?,
            parent: mount.next()?,
            root: mount.nth(1)?,
            point: mount.next()?,
            filesystem: superblock.next()?,
            options: superblock.nth(1).unwrap_or_default(),
        })
    }

    fn has_devices_v1(&self) -> bool {
        self.filesystem == "cgroup" && self.options.split(',').any(|option| option == "devices")
    }

    /// Whether a mount on top of it, or on a directory above it, hides it.
    fn is_covered(&self, mounts: &[Mount<'_>]) -> bool {
        if mounts.iter().any(|other| other.parent == self.id && other.point == self.point) {
            return true;
        }
        let mut ancestor = Some(self);
        // As many steps as there are mounts, in case the text holds a circle.
        for _ in mounts {
            let Some(mount) = ancestor else { break };
            // A mount is the child of what it stands on, so a sibling above it came later and hides it.
            let hides = |other: &Mount<'_>| other.parent == mount.parent && is_above(other.point, mount.point);
            if mounts.iter().any(hides) {
                return true;
            }
            ancestor = mounts.iter().find(|other| other.id == mount.parent);
        }
        false
    }
}

/// Whether the directory `above` lies strictly above `below`.
fn is_above(above: &str, below: &str) -> bool {
    strip(below, above).is_some_and(|rest| rest != "/")
}

/// A path of mountinfo, in which blank, tab, newline and backslash are written as three octal digits
/// (fs/proc_namespace.c, `mangle`).
fn unescape(text: &str) -> String {
    let mut plain = text.to_owned();
    for (written, meant) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        plain = plain.replace(written, meant);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID_CGROUP: &str = "9:name=systemd:/\n5:devices:/lxc/c1\n4:memory:/x:y\n0::/lxc.payload.c1\n";
    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw
";

    fn v2(mount: &str, path: &str) -> CgroupLocation {
        CgroupLocation::V2 { mount: mount.to_owned(), path: path.to_owned() }
    }

    fn v1(mount: &str, path: &str) -> CgroupLocation {
        CgroupLocation::V1 { mount: mount.to_owned(), path: path.to_owned() }
    }

    #[test]
    fn what_is_mounted_here_decides() {
        let over = format!("{HYBRID}77 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        let alone = "77 23 0:38 / /sys/fs/cgroup rw - cgroup2 none rw\n";
        let v1_of_another_controller = "40 31 0:37 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        for (name, cgroup, mountinfo, location) in [
            ("hybrid", HYBRID_CGROUP, HYBRID, v1("/sys/fs/cgroup/devices", "/lxc/c1")),
            ("only cgroup2 here", HYBRID_CGROUP, alone, v2("/sys/fs/cgroup", "/lxc.payload.c1")),
            ("cgroup2 mounted over v1", HYBRID_CGROUP, &over, v2("/sys/fs/cgroup", "/lxc.payload.c1")),
            ("pure", "0::/a/b\n", alone, v2("/sys/fs/cgroup", "/a/b")),
            ("root", "0::/\n", alone, v2("/sys/fs/cgroup", "/")),
            ("devices v1 without the process", "0::/a\n", HYBRID, v2("/sys/fs/cgroup/unified", "/a")),
            ("colons in the name", "0::/a:b\n", alone, v2("/sys/fs/cgroup", "/a:b")),
            ("nothing mounted", HYBRID_CGROUP, v1_of_another_controller, CgroupLocation::Unknown),
            ("outside our cgroup namespace", "0::/../other\n", alone, CgroupLocation::Unknown),
            ("no text", "", "", CgroupLocation::Unknown),
        ] {
            assert_eq!(CgroupLocation::parse(cgroup, mountinfo), location, "{name}");
        }
    }

    #[test]
    fn controllers_that_share_a_hierarchy_are_told_apart_by_whole_names() {
        let mountinfo = "\
50 31 0:40 / /sys/fs/cgroup/devicesx rw - cgroup cgroup rw,devicesx
51 31 0:41 / /sys/fs/cgroup/all rw - cgroup cgroup rw,cpu,devices
";
        let location = CgroupLocation::parse("7:devicesx:/no\n8:cpu,devices:/yes\n", mountinfo);
        assert_eq!(location, v1("/sys/fs/cgroup/all", "/yes"));
    }

    #[test]
    fn a_mount_of_a_part_of_the_hierarchy_is_stripped_and_the_whole_preferred() {
        let part = "60 23 0:38 /lxc /mnt/my\\040cgroup rw - cgroup2 cgroup2 rw\n";
        let whole = "61 23 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        for (path, mountinfo, location) in [
            ("/lxc/c1", part.to_owned(), v2("/mnt/my cgroup", "/c1")),
            ("/lxc", part.to_owned(), v2("/mnt/my cgroup", "/")),
            ("/lxcfs/c1", part.to_owned(), CgroupLocation::Unknown),
            ("/lxc/c1", format!("{part}{whole}"), v2("/sys/fs/cgroup", "/lxc/c1")),
        ] {
            assert_eq!(CgroupLocation::parse(&format!("0::{path}\n"), &mountinfo), location, "{path}");
        }
    }

    #[test]
    fn a_mount_that_another_one_hides_is_not_used() {
        let below = "70 23 0:38 / /a/cgroup rw - cgroup2 cgroup2 rw\n";
        let shown = "72 23 0:38 / /b rw - cgroup2 cgroup2 rw\n";
        for (name, cover) in [
            ("on top", "71 70 0:50 / /a/cgroup rw - tmpfs none rw\n"),
            ("on a directory above", "71 23 0:50 / /a rw - tmpfs none rw\n"),
            ("on the parent itself", "71 23 0:50 / / rw - tmpfs none rw\n"),
        ] {
            let mountinfo = format!("23 1 8:1 / / rw - ext4 /dev/sda1 rw\n{below}{cover}");
            assert_eq!(CgroupLocation::parse("0::/c\n", &mountinfo), CgroupLocation::Unknown, "{name}");
        }
        assert_eq!(CgroupLocation::parse("0::/c\n", &format!("{below}{shown}")), v2("/a/cgroup", "/c"));
    }

    #[test]
    fn odd_lines_are_passed_over() {
        let circle = "1 2 0:1 / / rw - cgroup2 x rw\n2 1 0:1 / / rw - tmpfs x rw\ngarbage\n\n - \n1 - \n";
        assert_eq!(CgroupLocation::parse("\n:\n::\n0::/a\n", circle), CgroupLocation::Unknown);
    }
}
