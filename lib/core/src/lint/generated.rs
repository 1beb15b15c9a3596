// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that a program writes anew, so that a change of hand is lost.

use crate::config_text::Kind;
use crate::device_lines::DeviceLines;

/// Who writes the config anew, where somebody does.
pub fn generator(lines: &DeviceLines) -> Option<&'static str> {
    let path = lines.file.as_str();
    if lines.kind == Kind::Proxmox {
        return None;
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    if name == "config_nodes" || path.contains("/waydroid/lxc/") {
        return Some("waydroid");
    }
    let has = |wanted: &str| lines.lines.iter().any(|line| line.text.starts_with(wanted));
    if has("lxc.cgroup.dir.monitor = lxc.monitor/") && has("lxc.cgroup.dir.container.inner = ns") {
        return Some("Proxmox, from /etc/pve/lxc, at every start");
    }
    let incus = |daemon: &str| path.contains(&format!("/{daemon}/")) && name == "lxc.conf";
    (incus("incus") || incus("lxd")).then_some("Incus or LXD, at every start")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config_text::Document;

    #[test]
    fn files_of_a_generator_are_known_by_path_or_content() {
        let proxmox = "lxc.cgroup.relative = 0\nlxc.cgroup.dir.monitor = lxc.monitor/129\nlxc.cgroup.dir.container = \
                       lxc/129\nlxc.cgroup.dir.container.inner = ns\n";
        for (path, text, generated) in [
            ("/var/lib/waydroid/lxc/waydroid/config_nodes", "", true),
            ("copies/config_nodes", "", true),
            ("/var/lib/lxc/129/config", proxmox, true),
            ("/var/lib/lxc/c1/config", "lxc.uts.name = c1\n", false),
            ("/run/incus/c1/lxc.conf", "", true),
            ("/srv/c1/lxc.conf", "", false),
        ] {
            let lines = DeviceLines::read(path, Kind::Lxc, &Document::parse(text.as_bytes()), &BTreeMap::new());
            assert_eq!(generator(&lines).is_some(), generated, "{path}");
        }
    }
}
