// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all lines together say: whether the config is one about GPUs, whole, and of any use.

use super::{DeviceLine, DeviceLines, Grant, Meaning, is_legacy_hook};
use crate::config_text::Kind;
use crate::facts::Majors;

impl DeviceLines {
    /// Whether it is about NVIDIA's devices: by its words, or by a number that is theirs today.
    pub fn concerns_nvidia(&self, majors: Option<&Majors>) -> bool {
        let mut meant = self.in_force().filter_map(DeviceLine::meant_major);
        self.is_nvidia() || meant.any(|major| matches!(Grant::of(major, majors), Grant::Nvidia(_)))
    }

    /// Whether GPU lines stand in snapshots only, where none is in force.
    pub fn is_in_snapshots_only(&self) -> bool {
        let of_nvidia =
            |line: &DeviceLine| line.section.as_deref().is_some_and(|name| name != "pve:pending") && line.is_nvidia();
        !self.is_nvidia() && !self.is_kfd() && self.lines.iter().any(of_nvidia)
    }

    /// Whether it was written for a GPU of NVIDIA, and no line in force brings one in: only snapshots do, or only rules are
    /// left. What else the manager of a raw text gives is not known.
    pub fn brings_nothing(&self, majors: Option<&Majors>) -> bool {
        let rules_alone = self.kind != Kind::Raw
            && !self.is_registered()
            && self.concerns_nvidia(majors)
            && self.nodes().is_empty()
            && !self.has_unread_includes()
            && !self.in_force().any(|line| match &line.meaning {
                Meaning::Hook(_, command) => is_legacy_hook(command),
                Meaning::Mount(entry) => entry.target.trim_matches('/') == "dev",
                _ => false,
            });
        self.is_in_snapshots_only() || rules_alone
    }

    /// Whether it is a container's whole config, as its manager writes it, and not a piece that somebody posted.
    pub fn is_whole(&self) -> bool {
        let first = match self.kind {
            Kind::Proxmox => "rootfs:",
            Kind::Lxc => "lxc.rootfs.path",
            Kind::Raw => return false,
        };
        self.in_force().any(|line| line.text.trim_start().starts_with(first))
    }

    /// Whether a file that it includes was not read.
    pub fn has_unread_includes(&self) -> bool {
        let read = self.lines.iter().any(|line| line.file != self.file);
        !read && self.in_force().any(|line| matches!(line.meaning, Meaning::Include(_)) && !line.is_registration())
    }
}
